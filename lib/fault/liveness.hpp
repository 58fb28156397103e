// How a rank sees that other ranks' processes and hosts live: pidfds or pipes show the processes of
// its own host, and keepalive connections show the ranks of other hosts. The connections carry
// almost no data.
//
// A KeepaliveListener listens at a port of each of a rank's addresses. A KeepaliveConnector makes
// the connections while a communicator over several hosts is created: one rank connects, trying all
// addresses that the other rank may have, and the other rank recognises it by the cookie. `run`
// blocks, but never beyond its deadline, whatever other programs send to the port; the listener
// does not block.
//
// LivenessMonitor then watches processes and connections. FailureDetector uses it. Ranks that are
// threads of one process are not watched. It does not block; `send_goodbye` and `send_error` may
// run on any thread, the rest on the thread that makes the calls.
#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/system.hpp"
#include "net/acceptor.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace qccl {

// ---- Listening for connections

// An IPv4 or IPv6 address in the system's form; smaller than sockaddr_storage.
union InetAddress {
    sockaddr_in6 ipv6{};
    sockaddr_in ipv4;
    sockaddr any;

    bool is_there() const { return any.sa_family != AF_UNSPEC; }
    socklen_t bytes() const { return any.sa_family == AF_INET6 ? sizeof ipv6 : sizeof ipv4; }
};

// How to reach a rank's listener. Travels as bytes.
struct KeepaliveAddress {
    static constexpr size_t most_addresses = 8;

    std::array<InetAddress, most_addresses> addresses; // valid ones come first
    // The connecting rank sends `cookie`, which shows that it was given this address. The listening
    // rank replies with `answer`, which shows that it is the rank that was meant.
    std::array<std::byte, 16> cookie{}, answer{};
};

class KeepaliveListener {
public:
    KeepaliveListener() = default;
    // Listens at those of `addresses` that are this machine's, up to `most_addresses`, at free
    // ports. Returns system_error if it can listen at none.
    static Result<KeepaliveListener> open(std::span<const sockaddr_storage> addresses);

    const KeepaliveAddress &contact() const { return contact_; }
    const std::vector<FileDescriptor> &listeners() const { return listeners_; }

private:
    Done listen_at(const sockaddr_storage &address);

    std::vector<FileDescriptor> listeners_;
    KeepaliveAddress contact_;
};

// ---- Making the connections

// One rank's part: it connects to at most one rank and accepts at most one rank.
class KeepaliveConnector {
public:
    // `listener` outlives the object.
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

    static constexpr size_t most_silent = 64;

    bool is_over() const {
        return (!called_ || to_called_.is_open()) && (!expected_ || from_expected_.is_open());
    }
    Done connect_where_time_has_come();
    // Returns only errors of this rank, such as a lack of descriptors.
    Done start(Attempt &attempt);
    void go_on(Attempt &attempt);
    void fail(Attempt &attempt, int problem);
    // Reads an accepted connection; returns false if nothing more is expected from it.
    bool receive_hello(FileDescriptor &connection);
    int poll_descriptors(std::vector<pollfd> &polls, TimePoint deadline) const;
    Done late() const;

    const KeepaliveListener &listener_;
    const uint32_t own_rank_;
    std::optional<uint32_t> called_, expected_;
    KeepaliveAddress contact_;       // of the called rank
    std::vector<Attempt> attempts_;  // those that may still succeed
    int problem_ = 0;                // errno of the latest attempt that failed
    Acceptor acceptor_{most_silent}; // KeepaliveHello has not come yet
    FileDescriptor to_called_, from_expected_;
};

// Makes the connection break once the other host has been silent for `silence`.
void enable_keepalive(const FileDescriptor &connection, std::chrono::nanoseconds silence);

// ---- Watching processes and connections

// The descriptors through which other processes see that this process has ended.
struct ProcessLiveness {
    FileDescriptor shown; // sent to other processes; readable or hung up when this one ends
    FileDescriptor held;  // kept open in this process for that; none with a pidfd

    // Opens a pidfd of this process, or a pipe if the system has no pidfds. Returns system_error on
    // failure.
    static Result<ProcessLiveness> open();
    // Opens a pipe, for kernels, containers and tools without pidfds.
    static Result<ProcessLiveness> open_pipe();
};

class LivenessMonitor {
public:
    LivenessMonitor() = default;
    // `shown`: the `shown` descriptor of each rank's ProcessLiveness, by rank; not open for remote
    // ranks. `held`: the `held` descriptor of this process.
    LivenessMonitor(std::vector<FileDescriptor> shown, FileDescriptor held);

    // Adds a connection to `rank` on another host; `host_ranks` are all ranks of that host,
    // including `rank`. The remote kernel answers for a process that is stopped, so the connection
    // breaks when the process ends. The connection also breaks if the host stops answering, and
    // then all `host_ranks` count as ended.
    void add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                        FileDescriptor connection);

    // Checks all descriptors with one system call.
    void poll_descriptors();
    // As of the last poll_descriptors: the rank's process has ended, or its host cannot be reached.
    bool has_ended(uint32_t rank) const {
        return rank < watched_.size() && watched_[rank].has_ended;
    }
    // As of the last poll_descriptors: the rank has sent a goodbye on its connection.
    bool has_left(uint32_t rank) const { return rank < watched_.size() && watched_[rank].has_left; }
    // The communicator's failure as a peer has sent it on its connection, not checked.
    struct ReceivedError {
        uint32_t from;
        Error error;
    };
    const std::optional<ReceivedError> &received_error() const { return received_error_; }

    // Sends a goodbye, or the communicator's failure, on all connections. It arrives even if
    // neither process does anything more for it. Any thread.
    void send_goodbye() const;
    void send_error(const Error &error) const;

private:
    struct WatchedDescriptor {
        FileDescriptor shown;
        HideOnFork shield = {}; // hides a connection from forked children
        bool is_connection = false;
        bool has_ended = false, has_left = false;
        std::vector<uint32_t> host_ranks = {}; // ranks at the other end's host
        // The connection has broken because the other host does not answer. The kernel reports that
        // once, to a send or to a receive, whichever comes first. Any thread sets it, atomically.
        mutable bool is_silent = false;
    };
    static void send_word(const WatchedDescriptor &watched, const void *word, size_t bytes);
    static void note_silence(const WatchedDescriptor &watched);
    void receive_words(uint32_t rank);

    std::vector<WatchedDescriptor> watched_; // by rank
    FileDescriptor held_;
    HideOnFork shield_;         // hides `held_` from forked children
    std::vector<pollfd> polls_; // by rank
    std::optional<ReceivedError> received_error_;
};

} // namespace qccl
