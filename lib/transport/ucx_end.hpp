// One end of the network over UCX and its peers. Knows no order in which things happen.
#pragma once

#include "transport/network_module.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <ucp/api/ucp.h>

namespace qccl {

// What is posted or fetched and not done at once.
struct UcxOperation {
    NetworkEnd *end;
    uint64_t token;
    std::byte head[most_network_head_bytes];
    size_t head_bytes = 0;
    ucp_dt_iov_t parts[most_network_parts];
    size_t part_count = 0;
    bool is_welcome = false;
};

struct UcxPact {
    uint64_t secret; // of the one that it goes to
    uint32_t number; // of the one that it comes from
};

struct NetworkEnd {
    NetworkEvents events{};
    uint32_t own = 0;    // its number
    uint64_t secret = 0; // only who was given the address knows it
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    int descriptor = -1;

    struct Peer {
        NetworkEnd *end = nullptr;
        uint32_t number = 0;
        uint64_t secret = 0;
        std::vector<std::byte> address;
        ucp_ep_h endpoint = nullptr;
        bool is_greeted = false;  // and the greeting has gone
        bool has_greeted = false; // and the greeting has come
        bool is_settled = false;
        UcxPact pact{}; // lies still while it goes
        bool is_lost = false;
        bool takes_copies = false; // all that comes to it, its processor copies in any case
        std::deque<std::unique_ptr<UcxOperation>> waiting; // until it is settled
    };
    std::vector<Peer> peers;
    NetworkTicket *arriving = nullptr; // of the message that is being told of; null: discarded

    uint32_t greeter = 0; // the greeting that is being received
    bool hears_greeter = false;

    // What progress tells when UCX has returned. UCX calls back from inside whatever ends a
    // request, also from what makes one on a connection that is broken.
    struct Fetched {
        uint64_t token;
        bool whole;
    };
    struct Lost {
        uint32_t peer;
        ucs_status_t why;
    };
    std::vector<uint64_t> sent;
    std::vector<Fetched> fetched;
    std::vector<Lost> lost;
    std::vector<uint32_t> settled; // and what waited for it has yet to go

    bool has_news() const {
        return !sent.empty() || !fetched.empty() || !lost.empty() || !settled.empty() ||
               hears_greeter;
    }

    NetworkEnd() = default;
    NetworkEnd(const NetworkEnd &) = delete;
    ~NetworkEnd();
};

// Of whole active messages with this id; its argument is the end.
inline ucs_status_t hear_messages(NetworkEnd &end, unsigned id, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = callback;
    handler.arg = &end;
    return ucp_worker_set_am_recv_handler(end.worker, &handler);
}

// Gives up what waits for the peer.
inline void lose(NetworkEnd::Peer &peer, ucs_status_t why) {
    if (peer.is_lost) return;
    peer.is_lost = true;
    for (const auto &operation : peer.waiting) peer.end->sent.push_back(operation->token);
    peer.waiting.clear();
    peer.end->lost.push_back({peer.number, why});
}

} // namespace qccl
