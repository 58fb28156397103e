// The C functions of the collectives. One thread at a time may be inside a communicator. Without a
// stream the functions block until the call is done.
#include "api/call_group.hpp"
#include "api/collective_call.hpp"
#include "api/entry.hpp"
#include "comm/boundary.hpp"

namespace qccl {

static qcclResult_t collective(qcclComm_t handle, const CallArguments &given) noexcept {
    // Within a group the call is only kept.
    if (CallGroup *const group = CallGroup::current()) [[unlikely]]
        return guarded([&] { return group->add(handle, given); });
    return inside(handle, [&](Comm &comm) -> Done {
        const Done done = exception_boundary([&] { return run_call(comm, given); });
        if (!done && !is_refusal(done.error())) return comm.abandon(given.collective, done.error());
        return done;
    });
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclAllReduceConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                                 qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream,
                                 const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::all_reduce,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .op = op,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclAllReduceConfig);

qcclResult_t qcclAllReduce(const void *send, void *recv, size_t count, qcclDataType_t type,
                           qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream) {
    return pqcclAllReduceConfig(send, recv, count, type, op, comm, stream, nullptr);
}
QCCL_TWIN(qcclAllReduce);

qcclResult_t qcclReduceScatterConfig(const void *send, void *recv, size_t recv_count,
                                     qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                     qcclStream_t stream, const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::reduce_scatter,
                             .send = send,
                             .recv = recv,
                             .count_name = "recv_count",
                             .count = recv_count,
                             .type = type,
                             .op = op,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclReduceScatterConfig);

qcclResult_t qcclReduceScatter(const void *send, void *recv, size_t recv_count, qcclDataType_t type,
                               qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream) {
    return pqcclReduceScatterConfig(send, recv, recv_count, type, op, comm, stream, nullptr);
}
QCCL_TWIN(qcclReduceScatter);

qcclResult_t qcclAllGatherConfig(const void *send, void *recv, size_t send_count,
                                 qcclDataType_t type, qcclComm_t comm, qcclStream_t stream,
                                 const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::all_gather,
                             .send = send,
                             .recv = recv,
                             .count_name = "send_count",
                             .count = send_count,
                             .type = type,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclAllGatherConfig);

qcclResult_t qcclAllGather(const void *send, void *recv, size_t send_count, qcclDataType_t type,
                           qcclComm_t comm, qcclStream_t stream) {
    return pqcclAllGatherConfig(send, recv, send_count, type, comm, stream, nullptr);
}
QCCL_TWIN(qcclAllGather);

qcclResult_t qcclBroadcastConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                                 int root, qcclComm_t comm, qcclStream_t stream,
                                 const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::broadcast,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .root = root,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclBroadcastConfig);

qcclResult_t qcclBroadcast(const void *send, void *recv, size_t count, qcclDataType_t type,
                           int root, qcclComm_t comm, qcclStream_t stream) {
    return pqcclBroadcastConfig(send, recv, count, type, root, comm, stream, nullptr);
}
QCCL_TWIN(qcclBroadcast);

qcclResult_t qcclReduceConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                              qcclRedOp_t op, int root, qcclComm_t comm, qcclStream_t stream,
                              const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::reduce,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .op = op,
                             .root = root,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclReduceConfig);

qcclResult_t qcclReduce(const void *send, void *recv, size_t count, qcclDataType_t type,
                        qcclRedOp_t op, int root, qcclComm_t comm, qcclStream_t stream) {
    return pqcclReduceConfig(send, recv, count, type, op, root, comm, stream, nullptr);
}
QCCL_TWIN(qcclReduce);

qcclResult_t qcclGatherConfig(const void *send, void *recv, size_t send_count, qcclDataType_t type,
                              int root, qcclComm_t comm, qcclStream_t stream,
                              const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::gather,
                             .send = send,
                             .recv = recv,
                             .count_name = "send_count",
                             .count = send_count,
                             .type = type,
                             .root = root,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclGatherConfig);

qcclResult_t qcclGather(const void *send, void *recv, size_t send_count, qcclDataType_t type,
                        int root, qcclComm_t comm, qcclStream_t stream) {
    return pqcclGatherConfig(send, recv, send_count, type, root, comm, stream, nullptr);
}
QCCL_TWIN(qcclGather);

qcclResult_t qcclScatterConfig(const void *send, void *recv, size_t recv_count, qcclDataType_t type,
                               int root, qcclComm_t comm, qcclStream_t stream,
                               const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::scatter,
                             .send = send,
                             .recv = recv,
                             .count_name = "recv_count",
                             .count = recv_count,
                             .type = type,
                             .root = root,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclScatterConfig);

qcclResult_t qcclScatter(const void *send, void *recv, size_t recv_count, qcclDataType_t type,
                         int root, qcclComm_t comm, qcclStream_t stream) {
    return pqcclScatterConfig(send, recv, recv_count, type, root, comm, stream, nullptr);
}
QCCL_TWIN(qcclScatter);

qcclResult_t qcclAllToAllConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                                qcclComm_t comm, qcclStream_t stream,
                                const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::all_to_all,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclAllToAllConfig);

qcclResult_t qcclAllToAll(const void *send, void *recv, size_t count, qcclDataType_t type,
                          qcclComm_t comm, qcclStream_t stream) {
    return pqcclAllToAllConfig(send, recv, count, type, comm, stream, nullptr);
}
QCCL_TWIN(qcclAllToAll);

qcclResult_t qcclScanConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                            qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream,
                            const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::scan,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .op = op,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclScanConfig);

qcclResult_t qcclScan(const void *send, void *recv, size_t count, qcclDataType_t type,
                      qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream) {
    return pqcclScanConfig(send, recv, count, type, op, comm, stream, nullptr);
}
QCCL_TWIN(qcclScan);

qcclResult_t qcclExscanConfig(const void *send, void *recv, size_t count, qcclDataType_t type,
                              qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream,
                              const qcclCollConfig_t *config) {
    return collective(comm, {.collective = Collective::exscan,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .type = type,
                             .op = op,
                             .stream = stream,
                             .config = config});
}
QCCL_TWIN(qcclExscanConfig);

qcclResult_t qcclExscan(const void *send, void *recv, size_t count, qcclDataType_t type,
                        qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream) {
    return pqcclExscanConfig(send, recv, count, type, op, comm, stream, nullptr);
}
QCCL_TWIN(qcclExscan);

qcclResult_t qcclBarrierConfig(qcclComm_t comm, qcclStream_t stream,
                               const qcclCollConfig_t *config) {
    return collective(comm,
                      {.collective = Collective::barrier, .stream = stream, .config = config});
}
QCCL_TWIN(qcclBarrierConfig);

qcclResult_t qcclBarrier(qcclComm_t comm, qcclStream_t stream) {
    return pqcclBarrierConfig(comm, stream, nullptr);
}
QCCL_TWIN(qcclBarrier);
