// Calls that move a few bytes in three ways, in each of which every rank needs every other: for
// tests of what happens around calls rather than in them.
#pragma once

#include "transport_ranks.hpp"

namespace qtest {

using namespace qccl;

// For the board.
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

inline Done send(Transport &transport, uint32_t peer, const Wire &wire) {
    for (;;) {
        QCCL_TRY(const bool sent, transport.send(peer, {}, wire, Transport::Sends::at_once));
        if (sent) return {};
        QCCL_TRY(transport.wait(peer));
    }
}

inline Result<Wire> receive(Transport &transport, uint32_t peer, MessageTag tag, const Room &room) {
    for (;;) {
        QCCL_TRY(const auto wire, transport.receive(peer, tag, room));
        if (wire) return *wire;
        QCCL_TRY(transport.wait(peer));
    }
}

inline Result<Wire> receive(Transport &transport, uint32_t peer) {
    return receive(transport, peer, {}, free_room(transport));
}

inline Result<Wire> free_wire(Transport &transport) {
    while (!transport.is_free(0)) QCCL_TRY(transport.wait(transport.rank()));
    return Wire{transport.outbox().data(), 8, transport.rank(), 0};
}

// Ways in which a call may go, the last without moving bytes. In each, every rank needs every
// other.
enum class Way { mail, line, ring, meeting };

inline Done by_mail(Transport &transport) {
    QCCL_TRY(const Wire mine, free_wire(transport));
    for (uint32_t i = 1; i < transport.size(); i++)
        QCCL_TRY(send(transport, (transport.rank() + i) % transport.size(), mine));
    for (uint32_t i = 1; i < transport.size(); i++) {
        QCCL_TRY(const Wire theirs, receive(transport, (transport.rank() + i) % transport.size()));
        transport.release(theirs);
    }
    return {};
}

inline Done by_line(Transport &transport) {
    QCCL_TRY(std::byte *const line, transport.line());
    std::memset(line, 1, 8);
    transport.publish(8);
    for (uint32_t peer = 0; peer < transport.size(); peer++) QCCL_TRY(transport.await_line(peer));
    return {};
}

// Rank 0's bytes go round once, and once more, so that everyone has heard of everyone.
inline Done by_ring(Transport &transport) {
    const uint32_t next = (transport.rank() + 1) % transport.size();
    const uint32_t previous = (transport.rank() + transport.size() - 1) % transport.size();
    for (int round = 0; round < 2; round++) {
        if (transport.rank() == 0) {
            QCCL_TRY(const Wire mine, free_wire(transport));
            QCCL_TRY(send(transport, next, mine));
        }
        QCCL_TRY(const Wire wire, receive(transport, previous));
        if (transport.rank() != 0) QCCL_TRY(send(transport, next, wire));
        transport.release(wire);
    }
    return {};
}

inline Done run(Transport &transport, const CallDescriptor &call, Way way,
                Clock::duration timeout = 30s) {
    QCCL_TRY(begin(transport, call, timeout));
    switch (way) {
    case Way::mail: QCCL_TRY(by_mail(transport)); break;
    case Way::line: QCCL_TRY(by_line(transport)); break;
    case Way::ring: QCCL_TRY(by_ring(transport)); break;
    case Way::meeting: QCCL_TRY(transport.meet()); break;
    }
    (void)transport.end(); // the failure of a later call, perhaps, which others are in already
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

// Behind it stands what all ranks did.
inline void check_late(const Error &error, int32_t rank, const std::string &sentence,
                       const std::string &state) {
    const std::string text = error.text;
    CHECK_EQ(text.substr(0, sentence.size() + 2), sentence + ": ");
    CHECK(text.find(state, sentence.size()) != std::string::npos);
    CHECK_EQ(error.rank, rank);
    CHECK(error.code == Code::timeout);
}

} // namespace qtest
