// The calls of the table of cases as a program in C makes them, and communicators of ranks that are
// threads.
#pragma once

#include "tests/kit/qtest.hpp"
#include "tests/kit/rank_threads.hpp"
#include "tests/kit/slow_twin.hpp"

#include "base/c_numbers.hpp"

#include <functional>
#include <vector>

#include <qccl/qccl.h>

namespace qtest {

using namespace qccl;

inline qcclResult_t call_c(const TwinCall &call, const void *send, void *recv, qcclComm_t comm,
                           qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = number_in_c(call.type);
    const auto op = number_in_c(call.op);
    const int root = static_cast<int>(call.root);
    switch (call.collective) {
    case Collective::all_reduce:
        return qcclAllReduceConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::reduce_scatter:
        return qcclReduceScatterConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::all_gather:
        return qcclAllGatherConfig(send, recv, call.count, type, comm, stream, config);
    case Collective::broadcast:
        return qcclBroadcastConfig(send, recv, call.count, type, root, comm, stream, config);
    case Collective::reduce:
        return qcclReduceConfig(send, recv, call.count, type, op, root, comm, stream, config);
    case Collective::gather:
        return qcclGatherConfig(send, recv, call.count, type, root, comm, stream, config);
    case Collective::scatter:
        return qcclScatterConfig(send, recv, call.count, type, root, comm, stream, config);
    case Collective::all_to_all:
        return qcclAllToAllConfig(send, recv, call.count, type, comm, stream, config);
    case Collective::scan:
        return qcclScanConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::exscan:
        return qcclExscanConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::send: {
        if (call.ranks == 1)
            return qcclBroadcastConfig(send, recv, call.count, type, 0, comm, stream, config);
        const int taker = (root + 1) % static_cast<int>(call.ranks);
        int rank = -1;
        (void)qcclCommUserRank(comm, &rank);
        if (rank == root)
            return qcclSendConfig(send, call.count, type, taker, comm, stream, config);
        if (rank != taker) return qcclSuccess;
        return qcclRecvConfig(recv, call.count, type, root, comm, stream, config);
    }
    default: return qcclBarrierConfig(comm, stream, config);
    }
}

// As on_each_thread. A rank that fails revokes its communicator, so that no other waits for it.
inline void on_each_rank(size_t ranks, const std::function<qcclComm_t(size_t rank)> &comm_of,
                         const RankFunction &function) {
    on_each_thread(ranks, [&](size_t rank) {
        try {
            function(rank);
        } catch (...) {
            (void)qcclCommRevoke(comm_of(rank));
            throw;
        }
    });
}

// The communicators of ranks that are threads, one for each device.
class Comms {
public:
    explicit Comms(const std::vector<const char *> &devices) : comms_(devices.size()) {
        if (qcclCommInitAll(comms_.data(), static_cast<int>(devices.size()), devices.data()) !=
            qcclSuccess)
            throw Failure{qcclGetLastError(nullptr)};
    }
    ~Comms() {
        for (const qcclComm_t comm : comms_) (void)qcclCommDestroy(comm);
    }
    Comms(const Comms &) = delete;

    size_t size() const { return comms_.size(); }
    qcclComm_t operator[](size_t rank) const { return comms_[rank]; }

    void on_each(const std::function<void(uint32_t rank, qcclComm_t)> &function) const {
        on_each_rank(
            comms_.size(), [&](size_t rank) { return comms_[rank]; },
            [&](size_t rank) { function(static_cast<uint32_t>(rank), comms_[rank]); });
    }

private:
    std::vector<qcclComm_t> comms_;
};

// A codec handle that is destroyed with its owner.
class CodecHandle {
public:
    CodecHandle(Codec codec, uint64_t seed) {
        if (codec.draws_noise()) codec.seed = seed;
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
