// What both ends of a rendezvous share: sockets, and the Channel, a non-blocking TCP connection
// with a receive buffer and a send queue, which does not interpret the bytes. Below them stand the
// functions that serve or join a rendezvous whose endpoints and secret are known. The unique-id and
// environment bootstraps use them. Joining blocks; serving runs on a thread of its own. One thread
// at a time may use a Channel.
#pragma once

#include "base/system.hpp"
#include "bootstrap/rendezvous_protocol.hpp"
#include "bootstrap/rendezvous_state.hpp"
#include "net/interfaces.hpp"

#include <deque>
#include <span>
#include <vector>

namespace qccl {

// ---- Connections

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

// ---- Serving and joining

// What the server does once all ranks are there. `tell`: as long as any rank is there, it tells a
// late rank that all are there. `make_room`: it does so for the linger time only, and leaves the
// port to a rank that asks for it for the next rendezvous. Ranks of this rendezvous that come early
// for the next one have to try again.
enum class Afterwards : uint8_t { tell, make_room };

// Listens at the same port on all endpoints: that of the first, or if it is 0 any free port, which
// is then written into all. Removes endpoints that turn out not to be this machine's, as long as
// others remain. Returns system_error if it cannot listen.
Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints);

// Serves a rendezvous on a background thread of this process. With make_room that thread calls
// options.warn about a process with another secret, at most once and only before all ranks are
// there.
Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards);

// Asks the process that listens where rank 0 wants to listen to leave the port, which that process
// does if its rendezvous is finished. Returns remote_error if that process serves the same
// rendezvous and so is rank 0, too; then both processes know it. Success only means that another
// try is worthwhile.
Done ask_for_room(const IdFields &fields, uint32_t size, const RendezvousOptions &options);

// Whether the server is already there (none), or may start later than this rank (until_timeout).
enum class Patience : uint8_t { none, until_timeout };

// Tries the endpoints in turn, and blocks until every rank has joined.
Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience);

} // namespace qccl
