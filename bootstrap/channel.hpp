// A non-blocking TCP connection with a receive buffer and a send queue. The rendezvous client and
// server use it; it does not interpret the bytes. One thread at a time may use a Channel.
#pragma once

#include "base/hide_on_fork.hpp"
#include "bootstrap/endpoint.hpp"
#include "bootstrap/round.hpp"

#include <deque>
#include <span>
#include <vector>

namespace qccl {

// Owns a socket descriptor. Shuts down both directions before it closes the descriptor, because a
// forked child may hold a copy of the descriptor that would keep the connection open.
class Socket {
public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    Socket(Socket &&) = default;
    Socket &operator=(Socket &&) = default;
    ~Socket();

    int get() const { return descriptor_.number(); }
    bool is_open() const { return descriptor_.is_open(); }
    HideOnFork shield() const { return HideOnFork(descriptor_); }
    // Closes this process's copy of the descriptor without ending the connection.
    void forget() { descriptor_ = FileDescriptor(); }

private:
    FileDescriptor descriptor_;
};

Result<Socket> make_socket(AddressFamily family);
// Turns on TCP_NODELAY, so that small messages leave at once, and keepalive, so that the loss of a
// host is noticed.
void tune(const Socket &socket);

class Channel {
public:
    enum class Filled : uint8_t { all, not_yet, gone };

    explicit Channel(Socket socket) : socket_(std::move(socket)) {}

    int descriptor() const { return socket_.get(); }
    std::span<const std::byte> held() const { return held_; }
    // Reads until `bytes` bytes are held, never more. Returns `not_yet` if they have not all
    // arrived, and `gone` if the peer has closed the connection or it has failed.
    Filled fill(size_t bytes);
    void drop(size_t bytes);

    void queue(std::span<const std::byte> bytes);
    void queue(const Payload &payload);
    bool flush(); // sends what the socket takes; false: the peer is gone
    bool has_output() const { return !output_.empty(); }
    void forget() { socket_.forget(); }

private:
    Socket socket_;
    std::vector<std::byte> held_;
    std::deque<Payload> output_;
    size_t sent_ = 0; // bytes sent of the first entry
};

} // namespace qccl
