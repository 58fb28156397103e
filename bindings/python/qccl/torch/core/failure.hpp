// The exception for a QCCL call that did not succeed. Every file of this folder throws or catches
// it; torch_error in qccl_work.cpp turns it into torch's exceptions. Any thread may use it, and
// nothing here blocks.
#pragma once

#include <qccl/qccl.h>

#include <stdexcept>
#include <string>

namespace qccl_torch {

class CallFailure : public std::runtime_error {
public:
    CallFailure(qcclResult_t code, const std::string &sentence)
        : std::runtime_error(sentence), code_(code) {}
    qcclResult_t code() const { return code_; }

private:
    qcclResult_t code_;
};

// Throws CallFailure with the library's sentence, unless the result is qcclSuccess. The thread that
// made the call has to ask, because the sentence belongs to the thread.
void check(qcclResult_t result);

} // namespace qccl_torch
