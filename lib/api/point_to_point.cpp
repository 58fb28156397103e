// The C functions that send and receive. They run on the channel of the two ranks; an error of the
// channel that is no refusal fails the communicator.
#include "api/group/call_group.hpp"
#include "api/call/entry.hpp"
#include "api/group/group_messages.hpp"
#include "api/call/message_call.hpp"
#include "comm/boundary.hpp"
#include "comm/streams.hpp"

#include <optional>

namespace qccl {

namespace {

// Within a group the call is only kept.
qcclResult_t move_or_keep(qcclComm_t handle, const MessageArguments &given) noexcept {
    if (CallGroup *const group = CallGroup::current())
        return guarded([&] { return group->add(handle, given); });
    return inside(handle, [&](Comm &comm) -> Done {
        return exception_boundary([&] { return move_message(comm, given); });
    });
}

// ---- Both at once

// Sends if that takes no wait, and returns whether it has. Then the rank may wait for what it
// receives.
Result<bool> send_at_once(const PairChannel &channel, const MessageArguments &to) {
    if (!blocks(to.stream)) return false;
    QCCL_TRY(const ReadyCall ready, find_ready(*channel.comm, arguments_of(channel, to)));
    if (!channel.comm->can_run_at_once(*ready.program)) return false;
    QCCL_TRY(channel.comm->run(ready.program, ready.request));
    return true;
}

// As a group of both messages.
Done exchange_in_group(Comm &comm, const MessageArguments &to, const MessageArguments &from) {
    Done first;
    GroupMessages messages([&first](size_t, const Done &done) {
        if (!done && first) first = done;
    });
    QCCL_TRY(settle_message(comm, to, messages.add(0, comm, to)));
    QCCL_TRY(settle_message(comm, from, messages.add(1, comm, from)));
    messages.begin(false);
    messages.let_streams_wait();
    messages.finish();
    return first;
}

bool are_apart(const RepeatedCall &sends, const RepeatedCall &receives) {
    const Buffer send{"send", sends.send, sends.before.extents.send_bytes};
    const Buffer recv{"recv", receives.recv, receives.before.extents.recv_bytes};
    return are_apart(send, recv);
}

// Returns nothing, and has done nothing, unless both messages repeat earlier ones and sending takes
// no wait.
std::optional<Done> exchange_again(Comm &comm, const MessageArguments &to,
                                   const MessageArguments &from) {
    if (!blocks(to.stream) || comm.parts().device.gpu) return std::nullopt;
    const PairChannel *const outgoing = find_channel(comm, to);
    const PairChannel *const incoming = find_channel(comm, from);
    if (!outgoing || !incoming) return std::nullopt;
    const auto sends = find_repeated(*outgoing->comm, arguments_of(*outgoing, to));
    const auto receives = find_repeated(*incoming->comm, arguments_of(*incoming, from));
    if (!sends || !receives || !are_apart(*sends, *receives) || !sends->can_run_at_once())
        return std::nullopt;
    const Done sent = exception_boundary([&] { return sends->run(); });
    if (!sent) return settle_message(comm, to, sent);
    return settle_message(comm, from, exception_boundary([&] { return receives->run(); }));
}

Done exchange(Comm &comm, const MessageArguments &to, const MessageArguments &from) {
    QCCL_TRY(check_message_of_group(comm, to));
    QCCL_TRY(check_message_of_group(comm, from));
    // Ranks make their channels in the order of their peers, so that none wait in a circle.
    const bool is_up = to.peer <= from.peer;
    QCCL_TRY(const PairChannel *const lower, open_channel(comm, is_up ? to : from));
    QCCL_TRY(const PairChannel *const upper, open_channel(comm, is_up ? from : to));
    const PairChannel &outgoing = is_up ? *lower : *upper, &incoming = is_up ? *upper : *lower;
    const auto has_sent = send_at_once(outgoing, to);
    QCCL_TRY(settle_message(comm, to, outcome(has_sent)));
    if (!*has_sent) return exchange_in_group(comm, to, from);
    return settle_message(comm, from, run_call(*incoming.comm, arguments_of(incoming, from)));
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclSendConfig(const void *send, size_t count, qcclDataType_t type, int peer,
                            qcclComm_t comm, qcclStream_t stream, const qcclCollConfig_t *config) {
    return move_or_keep(comm, {.buffer = {"send", send, 0},
                               .count = count,
                               .peer = peer,
                               .sends = true,
                               .type = type,
                               .stream = stream,
                               .config = config});
}
QCCL_TWIN(qcclSendConfig);

qcclResult_t qcclSend(const void *send, size_t count, qcclDataType_t type, int peer,
                      qcclComm_t comm, qcclStream_t stream) {
    return pqcclSendConfig(send, count, type, peer, comm, stream, nullptr);
}
QCCL_TWIN(qcclSend);

qcclResult_t qcclRecvConfig(void *recv, size_t count, qcclDataType_t type, int peer,
                            qcclComm_t comm, qcclStream_t stream, const qcclCollConfig_t *config) {
    return move_or_keep(comm, {.buffer = {"recv", recv, 0},
                               .count = count,
                               .peer = peer,
                               .type = type,
                               .stream = stream,
                               .config = config});
}
QCCL_TWIN(qcclRecvConfig);

qcclResult_t qcclRecv(void *recv, size_t count, qcclDataType_t type, int peer, qcclComm_t comm,
                      qcclStream_t stream) {
    return pqcclRecvConfig(recv, count, type, peer, comm, stream, nullptr);
}
QCCL_TWIN(qcclRecv);

qcclResult_t qcclSendRecvConfig(const void *send, size_t send_count, int dest, void *recv,
                                size_t recv_count, int source, qcclDataType_t type, qcclComm_t comm,
                                qcclStream_t stream, const qcclCollConfig_t *config) {
    const MessageArguments to{.peer_name = "dest",
                              .count_name = "send_count",
                              .buffer = {"send", send, 0},
                              .count = send_count,
                              .peer = dest,
                              .sends = true,
                              .type = type,
                              .stream = stream,
                              .config = config};
    const MessageArguments from{.peer_name = "source",
                                .count_name = "recv_count",
                                .buffer = {"recv", recv, 0},
                                .count = recv_count,
                                .peer = source,
                                .type = type,
                                .stream = stream,
                                .config = config};
    if (CallGroup *const group = CallGroup::current())
        return guarded([&] { return group->add(comm, to, from); });
    return inside(comm, [&](Comm &entered) -> Done {
        return exception_boundary([&]() -> Done {
            if (const auto done = exchange_again(entered, to, from)) return *done;
            QCCL_TRY(const auto copy_within, check_both(entered, to, from));
            return copy_within ? copy_within() : exchange(entered, to, from);
        });
    });
}
QCCL_TWIN(qcclSendRecvConfig);

qcclResult_t qcclSendRecv(const void *send, size_t send_count, int dest, void *recv,
                          size_t recv_count, int source, qcclDataType_t type, qcclComm_t comm,
                          qcclStream_t stream) {
    return pqcclSendRecvConfig(send, send_count, dest, recv, recv_count, source, type, comm, stream,
                               nullptr);
}
QCCL_TWIN(qcclSendRecv);
