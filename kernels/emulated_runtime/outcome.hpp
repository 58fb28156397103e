// How a call of the emulated runtime, or a piece of work in a stream, has ended: a result code of
// the C API and, on failure, a sentence.
#pragma once

#include "base/result.hpp"

#include "qccl/emulated.h"

#include <string>

namespace qccl::emulated {

struct Outcome {
    qcclEmulatedResult_t result = qcclEmulatedSuccess;
    std::string sentence; // empty: the text of the result code says everything

    Outcome() = default;
    Outcome(int32_t code) : result(code) {}
    Outcome(int32_t code, std::string text) : result(code), sentence(std::move(text)) {}
    // Errors of the operating system are reported as a lack of memory.
    Outcome(const Error &error) : result(qcclEmulatedErrorMemoryAllocation), sentence(error.text) {}

    bool is_ok() const { return result == qcclEmulatedSuccess; }
};

} // namespace qccl::emulated
