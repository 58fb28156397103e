// What a qcclCodec_t points to. Never changes after creation, so that any thread and any
// communicator may use it.
#pragma once

#include "api/handle_mark.hpp"
#include "base/result.hpp"
#include "codec/codec.hpp"

#include <qccl/qccl.h>

namespace qccl {

struct Kernels;

} // namespace qccl

struct qcclCodec {
    qccl::HandleMark<0x4345444F434C4351> mark; // "QCLCODEC"
    qccl::Codec codec;
    const qccl::Kernels *kernels = nullptr; // of the codec used alone

    bool is_intact() const { return mark.is_intact(); }
};

namespace qccl {

// Refuses NULL and what is no codec.
Done check_handle(qcclCodec_t handle);

} // namespace qccl
