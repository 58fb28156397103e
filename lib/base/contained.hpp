// Where exceptions become results. Everything else lets them pass.
#pragma once

#include "base/result.hpp"

#include <exception>
#include <utility>

namespace qccl {

// What the standard library threw, in a sentence.
Error describe(const std::exception &thrown);

// Runs the body of a C function or of a thread, which gives a Done or another Result. Nothing is
// thrown past here.
template <class Body> auto contained(Body &&body) noexcept -> decltype(body()) {
    try {
        return std::forward<Body>(body)();
    } catch (const std::exception &thrown) {
        return describe(thrown);
    } catch (...) {
        return Error::make(Code::internal_error, "an exception that is no std::exception");
    }
}

} // namespace qccl
