// The C functions of the collectives. One thread at a time may be inside a communicator. Without a
// stream the functions block until the call is done.
#include "api/group/call_group.hpp"
#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "api/group/layers.hpp"
#include "comm/boundary.hpp"

namespace qccl {

// Runs the layers as a group of their calls.
static Done run_layers(Comm &comm, qcclComm_t handle, const CallArguments &given) {
    CallGroup layers;
    QCCL_TRY(run_or_abandon(comm, given.collective,
                            [&] { return layers.add_inside(comm, handle, given); }));
    return layers.run_inside();
}

static qcclResult_t collective(qcclComm_t handle, const CallArguments &given) noexcept {
    // Within a group the call is only kept.
    if (CallGroup *const group = CallGroup::current()) [[unlikely]]
        return guarded([&] { return group->add(handle, given); });
    return inside(handle, [&](Comm &comm) -> Done {
        if (has_layers(given)) [[unlikely]]
            return run_layers(comm, handle, given);
        return run_or_abandon(comm, given.collective, [&] { return run_call(comm, given); });
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

qcclResult_t qcclAllGatherVConfig(const void *send, void *recv, const size_t counts[],
                                  const size_t displs[], qcclDataType_t type, qcclComm_t comm,
                                  qcclStream_t stream, const qcclCollConfig_t *config) {
    const PartArguments parts{.send = {}, .recv = {.counts = counts, .displs = displs}};
    return collective(comm, {.collective = all_gather_v,
                             .send = send,
                             .recv = recv,
                             .type = type,
                             .stream = stream,
                             .config = config,
                             .parts = &parts});
}
QCCL_TWIN(qcclAllGatherVConfig);

qcclResult_t qcclAllGatherV(const void *send, void *recv, const size_t counts[],
                            const size_t displs[], qcclDataType_t type, qcclComm_t comm,
                            qcclStream_t stream) {
    return pqcclAllGatherVConfig(send, recv, counts, displs, type, comm, stream, nullptr);
}
QCCL_TWIN(qcclAllGatherV);

qcclResult_t qcclReduceScatterVConfig(const void *send, void *recv, const size_t counts[],
                                      const size_t displs[], qcclDataType_t type, qcclRedOp_t op,
                                      qcclComm_t comm, qcclStream_t stream,
                                      const qcclCollConfig_t *config) {
    const PartArguments parts{.send = {.counts = counts, .displs = displs}, .recv = {}};
    return collective(comm, {.collective = reduce_scatter_v,
                             .send = send,
                             .recv = recv,
                             .type = type,
                             .op = op,
                             .stream = stream,
                             .config = config,
                             .parts = &parts});
}
QCCL_TWIN(qcclReduceScatterVConfig);

qcclResult_t qcclReduceScatterV(const void *send, void *recv, const size_t counts[],
                                const size_t displs[], qcclDataType_t type, qcclRedOp_t op,
                                qcclComm_t comm, qcclStream_t stream) {
    return pqcclReduceScatterVConfig(send, recv, counts, displs, type, op, comm, stream, nullptr);
}
QCCL_TWIN(qcclReduceScatterV);

qcclResult_t qcclGatherVConfig(const void *send, size_t send_count, void *recv,
                               const size_t counts[], const size_t displs[], qcclDataType_t type,
                               int root, qcclComm_t comm, qcclStream_t stream,
                               const qcclCollConfig_t *config) {
    const PartArguments parts{.send = {.count_name = "send_count", .count = send_count},
                              .recv = {.counts = counts, .displs = displs}};
    return collective(comm, {.collective = gather_v,
                             .send = send,
                             .recv = recv,
                             .type = type,
                             .root = root,
                             .stream = stream,
                             .config = config,
                             .parts = &parts});
}
QCCL_TWIN(qcclGatherVConfig);

qcclResult_t qcclGatherV(const void *send, size_t send_count, void *recv, const size_t counts[],
                         const size_t displs[], qcclDataType_t type, int root, qcclComm_t comm,
                         qcclStream_t stream) {
    return pqcclGatherVConfig(send, send_count, recv, counts, displs, type, root, comm, stream,
                              nullptr);
}
QCCL_TWIN(qcclGatherV);

qcclResult_t qcclScatterVConfig(const void *send, const size_t counts[], const size_t displs[],
                                void *recv, size_t recv_count, qcclDataType_t type, int root,
                                qcclComm_t comm, qcclStream_t stream,
                                const qcclCollConfig_t *config) {
    const PartArguments parts{.send = {.counts = counts, .displs = displs},
                              .recv = {.count_name = "recv_count", .count = recv_count}};
    return collective(comm, {.collective = scatter_v,
                             .send = send,
                             .recv = recv,
                             .type = type,
                             .root = root,
                             .stream = stream,
                             .config = config,
                             .parts = &parts});
}
QCCL_TWIN(qcclScatterVConfig);

qcclResult_t qcclScatterV(const void *send, const size_t counts[], const size_t displs[],
                          void *recv, size_t recv_count, qcclDataType_t type, int root,
                          qcclComm_t comm, qcclStream_t stream) {
    return pqcclScatterVConfig(send, counts, displs, recv, recv_count, type, root, comm, stream,
                               nullptr);
}
QCCL_TWIN(qcclScatterV);

qcclResult_t qcclAllToAllVConfig(const void *send, const size_t send_counts[],
                                 const size_t send_displs[], void *recv, const size_t recv_counts[],
                                 const size_t recv_displs[], qcclDataType_t type, qcclComm_t comm,
                                 qcclStream_t stream, const qcclCollConfig_t *config) {
    const PartArguments parts{.send = {.counts_name = "send_counts",
                                       .displs_name = "send_displs",
                                       .counts = send_counts,
                                       .displs = send_displs},
                              .recv = {.counts_name = "recv_counts",
                                       .displs_name = "recv_displs",
                                       .counts = recv_counts,
                                       .displs = recv_displs}};
    return collective(comm, {.collective = all_to_all_v,
                             .send = send,
                             .recv = recv,
                             .type = type,
                             .stream = stream,
                             .config = config,
                             .parts = &parts});
}
QCCL_TWIN(qcclAllToAllVConfig);

qcclResult_t qcclAllToAllV(const void *send, const size_t send_counts[], const size_t send_displs[],
                           void *recv, const size_t recv_counts[], const size_t recv_displs[],
                           qcclDataType_t type, qcclComm_t comm, qcclStream_t stream) {
    return pqcclAllToAllVConfig(send, send_counts, send_displs, recv, recv_counts, recv_displs,
                                type, comm, stream, nullptr);
}
QCCL_TWIN(qcclAllToAllV);

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
