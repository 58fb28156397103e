// How a call of the emulated runtime, or a piece of work in a stream, has ended: a result of its
// C API and, where it failed, a sentence. Knows no streams.
#pragma once

#include "base/result.hpp"

#include "qccl/emulated.h"

#include <string>

namespace qccl::emulated {

struct Outcome {
    qcclEmulatedResult_t result = qcclEmulatedSuccess;
    std::string sentence; // empty: the result's own text says it all

    Outcome() = default;
    Outcome(int32_t code) : result(code) {}
    Outcome(int32_t code, std::string text) : result(code), sentence(std::move(text)) {}
    // What the system refuses is a lack of something.
    Outcome(const Error &error) : result(qcclEmulatedErrorMemoryAllocation), sentence(error.text) {}

    bool is_ok() const { return result == qcclEmulatedSuccess; }
};

} // namespace qccl::emulated
