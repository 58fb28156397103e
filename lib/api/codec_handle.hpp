// What a qcclCodec_t points to. Never changes after creation, so that any thread and any
// communicator may use it.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"

#include <qccl/qccl.h>

namespace qccl {

struct Kernels;

} // namespace qccl

struct qcclCodec {
    static constexpr uint64_t intact = 0x4345444F434C4351; // "QCLCODEC"

    uint64_t magic = intact; // first, so that a pointer to something else is told apart
    qccl::Codec codec;
    const qccl::Kernels *kernels = nullptr; // of the codec used alone

    ~qcclCodec() { magic = 0; }
};

namespace qccl {

// Refuses NULL and what is no codec.
Done check_handle(qcclCodec_t handle);

} // namespace qccl
