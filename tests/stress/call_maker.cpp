// Calls the functions of the library for the calls of call_maker.hpp.
#include "call_maker.hpp"

namespace stress {

namespace {

constexpr int own_op_failed = 2;

// The program's own operations: on bytes, so that they serve all types.
template <bool in_order>
int combine(void *accumulator, const void *values, size_t count, qcclDataType_t type, void *fails) {
    int32_t row = 0;
    while (type_row(row).number != type) row++;
    auto *const into = static_cast<std::byte *>(accumulator);
    const auto *const from = static_cast<const std::byte *>(values);
    for (size_t i = 0; i < count * type_row(row).bytes; i++)
        into[i] = CallValues::combine_bytes(into[i], from[i], in_order);
    return fails == nullptr ? 0 : own_op_failed;
}

constexpr int32_t first_numbered = static_cast<int32_t>(Op::bit_and);
int32_t number_of(Op op) {
    const auto row = static_cast<int32_t>(op);
    return row < first_numbered ? row : qcclBitAnd + row - first_numbered;
}

qcclCollective_t collective_of(Kind kind) {
    switch (kind) {
    case Kind::all_reduce: return qcclCollAllReduce;
    case Kind::reduce_scatter: return qcclCollReduceScatter;
    case Kind::reduce: return qcclCollReduce;
    case Kind::scan: return qcclCollScan;
    case Kind::exscan: return qcclCollExscan;
    case Kind::all_gather: return qcclCollAllGather;
    case Kind::broadcast: return qcclCollBroadcast;
    case Kind::gather: return qcclCollGather;
    case Kind::scatter: return qcclCollScatter;
    case Kind::all_to_all: return qcclCollAllToAll;
    case Kind::all_gather_v: return qcclCollAllGatherV;
    case Kind::reduce_scatter_v: return qcclCollReduceScatterV;
    case Kind::gather_v: return qcclCollGatherV;
    case Kind::scatter_v: return qcclCollScatterV;
    case Kind::all_to_all_v: return qcclCollAllToAllV;
    default: return qcclCollBarrier;
    }
}

} // namespace

CallMaker::~CallMaker() {
    let_go();
    for (auto &by_failure : own_ops_)
        for (const qcclRedOp_t op : by_failure)
            if (op != 0) qcclRedOpDestroy(op);
}

void CallMaker::let_go() {
    for (const qcclCodec_t codec : codecs_) qcclCodecDestroy(codec);
    for (const qcclRedOp_t op : ops_) qcclRedOpDestroy(op);
    codecs_.clear();
    ops_.clear();
}

qcclResult_t CallMaker::take_op(const Call &call, const CallPlace &place) {
    if (call.op < Op::made) {
        op_ = number_of(call.op);
        return qcclSuccess;
    }
    if (call.op == Op::pre_mul_sum) {
        alignas(16) std::byte scalar[max_element_bytes];
        CallValues::write_scalar(place.rank, call.type, scalar);
        const qcclResult_t result = qcclRedOpCreatePreMulSum(
            &op_, scalar, type_row(call.type).number, qcclScalarHostImmediate, place.comm);
        if (result == qcclSuccess) ops_.push_back(op_);
        return result;
    }
    const bool in_order = call.op == Op::made_in_order;
    qcclRedOp_t &own = own_ops_[op_fails ? 1 : 0][in_order ? 1 : 0];
    qcclResult_t result = qcclSuccess;
    if (own == 0)
        result = qcclRedOpCreate(&own, in_order ? combine<true> : combine<false>, in_order ? 0 : 1,
                                 op_fails ? this : nullptr);
    op_ = own;
    return result;
}

qcclResult_t CallMaker::configure(const Call &call, const CallBuffers *buffers,
                                  const CallPlace &place, Random &local) {
    config_ = QCCL_COLL_CONFIG_INIT;
    config_.algorithm = call.algorithm;
    config_.tag = static_cast<uint64_t>(local.below(3)); // ranks may give different tags
    if (call.kind == Kind::message) config_.timeout = timeout_s;
    if (buffers != nullptr) config_.stride = buffers->stride();
    if (extra_stride > 0) config_.stride = extra_stride;
    if (call.reduces())
        if (const qcclResult_t result = take_op(call, place); result != qcclSuccess) return result;
    if (call.codec == nullptr) return qcclSuccess;
    const qcclResult_t result = qcclCodecCreate(&config_.codec, call.codec);
    if (result == qcclSuccess) codecs_.push_back(config_.codec);
    return result;
}

qcclResult_t CallMaker::reduce(const Call &call, const CallBuffers &buffers, void *recv,
                               const CallPlace &place) const {
    const void *const send = buffers.send();
    const int32_t type = type_row(call.type).number;
    switch (call.kind) {
    case Kind::all_reduce:
        return qcclAllReduceConfig(send, recv, call.count, type, op_, place.comm, place.stream,
                                   &config_);
    case Kind::reduce_scatter:
        return qcclReduceScatterConfig(send, recv, call.count, type, op_, place.comm, place.stream,
                                       &config_);
    case Kind::reduce_scatter_v:
        return qcclReduceScatterVConfig(send, recv, buffers.send_counts(), buffers.send_displs(),
                                        type, op_, place.comm, place.stream, &config_);
    case Kind::scan:
        return qcclScanConfig(send, recv, call.count, type, op_, place.comm, place.stream,
                              &config_);
    case Kind::exscan:
        return qcclExscanConfig(send, recv, call.count, type, op_, place.comm, place.stream,
                                &config_);
    default:
        return qcclReduceConfig(send, recv, call.count, type, op_, call.root, place.comm,
                                place.stream, &config_);
    }
}

qcclResult_t CallMaker::move_v(const Call &call, const CallBuffers &buffers, const void *send,
                               void *recv, const CallPlace &place) const {
    const int32_t type = type_row(call.type).number;
    switch (call.kind) {
    case Kind::all_gather_v:
        return qcclAllGatherVConfig(send, recv, buffers.recv_counts(), buffers.recv_displs(), type,
                                    place.comm, place.stream, &config_);
    case Kind::gather_v:
        return qcclGatherVConfig(send, buffers.send_counts()[0], recv, buffers.recv_counts(),
                                 buffers.recv_displs(), type, call.root, place.comm, place.stream,
                                 &config_);
    case Kind::scatter_v:
        return qcclScatterVConfig(send, buffers.send_counts(), buffers.send_displs(), recv,
                                  buffers.recv_counts()[0], type, call.root, place.comm,
                                  place.stream, &config_);
    default:
        return qcclAllToAllVConfig(send, buffers.send_counts(), buffers.send_displs(), recv,
                                   buffers.recv_counts(), buffers.recv_displs(), type, place.comm,
                                   place.stream, &config_);
    }
}

qcclResult_t CallMaker::move(const Call &call, const void *send, void *recv,
                             const CallPlace &place) const {
    const int32_t type = type_row(call.type).number;
    const int next = (place.rank + 1) % place.ranks;
    const int before = (place.rank + place.ranks - 1) % place.ranks;
    switch (call.kind) {
    case Kind::barrier: return qcclBarrierConfig(place.comm, place.stream, &config_);
    case Kind::messages:
        return qcclSendRecvConfig(send, call.count, next, recv, call.count, before, type,
                                  place.comm, place.stream, &config_);
    case Kind::message:
        return place.rank == call.root ? qcclSendConfig(send, call.count, type, call.dest,
                                                        place.comm, place.stream, &config_)
                                       : qcclRecvConfig(recv, call.count, type, call.root,
                                                        place.comm, place.stream, &config_);
    case Kind::all_gather:
        return qcclAllGatherConfig(send, recv, call.count, type, place.comm, place.stream,
                                   &config_);
    case Kind::all_to_all:
        return qcclAllToAllConfig(send, recv, call.count, type, place.comm, place.stream, &config_);
    case Kind::gather:
        return qcclGatherConfig(send, recv, call.count, type, call.root, place.comm, place.stream,
                                &config_);
    case Kind::scatter:
        return qcclScatterConfig(send, recv, call.count, type, call.root, place.comm, place.stream,
                                 &config_);
    default:
        return qcclBroadcastConfig(send, recv, call.count, type, call.root, place.comm,
                                   place.stream, &config_);
    }
}

qcclResult_t CallMaker::make(const Call &call, CallBuffers *buffers, const CallPlace &place,
                             Random &local) {
    if (const qcclResult_t result = configure(call, buffers, place, local); result != qcclSuccess)
        return result;
    if (buffers == nullptr) return move(call, nullptr, nullptr, place);
    // Ranks that read or write nothing may pass NULL.
    const bool is_root = !call.has_root() || place.rank == call.root;
    const bool passes_null = !is_root && local.below(2) == 0;
    const bool has_result = call.kind != Kind::reduce && !call.gathers();
    const bool reads = call.kind != Kind::broadcast && !call.scatters();
    const void *const send = passes_null && !reads ? nullptr : buffers->send();
    void *const recv = passes_null && !has_result ? nullptr : buffers->recv();
    if (call.reduces()) return reduce(call, *buffers, recv, place);
    return call.is_v_form() ? move_v(call, *buffers, send, recv, place)
                            : move(call, send, recv, place);
}

qcclResult_t CallMaker::prepare(qcclColl_t *prepared, const Call &call, CallBuffers *buffers,
                                const CallPlace &place, Random &local) {
    if (const qcclResult_t result = configure(call, buffers, place, local); result != qcclSuccess)
        return result;
    if (call.is_v_form())
        return qcclCollCreateV(
            prepared, collective_of(call.kind), buffers->send(), buffers->send_counts(),
            buffers->send_displs(), buffers->recv(), buffers->recv_counts(), buffers->recv_displs(),
            type_row(call.type).number, op_, call.root, place.comm, place.stream, &config_);
    return qcclCollCreate(
        prepared, collective_of(call.kind), buffers == nullptr ? nullptr : buffers->send(),
        buffers == nullptr ? nullptr : buffers->recv(), call.count, type_row(call.type).number, op_,
        call.root, place.comm, place.stream, &config_);
}

} // namespace stress
