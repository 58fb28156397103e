// The boundary between C and C++: turns results into C result codes, lets no exception pass, and
// keeps the last error's sentence for the calling thread. Every C function uses it; any thread may
// call it, and nothing blocks.
#pragma once

#include "base/exception_boundary.hpp"

#include <qccl/tools.h>

#include <utility>

// Gives the function above this macro its second name, p<function> (qccl/tools.h). Where the
// compiler has the attribute `copy`, the second name also gets the function's attributes.
#if __has_attribute(copy)
#define QCCL_TWIN(function)                                                                        \
    extern "C" __attribute__((alias(#function), copy(function))) decltype(function) p##function
#else
#define QCCL_TWIN(function)                                                                        \
    extern "C" __attribute__((alias(#function))) decltype(function) p##function
#endif

namespace qccl {

constexpr qcclResult_t to_c(Code code) { return static_cast<qcclResult_t>(code); }

// The error of this thread's latest call that failed. It is the library's only thread-local
// variable.
struct LastError {
    Error error;                          // text is empty if no call has failed
    char shown[sizeof(Error::text)] = {}; // what qcclGetLastError returned last
};
LastError &last_error();

// Records the error for this thread, unless it is in_progress, and returns its C result code.
qcclResult_t report(const Error &error);
// Runs the body of a C function, which returns Done, and reports its error or exception.
template <class Body> qcclResult_t guarded(Body &&body) noexcept {
    const Done done = exception_boundary(std::forward<Body>(body));
    return done ? qcclSuccess : report(done.error());
}

} // namespace qccl
