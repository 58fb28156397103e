// The connection of this rank with one other rank, for messages: two QCCL communicators of these
// two ranks, one for each direction. A thread of the link sends what is queued, in order; another
// one always receives. A small message goes out on the program's thread if nothing is queued. So a
// send never waits behind a receive or a collective, and two ranks that both send first do not wait
// for each other.
//
// The Messenger owns the links. Any thread may call every function. None of them blocks but
// `close`; a small send waits until the peer's thread has room for it, for as long as its limit.
#pragma once

#include "core/communicator.hpp"
#include "messages/message_frame.hpp"
#include "messages/receive_board.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace qccl_torch {

class PeerLink {
public:
    struct Channels {
        std::unique_ptr<Communicator> outgoing, incoming;
        int own_rank = 0; // of both communicators
    };
    // Makes the communicators; runs on the sending thread. Gives up when the flag becomes true.
    using Connect = std::function<Channels(const std::atomic<bool> &is_given_up)>;

    PeerLink(int peer, ReceiveBoard &board) : peer_(peer), board_(board) {}
    PeerLink(const PeerLink &) = delete;
    PeerLink &operator=(const PeerLink &) = delete;
    ~PeerLink();

    // Starts the threads; what was queued before is sent as soon as the link is connected. If the
    // system refuses a thread, the link fails.
    void connect(Connect connect);
    bool is_connecting() const;

    // Queues a message. `data` stays as it is until `done` is called. If the peer has no room for a
    // small message within `limit`, the link fails.
    void send(const void *data, size_t bytes, int tag, Milliseconds limit, Completion done);
    // Gives a message that was unexpected to the receive that it fits.
    void deliver(UnexpectedMessage message, PostedReceive receive);
    // Ends the link, if it has not ended, with an error for all that waits for it.
    void fail(std::exception_ptr reason);

    // Queues the goodbye, so that several links can close at the same time.
    void start_closing();
    // Says goodbye when everything queued is sent, for as long as `patience`, and ends the link. A
    // link that is not connected sends nothing any more.
    void close(Milliseconds patience);
    // Ends what the link's threads do, and a running `close`.
    void abort();

private:
    struct Outgoing {
        MessageFrame frame{};
        const void *payload = nullptr;       // follows the frame, if it is not null
        std::optional<Milliseconds> limit{}; // none: until the peer takes the message, or the end
        Completion done{};
    };
    struct WaitingSend {
        const void *data = nullptr;
        size_t bytes = 0;
        Completion done;
    };

    void end_threads();
    void run_sender(const Connect &connect);
    void send_queued();
    void send_at_once(const Outgoing &item, std::unique_lock<std::mutex> &lock);
    void run_receiver();
    bool take_frame(const MessageFrame &frame); // false: the peer has left
    void take_eager(const MessageFrame &frame);
    void take_request(const MessageFrame &frame);
    void take_grant(uint64_t request);
    void take_refusal(const MessageFrame &frame);
    void take_payload(uint64_t request);
    void receive_in_place(PostedReceive &receive);
    void receive_aside(const MessageFrame &frame, std::optional<PostedReceive> receive);
    void finish_eager(PostedReceive &receive, const std::byte *data, size_t bytes);
    void answer_request(uint64_t request, size_t bytes, PostedReceive receive);
    void transmit(const Outgoing &item);
    void receive_bytes(void *buffer, size_t bytes);
    void queue(Outgoing item);
    void queue_goodbye();
    void give_credit(uint64_t bytes);
    void stop_sending(std::exception_ptr reason);
    std::exception_ptr explain(const std::exception &error) const;
    std::exception_ptr size_error(size_t sent, size_t expected) const;

    const int peer_;
    ReceiveBoard &board_;
    Channels channels_;
    std::thread sender_, receiver_;

    mutable std::mutex mutex_;
    std::condition_variable has_changed_;
    std::deque<Outgoing> outgoing_;
    std::map<uint64_t, WaitingSend> waiting_;   // requests of this rank
    std::map<uint64_t, PostedReceive> granted_; // requests of the peer
    uint64_t last_request_ = 0;
    uint64_t credit_ = eager_credit;
    uint64_t owed_credit_ = 0;
    bool is_connecting_ = false, is_connected_ = false;
    bool is_sending_ = false; // one thread at a time is inside the outgoing communicator
    bool has_queued_goodbye_ = false;
    bool has_sent_goodbye_ = false; // or never will
    bool has_stopped_receiving_ = false;
    std::exception_ptr failure_; // why no more is sent
    std::atomic<bool> is_given_up_{false};
};

} // namespace qccl_torch
