// Makes calls that move a few bytes in one of three ways, or none, so that every rank needs every
// other. For tests of what happens around calls rather than in them.
#pragma once

#include "transport_ranks.hpp"

namespace qtest {

using namespace qccl;

// Times for Meeting::board.
inline uint64_t now_ticks() {
    return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
}
inline Clock::duration since_ticks(uint64_t ticks) {
    return Clock::duration(static_cast<int64_t>(now_ticks() - ticks));
}

inline CallDescriptor call_number(uint64_t number) {
    CallDescriptor call;
    call.call = number;
    call.count = 1000;
    call.collective = Collective::all_reduce;
    std::strcpy(call.codec, "none");
    std::strcpy(call.algorithm, "direct");
    return call;
}

inline Done begin(Transport &transport, const CallDescriptor &call,
                  std::chrono::nanoseconds timeout) {
    return transport.begin(call, call.numbers(), timeout, Transport::Publishes::at_once);
}

inline std::unique_ptr<Transport> create(const Rank &rank) {
    auto transport = rank.create();
    CHECK_OK(transport);
    return std::move(*transport);
}

inline Done send(Transport &transport, uint32_t peer, const MessageView &view) {
    for (const WaitScope waiting(transport);;) {
        QCCL_TRY(const bool sent, transport.send(peer, {}, view, Transport::Sends::at_once));
        if (sent) return {};
        QCCL_TRY(transport.wait(peer));
    }
}

inline Result<MessageView> receive(Transport &transport, uint32_t peer, MessageTag tag,
                                   const RecvBuffer &buffer) {
    for (const WaitScope waiting(transport);;) {
        QCCL_TRY(const auto view, transport.receive(peer, tag, buffer));
        if (view) return *view;
        QCCL_TRY(transport.wait(peer));
    }
}

inline Result<MessageView> receive(Transport &transport, uint32_t peer) {
    return receive(transport, peer, {}, free_buffer(transport));
}

inline Result<MessageView> free_view(Transport &transport) {
    const WaitScope waiting(transport);
    while (!transport.is_free(0)) QCCL_TRY(transport.wait(transport.rank()));
    return MessageView{transport.outbox().data(), 8, transport.rank(), 0};
}

// How a call runs: by messages, by eager slots, by messages round a ring, or by a barrier without
// bytes. In each, every rank needs every other.
enum class Way { mailbox, eager, ring, meeting };

inline Done by_mailbox(Transport &transport) {
    QCCL_TRY(const MessageView mine, free_view(transport));
    for (uint32_t i = 1; i < transport.size(); i++)
        QCCL_TRY(send(transport, (transport.rank() + i) % transport.size(), mine));
    for (uint32_t i = 1; i < transport.size(); i++) {
        QCCL_TRY(const MessageView theirs,
                 receive(transport, (transport.rank() + i) % transport.size()));
        transport.release(theirs);
    }
    return {};
}

inline Done by_eager(Transport &transport) {
    QCCL_TRY(std::byte *const slot, transport.eager_slot(8));
    std::memset(slot, 1, 8);
    transport.post_eager(8);
    for (uint32_t peer = 0; peer < transport.size(); peer++) QCCL_TRY(transport.await_eager(peer));
    return {};
}

// The bytes of rank 0 go round the ring twice, so that every rank has waited for every other.
inline Done by_ring(Transport &transport) {
    const uint32_t next = (transport.rank() + 1) % transport.size();
    const uint32_t previous = (transport.rank() + transport.size() - 1) % transport.size();
    for (int round = 0; round < 2; round++) {
        if (transport.rank() == 0) {
            QCCL_TRY(const MessageView mine, free_view(transport));
            QCCL_TRY(send(transport, next, mine));
        }
        QCCL_TRY(const MessageView view, receive(transport, previous));
        if (transport.rank() != 0) QCCL_TRY(send(transport, next, view));
        transport.release(view);
    }
    return {};
}

inline Done run(Transport &transport, const CallDescriptor &call, Way way,
                Clock::duration timeout = 30s) {
    QCCL_TRY(begin(transport, call, timeout));
    switch (way) {
    case Way::mailbox: QCCL_TRY(by_mailbox(transport)); break;
    case Way::eager: QCCL_TRY(by_eager(transport)); break;
    case Way::ring: QCCL_TRY(by_ring(transport)); break;
    case Way::meeting: QCCL_TRY(transport.await_all()); break;
    }
    (void)transport.end(); // may fail because of a later call that others are in already
    return {};
}

inline Error run_until_failure(Transport &transport, uint64_t first, Way way,
                               Clock::duration timeout = 30s) {
    for (uint64_t call = first;; call++)
        if (const Done done = run(transport, call_number(call), way, timeout); !done)
            return done.error();
}

inline void check_error(const Error &error, Code code, int32_t rank, const std::string &sentence) {
    CHECK_EQ(std::string(error.text), sentence);
    CHECK_EQ(error.rank, rank);
    CHECK(error.code == code);
}

// Behind the sentence the error says what all ranks did; `state` must be part of that.
inline void check_late(const Error &error, int32_t rank, const std::string &sentence,
                       const std::string &state) {
    const std::string text = error.text;
    CHECK_EQ(text.substr(0, sentence.size() + 2), sentence + ": ");
    CHECK(text.find(state, sentence.size()) != std::string::npos);
    CHECK_EQ(error.rank, rank);
    CHECK(error.code == Code::timeout);
}

} // namespace qtest
