// The C functions of prepared calls: collectives whose arguments are checked and whose program is
// found once, and which then start any number of times. A prepared call keeps its program, but not
// its communicator: starting it after the communicator has ended is refused.
#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "api/group/call_group.hpp"
#include "api/group/layers.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"

#include <atomic>
#include <cinttypes>
#include <memory>
#include <optional>

namespace qccl {

namespace {

struct PreparedCall {
    qcclComm_t comm;
    qcclStream_t stream; // a handle, because the stream may end before the prepared call
    Collective collective;
    ProgramRef program;
    Request request;
    std::shared_ptr<CallGroup> layers; // of a call with layers, in the place of the two above
};

// A start takes no reference to the call, because counting references costs a tenth of a small
// call. It enters the communicator, whose handle the record keeps, and a call ends only inside its
// communicator, or after the communicator has ended.
struct PreparedRecord : HandleRecord<const PreparedCall> {
    void open(uint32_t) { comm.store(object->comm, std::memory_order_relaxed); }

    std::atomic<qcclComm_t> comm{nullptr};
};
using PreparedHandles = HandleTable<PreparedRecord>;

constinit PreparedHandles prepared_handles{{.tag = 0x51C5,
                                            .argument = "coll",
                                            .unknown = "no qcclCollCreate made",
                                            .ended = "freed",
                                            .is_inherited = false}};

Error unknown_collective(qcclCollective_t number) {
    return invalid_argument("collective is %" PRId32 ", which is none of the qcclColl values",
                            number);
}

std::optional<Collective> v_form_of(qcclCollective_t number) {
    for (const VForm &form : v_forms)
        if (static_cast<qcclCollective_t>(form.collective) == number) return form.collective;
    return std::nullopt;
}

// Messages run on channels, so only collectives of all ranks can be prepared.
std::optional<Collective> plain_collective(qcclCollective_t number) {
    for (const Collective known : scheduled_collectives)
        if (static_cast<qcclCollective_t>(known) == number && known != Collective::send)
            return known;
    return std::nullopt;
}

Result<Collective> take_plain(qcclCollective_t number) {
    if (const auto known = plain_collective(number)) return *known;
    const auto v_form = v_form_of(number);
    if (!v_form) return unknown_collective(number);
    return invalid_argument("collective is %s, which qcclCollCreateV prepares", name(*v_form));
}

Result<Collective> take_v_form(qcclCollective_t number) {
    if (const auto v_form = v_form_of(number)) return *v_form;
    const auto known = plain_collective(number);
    if (!known) return unknown_collective(number);
    return invalid_argument("collective is %s, which is no v-form: qcclCollCreate prepares it",
                            name(*known));
}

// Reads the count of a buffer that has one part. Where all ranks know all counts, it is among them.
Result<GivenParts> one_part(Collective v_form, const GivenParts &given) {
    if (are_counts_common(v_form)) return GivenParts{};
    if (!given.counts) return invalid_argument("%s is NULL", given.counts_name);
    return GivenParts{.count_name = given.counts_name, .count = given.counts[0]};
}

Result<PartArguments> take_v_parts(Collective v_form, const GivenParts &send,
                                   const GivenParts &recv) {
    PartArguments parts{send, recv};
    if (row_of(v_form).gathers) {
        QCCL_TRY(parts.send, one_part(v_form, send));
    }
    if (row_of(v_form).scatters) {
        QCCL_TRY(parts.recv, one_part(v_form, recv));
    }
    return parts;
}

Done prepare(Comm &comm, qcclComm_t handle, const CallArguments &given, qcclColl_t *coll_out) {
    if (!coll_out) return invalid_argument("coll_out is NULL");
    QCCL_TRY(take_call_stream(comm, given.stream));
    PreparedCall call{handle, given.stream, given.collective, {}, {}, nullptr};
    if (has_layers(given)) {
        call.layers = std::make_shared<CallGroup>();
        QCCL_TRY(call.layers->add_inside(comm, handle, given));
    } else {
        QCCL_TRY(ReadyCall ready, make_ready(comm, given));
        call.program = std::move(ready.program);
        call.request = std::move(ready.request);
    }
    QCCL_TRY(void *const made,
             prepared_handles.add(std::make_shared<const PreparedCall>(std::move(call))));
    *coll_out = static_cast<qcclColl_t>(made);
    return {};
}

Done start(Comm &comm, const PreparedCall &call) {
    if (call.layers) [[unlikely]]
        return call.layers->run_inside();
    return run_or_abandon(comm, call.collective, [&]() -> Done {
        const bool is_of_host = !comm.parts().device.gpu;
        if (blocks(call.stream) && is_of_host) return comm.run(call.program, call.request);
        QCCL_TRY(const CallStream stream, take_call_stream(comm, call.stream));
        return comm.run(call.program, call.request, stream);
    });
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCollCreate(qcclColl_t *coll_out, qcclCollective_t collective, const void *send,
                            void *recv, size_t count, qcclDataType_t type, qcclRedOp_t op, int root,
                            qcclComm_t comm, qcclStream_t stream, const qcclCollConfig_t *config) {
    return inside(comm, [&](Comm &entered) -> Done {
        QCCL_TRY(const Collective known, take_plain(collective));
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

qcclResult_t qcclCollCreateV(qcclColl_t *coll_out, qcclCollective_t collective, const void *send,
                             const size_t send_counts[], const size_t send_displs[], void *recv,
                             const size_t recv_counts[], const size_t recv_displs[],
                             qcclDataType_t type, qcclRedOp_t op, int root, qcclComm_t comm,
                             qcclStream_t stream, const qcclCollConfig_t *config) {
    return inside(comm, [&](Comm &entered) -> Done {
        QCCL_TRY(const Collective known, take_v_form(collective));
        QCCL_TRY(const PartArguments parts, take_v_parts(known,
                                                         {.counts_name = "send_counts",
                                                          .displs_name = "send_displs",
                                                          .counts = send_counts,
                                                          .displs = send_displs},
                                                         {.counts_name = "recv_counts",
                                                          .displs_name = "recv_displs",
                                                          .counts = recv_counts,
                                                          .displs = recv_displs}));
        return prepare(entered, comm,
                       {.collective = known,
                        .send = send,
                        .recv = recv,
                        .type = type,
                        .op = op,
                        .root = root,
                        .stream = stream,
                        .config = config,
                        .parts = &parts},
                       coll_out);
    });
}
QCCL_TWIN(qcclCollCreateV);

qcclResult_t qcclCollStart(qcclColl_t coll) {
    const HandleId id = HandleId::of(coll);
    const PreparedRecord *const record = prepared_handles.find(id);
    if (!record || !record->life.is_alive(id.generation)) [[unlikely]]
        return guarded([=] { return outcome(prepared_handles.refer(coll)); });
    return inside(record->comm.load(std::memory_order_relaxed), [&](Comm &comm) -> Done {
        if (!record->life.is_alive(id.generation)) [[unlikely]]
            return outcome(prepared_handles.refer(coll));
        return start(comm, *record->object);
    });
}
QCCL_TWIN(qcclCollStart);

qcclResult_t qcclCollFree(qcclColl_t coll) {
    return guarded([=]() -> Done {
        if (!coll) return {};
        QCCL_TRY(auto call, prepared_handles.refer(coll));
        const auto comm = take_comm(call->comm);
        if (!comm) return call.end();
        EntryGuard &guard = comm->record().entry_guard;
        const auto answer = guard.enter(comm->generation());
        if (answer == EntryGuard::Answer::closed) return call.end();
        if (answer != EntryGuard::Answer::inside) return refuse_entry(comm->record(), answer);
        const Done done = call.end();
        guard.leave();
        return done;
    });
}
QCCL_TWIN(qcclCollFree);
