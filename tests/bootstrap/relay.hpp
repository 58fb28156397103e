// A man in the middle between ranks and the rendezvous server, for tests: it forwards all bytes on
// a thread of its own and records them.
#pragma once

#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <atomic>
#include <cstring>

#include <poll.h>

namespace kit {

class Relay {
public:
    struct Conversation {
        Socket rank, server;
        std::string by_rank, by_server;
        bool is_over = false;
    };

    explicit Relay(const Endpoint &server) : server_(server) {
        here_ = *parse_address("127.0.0.1");
        SocketAddress address = to_socket_address(here_);
        listener_ = open(here_.family);
        CHECK(bind(listener_.get(), address.get(), address.bytes) == 0 &&
              listen(listener_.get(), 256) == 0 &&
              getsockname(listener_.get(), address.get(), &address.bytes) == 0);
        here_ = to_endpoint(address.get());
        thread_ = std::thread([this] {
            while (!is_over_) pass_on();
        });
    }
    ~Relay() { end(); }

    const Endpoint &endpoint() const { return here_; }
    // Ends the relay and returns all that was said, in the order in which the ranks connected.
    const std::vector<Conversation> &end() {
        is_over_ = true;
        if (thread_.joinable()) thread_.join();
        return conversations_;
    }

private:
    static Socket open(AddressFamily family) {
        auto made = make_socket(family);
        CHECK_OK(made);
        return std::move(*made);
    }

    void pass_on() {
        std::vector<pollfd> events{{listener_.get(), POLLIN, 0}};
        for (const Conversation &one : conversations_)
            for (const Socket *end : {&one.rank, &one.server})
                events.push_back({one.is_over ? -1 : end->get(), POLLIN, 0});
        poll(events.data(), events.size(), 20);
        for (size_t i = 0; i < conversations_.size(); i++) {
            Conversation &one = conversations_[i];
            const bool goes_on =
                (!events[1 + 2 * i].revents || carry(one.rank, one.server, one.by_rank)) &&
                (!events[2 + 2 * i].revents || carry(one.server, one.rank, one.by_server));
            if (goes_on || one.is_over) continue;
            one.is_over = true;
            one.rank = Socket();
            one.server = Socket();
        }
        if (events[0].revents) welcome();
    }
    void welcome() {
        Conversation one;
        one.rank = Socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        one.server = open(server_.family);
        const SocketAddress address = to_socket_address(server_);
        (void)connect(one.server.get(), address.get(), address.bytes);
        pollfd other{one.server.get(), POLLOUT, 0};
        poll(&other, 1, 1000);
        conversations_.push_back(std::move(one));
    }
    static bool carry(const Socket &from, const Socket &to, std::string &said) {
        char piece[4096];
        const ssize_t got = recv(from.get(), piece, sizeof piece, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) return true;
        if (got <= 0) return false;
        said.append(piece, static_cast<size_t>(got));
        for (ssize_t sent = 0; sent < got;) {
            const ssize_t more =
                send(to.get(), piece + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
            if (more < 0 && errno != EAGAIN) return false;
            sent += std::max<ssize_t>(more, 0);
        }
        return true;
    }

    const Endpoint server_;
    Endpoint here_;
    Socket listener_;
    std::vector<Conversation> conversations_;
    std::atomic<bool> is_over_ = false;
    std::thread thread_;
};

// Returns the number of whole messages behind the handshake, which takes `handshake_bytes`.
inline size_t frames_in(const std::string &said, size_t handshake_bytes) {
    size_t frames = 0;
    for (size_t at = handshake_bytes; at + sizeof(FrameHead) <= said.size(); frames++) {
        FrameHead head;
        std::memcpy(&head, said.data() + at, sizeof head);
        at += frame_overhead_bytes + head.bytes;
    }
    return frames;
}

} // namespace kit
