// Converts exceptions to results: at the C API, in the library's threads and in network callbacks.
// All other code lets exceptions pass. Any thread may call.
#pragma once

#include "base/result.hpp"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

namespace qccl {

// Describes an exception of the standard library in a sentence. Returns system_error for lack of
// memory and failed system calls, else internal_error.
inline Error describe(const std::exception &thrown) {
    if (dynamic_cast<const std::bad_alloc *>(&thrown))
        return Error::make(Code::system_error, "out of memory");
    const bool is_system = dynamic_cast<const std::system_error *>(&thrown) != nullptr;
    return Error::make(is_system ? Code::system_error : Code::internal_error, "%s", thrown.what());
}

// Runs the body of a C function or of a thread and returns the Done or other Result that `body`
// returns. An exception becomes an error; none leaves this function.
template <class Body> auto exception_boundary(Body &&body) noexcept -> decltype(body()) {
    try {
        return std::forward<Body>(body)();
    } catch (const std::exception &thrown) {
        return describe(thrown);
    } catch (...) {
        return Error::make(Code::internal_error, "an exception that is no std::exception");
    }
}

} // namespace qccl
