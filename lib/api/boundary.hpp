// The C line: results become numbers, nothing is thrown, and what went wrong is kept as a sentence
// for this thread. Knows no communicator.
#pragma once

#include "base/contained.hpp"

#include <qccl/tools.h>

#include <utility>

// Gives the function that stands above its second name (qccl/tools.h), and what the compiler has
// found out about it, where the compiler wants that said.
#if __has_attribute(copy)
#define QCCL_TWIN(function)                                                                        \
    extern "C" __attribute__((alias(#function), copy(function))) decltype(function) p##function
#else
#define QCCL_TWIN(function)                                                                        \
    extern "C" __attribute__((alias(#function))) decltype(function) p##function
#endif

namespace qccl {

constexpr qcclResult_t to_c(Code code) { return static_cast<qcclResult_t>(code); }

// The error of this thread's last call that failed; the only thread-local of the library.
struct LastError {
    Error error;                          // text is empty where there was none
    char shown[sizeof(Error::text)] = {}; // what qcclGetLastError gave out, until its next call
};
LastError &last_error();

// Remembers the error for this thread.
qcclResult_t report(const Error &error);
template <class Body> qcclResult_t guarded(Body &&body) noexcept {
    const Done done = contained(std::forward<Body>(body));
    return done ? qcclSuccess : report(done.error());
}

} // namespace qccl
