// What a qcclCodec_t names. Never changes after creation, so that any thread and any communicator
// may use it, and a forked child too.
#pragma once

#include "api/handle_table.hpp"
#include "base/result.hpp"
#include "codec/codec.hpp"

#include <qccl/qccl.h>

namespace qccl {

struct Kernels;

struct NamedCodec {
    Codec codec;
    const Kernels *kernels = nullptr; // of the codec used alone
};
using CodecHandles = HandleTable<HandleRecord<const NamedCodec>>;
using CodecRef = CodecHandles::Reference;

// Refuses NULL, what is no codec, and one that has been destroyed.
Result<CodecRef> take_codec(qcclCodec_t handle);
// Whether take_codec would.
bool is_codec(qcclCodec_t handle);

} // namespace qccl
