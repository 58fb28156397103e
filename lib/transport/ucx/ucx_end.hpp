// One rank's end of the network over UCX with its peers, which is the state that the files of the
// UCX module share, and how two ends connect before the first message. One thread at a time may use
// an end; nothing here blocks.
//
// Before its first active message, UCX asks the peer for the id of the peer's endpoint, and UCX
// 1.13 answers over a connection that it has yet to make. If the asking process is gone before that
// connection is made, an assertion ends the answering process. (Later versions have no such
// assertion; Debian builds with assertions.) So both ends make their connections before UCX asks
// for anything: each end sends its wireup message to the other with a tagged message, for which UCX
// asks for nothing. Then the end with the lower number alone makes UCX ask, by a confirmation (an
// active message), while nothing else is under way. With that both ends have settled.
#pragma once

#include "transport/network_module.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <ucp/api/ucp.h>

namespace qccl {

// ---- Ends and peers

// A post or a pull that was not done at once.
struct UcxOperation {
    NetworkEnd *end;
    uint64_t token;
    std::byte head[most_network_head_bytes];
    size_t head_bytes = 0;
    ucp_dt_iov_t parts[most_network_parts];
    size_t part_count = 0;
    bool is_eager = false;
};

struct WireupMessage {
    uint64_t secret; // secret of the end that the message goes to
    uint32_t number; // number of the end that it comes from
};

struct NetworkEnd {
    NetworkEvents events{};
    uint32_t own = 0;    // this end's number
    uint64_t secret = 0; // known only to ends that have this end's address
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    int descriptor = -1;

    struct UcxPeer {
        NetworkEnd *end = nullptr;
        uint32_t number = 0;
        uint64_t secret = 0;
        std::vector<std::byte> address;
        ucp_ep_h endpoint = nullptr;
        bool is_wireup_sent = false;     // the wireup message to the peer has gone
        bool is_wireup_received = false; // the peer's wireup message has come
        bool is_settled = false;         // both ends know each other; see send_wireup
        WireupMessage confirmation{};    // must stay unchanged while it is sent
        bool is_lost = false;
        bool takes_copies = false; // large eager messages: its processor copies all data anyway
        std::deque<std::unique_ptr<UcxOperation>> waiting; // for the peer to settle
    };
    std::vector<UcxPeer> peers;
    RendezvousHandle *arriving = nullptr; // the message that on_message reports; null: discarded

    uint32_t wireup_from = 0; // number in the wireup message that is being received
    bool has_wireup = false;

    // Events that `progress` reports after UCX has returned. UCX calls back from inside any
    // function that ends a request, also from one that starts a request on a broken connection.
    struct Pulled {
        uint64_t token;
        bool whole;
    };
    struct Lost {
        uint32_t peer;
        ucs_status_t why;
    };
    std::vector<uint64_t> sent;
    std::vector<Pulled> pulled;
    std::vector<Lost> lost;
    std::vector<uint32_t> settled; // peers whose waiting messages have yet to go

    bool has_news() const {
        return !sent.empty() || !pulled.empty() || !lost.empty() || !settled.empty() || has_wireup;
    }

    NetworkEnd() = default;
    NetworkEnd(const NetworkEnd &) = delete;
    ~NetworkEnd();
};

// Sets the callback for whole active messages with this id; the callback's argument is the end.
inline ucs_status_t set_message_handler(NetworkEnd &end, unsigned id,
                                        ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = callback;
    handler.arg = &end;
    return ucp_worker_set_am_recv_handler(end.worker, &handler);
}

// Marks the peer as lost and gives up the messages that wait for it.
inline void lose(NetworkEnd::UcxPeer &peer, ucs_status_t why) {
    if (peer.is_lost) return;
    peer.is_lost = true;
    for (const auto &operation : peer.waiting) peer.end->sent.push_back(operation->token);
    peer.waiting.clear();
    peer.end->lost.push_back({peer.number, why});
}

// ---- Wire-up of two ends

// Makes the connection to a peer and sends the wireup message; once for each peer. A peer to
// which no wireup message can be sent is lost.
void send_wireup(NetworkEnd::UcxPeer &peer);

// Receives wireup messages and confirmations from now on; once for each end. Returns UCX's status.
ucs_status_t set_wireup_handlers(NetworkEnd &end);

// Answers the wireup messages that have come. The caller calls this after each progress of UCX.
void answer_wireups(NetworkEnd &end);

} // namespace qccl
