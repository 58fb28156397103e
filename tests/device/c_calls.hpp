// The calls of the table of cases as a program in C makes them.
#pragma once

#include "tests/kit/qtest.hpp"
#include "tests/kit/slow_twin.hpp"

#include <qccl/qccl.h>

namespace qtest {

using namespace qccl;

inline qcclResult_t call_c(const TwinCall &call, const void *send, void *recv, qcclComm_t comm,
                           qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = static_cast<qcclDataType_t>(call.type);
    const auto op = static_cast<qcclRedOp_t>(call.op);
    switch (call.collective) {
    case Collective::all_reduce:
        return qcclAllReduceConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::reduce_scatter:
        return qcclReduceScatterConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::all_gather:
        return qcclAllGatherConfig(send, recv, call.count, type, comm, stream, config);
    case Collective::broadcast:
        return qcclBroadcastConfig(send, recv, call.count, type, static_cast<int>(call.root), comm,
                                   stream, config);
    default: return qcclBarrierConfig(comm, stream, config);
    }
}

// A codec handle that is destroyed with its owner.
class CodecHandle {
public:
    CodecHandle(Codec codec, uint64_t seed) {
        if (codec.rounding == Rounding::stochastic) codec.seed = seed;
        if (qcclCodecCreate(&codec_, spec(codec).c_str()) != qcclSuccess)
            throw Failure{spec(codec) + ": " + qcclGetLastError(nullptr)};
    }
    ~CodecHandle() { (void)qcclCodecDestroy(codec_); }
    CodecHandle(const CodecHandle &) = delete;
    qcclCodec_t get() const { return codec_; }

private:
    qcclCodec_t codec_ = nullptr;
};

} // namespace qtest
