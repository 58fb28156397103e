// The C functions of prepared calls: collectives whose arguments are checked and whose program is
// found once, and which then start any number of times. A prepared call keeps its program, but not
// its communicator: starting it after the communicator has ended is refused.
#include "api/collective_call.hpp"
#include "api/entry.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"

#include <cinttypes>
#include <memory>

namespace qccl {

namespace {

struct PreparedCall {
    qcclComm_t comm;
    qcclStream_t stream; // a handle, because the stream may end before the prepared call
    Collective collective;
    ProgramRef program;
    Request request;
};

using PreparedHandles = HandleTable<HandleRecord<const PreparedCall>>;

constinit PreparedHandles prepared_handles{{.tag = 0x51C5,
                                            .argument = "coll",
                                            .unknown = "no qcclCollCreate made",
                                            .ended = "freed",
                                            .is_inherited = false}};

// Messages run on channels, so only collectives of all ranks can be prepared.
Result<Collective> take_collective(qcclCollective_t number) {
    for (const Collective known : scheduled_collectives)
        if (static_cast<qcclCollective_t>(known) == number && known != Collective::send)
            return known;
    return invalid_argument("collective is %" PRId32 ", which is none of the qcclColl values",
                            number);
}

Done prepare(Comm &comm, qcclComm_t handle, const CallArguments &given, qcclColl_t *coll_out) {
    if (!coll_out) return invalid_argument("coll_out is NULL");
    QCCL_TRY(take_call_stream(comm, given.stream));
    QCCL_TRY(const ReadyCall ready, make_ready(comm, given));
    QCCL_TRY(void *const made,
             prepared_handles.add(std::make_shared<const PreparedCall>(PreparedCall{
                 handle, given.stream, given.collective, ready.program, ready.request})));
    *coll_out = static_cast<qcclColl_t>(made);
    return {};
}

Done start(Comm &comm, const PreparedCall &call) {
    const Done done = exception_boundary([&]() -> Done {
        QCCL_TRY(const CallStream stream, take_call_stream(comm, call.stream));
        return comm.run(call.program, call.request, stream);
    });
    if (!done && !is_refusal(done.error())) return comm.abandon(call.collective, done.error());
    return done;
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCollCreate(qcclColl_t *coll_out, qcclCollective_t collective, const void *send,
                            void *recv, size_t count, qcclDataType_t type, qcclRedOp_t op, int root,
                            qcclComm_t comm, qcclStream_t stream, const qcclCollConfig_t *config) {
    return inside(comm, [&](Comm &entered) -> Done {
        QCCL_TRY(const Collective known, take_collective(collective));
        return prepare(entered, comm,
                       {.collective = known,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op,
                        .root = root,
                        .stream = stream,
                        .config = config},
                       coll_out);
    });
}
QCCL_TWIN(qcclCollCreate);

qcclResult_t qcclCollStart(qcclColl_t coll) {
    const auto call = prepared_handles.refer(coll);
    if (!call) return report(call.error());
    return inside((*call)->comm, [&](Comm &comm) { return start(comm, **call); });
}
QCCL_TWIN(qcclCollStart);

qcclResult_t qcclCollFree(qcclColl_t coll) {
    return guarded([=]() -> Done {
        if (!coll) return {};
        QCCL_TRY(auto call, prepared_handles.refer(coll));
        return call.end();
    });
}
QCCL_TWIN(qcclCollFree);
