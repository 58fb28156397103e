// The boundary between C and C++. It turns results into C result codes, lets no exception pass, and
// keeps the last error's sentence for the calling thread. It also reads and fills C structs that
// grow from release to release: callers may be older or newer than this library, and fields that
// the library does not know are refused. Every C function uses it; any thread may call it, and
// nothing blocks.
#pragma once

#include "base/exception_boundary.hpp"
#include "base/result.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <qccl/qccl.h>
#include <qccl/tools.h>

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

// ---- Errors out

constexpr qcclResult_t to_c(Code code) { return static_cast<qcclResult_t>(code); }

// The error of this thread's latest call that failed. It and the open group of a thread are the
// library's only thread-local variables.
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

// Copies the text with its closing zero to the caller, and its size. `buffer` may be NULL. A buffer
// of fewer than *bytes bytes is refused (invalid_argument), and the size is told.
Done give_text(const std::string &text, char *buffer, size_t *bytes);

// ---- Structs in and out

// A struct of the C header. `first_bytes` is its size in the release that introduced it. Reserved
// fields lie in [reserved_begin, reserved_end).
struct StructRule {
    const char *name;
    const char *initialiser;
    size_t first_bytes, bytes;
    size_t reserved_begin, reserved_end;
};

extern const StructRule config_rule, coll_config_rule, state_config_rule;

// Checks `given`, and copies the fields that both sides know over `known`, which holds the
// defaults. Returns invalid_argument if `given` was not initialised, or if a field that this
// library does not know is not zero.
Done take_struct(const StructRule &rule, const void *given, void *known);

// NULL gives the defaults.
Result<qcclConfig_t> take_config(const qcclConfig_t *given);
Result<qcclCollConfig_t> take_config(const qcclCollConfig_t *given);
Result<qcclStateConfig_t> take_config(const qcclStateConfig_t *given);

// Converts seconds of a config. Below 0 means never (0 ns), 0 gives nothing, and more than a
// century, infinity included, counts as a century. NaN is refused (invalid_argument) with the name
// `field`.
Result<std::optional<std::chrono::nanoseconds>> take_timeout(const char *field, double seconds);

// Fills a struct that the caller reads, up to the size that its first field states; zeros follow
// the known fields. Returns invalid_argument if that size is not possible.
Done give_struct(const char *name, const void *known, size_t known_bytes, size_t first_bytes,
                 void *out);

} // namespace qccl
