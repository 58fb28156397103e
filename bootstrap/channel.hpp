// A TCP connection that never blocks: what came is held until it is dropped, what cannot go yet is
// queued. Knows no messages.
#pragma once

#include "base/fork_shield.hpp"
#include "bootstrap/endpoint.hpp"
#include "bootstrap/round.hpp"

#include <deque>
#include <span>
#include <vector>

namespace qccl {

// Owns a descriptor. Ends the connection for both directions before it closes, because a forked
// child may hold a copy of the descriptor that would keep the connection open.
class Socket {
public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    Socket(Socket &&) = default;
    Socket &operator=(Socket &&) = default;
    ~Socket();

    int get() const { return descriptor_.number(); }
    bool is_open() const { return descriptor_.is_open(); }
    ForkShield shield() const { return ForkShield(descriptor_); }
    // Closes this process's copy and leaves the connection alone.
    void forget() { descriptor_ = FileDescriptor(); }

private:
    FileDescriptor descriptor_;
};

Result<Socket> make_socket(AddressFamily family);
// Small messages leave at once, and a host that vanishes is noticed.
void tune(const Socket &socket);

class Channel {
public:
    enum class Filled : uint8_t { all, not_yet, gone };

    explicit Channel(Socket socket) : socket_(std::move(socket)) {}

    int descriptor() const { return socket_.get(); }
    std::span<const std::byte> held() const { return held_; }
    // Reads until `bytes` are held, never further.
    Filled fill(size_t bytes);
    void drop(size_t bytes);

    void queue(std::span<const std::byte> bytes);
    void queue(const Payload &payload);
    bool flush(); // false: the peer is gone
    bool has_output() const { return !output_.empty(); }
    void forget() { socket_.forget(); }

private:
    Socket socket_;
    std::vector<std::byte> held_;
    std::deque<Payload> output_;
    size_t sent_ = 0; // of the first of them
};

} // namespace qccl
