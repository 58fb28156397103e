// What a qcclCodec_t refers to. The C functions of codecs and of collectives use it. It never
// changes after creation, so any thread, any communicator and a forked child may use it; nothing
// blocks.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "comm/handle_table.hpp"

#include <qccl/qccl.h>

namespace qccl {

struct Kernels;

struct NamedCodec {
    Codec codec;
    const Kernels *kernels = nullptr; // for use without a communicator
};
using CodecHandles = HandleTable<HandleRecord<const NamedCodec>>;
using CodecRef = CodecHandles::Reference;

// Refuses NULL and a value that is no codec (invalid_argument), and a destroyed codec
// (invalid_usage).
Result<CodecRef> take_codec(qcclCodec_t handle);
// Whether take_codec would succeed.
bool is_codec(qcclCodec_t handle);

} // namespace qccl
