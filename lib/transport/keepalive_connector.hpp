// Makes the keepalive connections between ranks of different hosts. They carry no data; they show
// that the other end lives. One rank connects, trying all addresses that the other rank may have,
// and the other rank recognises it by the cookie. Used while a communicator is created. `run`
// blocks, but never beyond its deadline, whatever other programs send to the port.
#pragma once

#include "base/cancel_check.hpp"
#include "transport/keepalive_listener.hpp"

#include <chrono>
#include <optional>
#include <poll.h>

namespace qccl {

// One rank's part: it connects to at most one rank and accepts at most one rank.
class KeepaliveConnector {
public:
    // `port` outlives the object.
    KeepaliveConnector(const KeepaliveListener &listener, uint32_t own_rank)
        : listener_(listener), own_rank_(own_rank) {}

    // Sets the rank to connect to, and where to reach it.
    void call(const KeepaliveAddress &contact, uint32_t rank);
    // Sets the rank that connects to this rank.
    void expect(uint32_t rank) { expected_ = rank; }
    // Makes both connections. Returns peer_lost if the called rank cannot be reached, timeout if
    // the expected rank has not connected by the deadline, system_error if this process is out of
    // descriptors, or the error of `cancel_check`.
    Done run(TimePoint deadline, const CancelCheck &cancel_check = {});

    // The connections that `run` has made; each can be taken once.
    FileDescriptor take_called() { return std::move(to_called_); }
    FileDescriptor take_expected() { return std::move(from_expected_); }

private:
    // A connection attempt to one of the called rank's addresses.
    struct Attempt {
        InetAddress address;
        FileDescriptor connection; // not open while the attempt waits to be repeated
        bool has_greeted = false;
        TimePoint again{};
    };

    bool is_over() const {
        return (!called_ || to_called_.is_open()) && (!expected_ || from_expected_.is_open());
    }
    Done connect_where_time_has_come();
    // Returns only errors of this rank, such as a lack of descriptors; so does `let_in`.
    Done start(Attempt &attempt);
    void go_on(Attempt &attempt);
    void fail(Attempt &attempt, int problem);
    Done let_in(const FileDescriptor &listener);
    // Closes the oldest connection in `guests_`; returns false if there is none.
    bool send_guest_away();
    // Reads an accepted connection; returns false if nothing more is expected from it.
    bool hear(FileDescriptor &guest);
    int look(std::vector<pollfd> &polls, TimePoint deadline) const;
    Done late() const;

    const KeepaliveListener &listener_;
    const uint32_t own_rank_;
    std::optional<uint32_t> called_, expected_;
    KeepaliveAddress contact_;           // of the called rank
    std::vector<Attempt> attempts_;      // those that may still succeed
    int problem_ = 0;                    // errno of the latest attempt that failed
    std::vector<FileDescriptor> guests_; // accepted, no greeting yet
    FileDescriptor to_called_, from_expected_;
};

// Makes the connection break once the other host has been silent for `silence`.
void enable_keepalive(const FileDescriptor &connection, std::chrono::nanoseconds silence);

} // namespace qccl
