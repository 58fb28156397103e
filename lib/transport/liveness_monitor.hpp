// Watches which ranks' processes live, through pidfds or pipes, and which hosts can be reached,
// through connections that carry almost no data. Ranks that are threads of one process are not
// watched. Used by the FailureDetector. Does not block. `send_goodbye` and `tell` may run on any
// thread, the rest on the thread that makes the calls.
#pragma once

#include "base/result.hpp"
#include "base/hide_on_fork.hpp"

#include <cstdint>
#include <optional>
#include <poll.h>
#include <vector>

namespace qccl {

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

    // Adds a connection to `rank` on another host; `neighbours` are all ranks of that host,
    // including `rank`. The remote kernel answers for a process that is stopped, so the connection
    // breaks when the process ends. The connection also breaks if the host stops answering, and
    // then all `neighbours` count as ended.
    void add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                        FileDescriptor connection);

    // Checks all descriptors with one system call.
    void look();
    // As of the last `look`: the rank's process has ended, or its host cannot be reached.
    bool has_ended(uint32_t rank) const {
        return rank < watched_.size() && watched_[rank].has_ended;
    }
    // As of the last `look`: the rank has sent a goodbye on its connection.
    bool has_left(uint32_t rank) const { return rank < watched_.size() && watched_[rank].has_left; }
    // The communicator's failure as a peer has sent it on its connection, not checked.
    struct Told {
        uint32_t from;
        Error error;
    };
    const std::optional<Told> &told() const { return told_; }

    // Sends a goodbye, or the communicator's failure, on all connections. It arrives even if
    // neither process does anything more for it. Any thread.
    void send_goodbye() const;
    void send_error(const Error &error) const;

private:
    struct Watched {
        FileDescriptor shown;
        HideOnFork shield = {}; // hides a connection from forked children
        bool is_connection = false;
        bool has_ended = false, has_left = false;
        std::vector<uint32_t> host_ranks = {}; // ranks at the other end's host
        // The connection has broken because the other host does not answer. The kernel reports that
        // once, to a send or to a receive, whichever comes first. Any thread sets it, atomically.
        mutable bool is_silent = false;
    };
    static void say(const Watched &line, const void *word, size_t bytes);
    static void note_silence(const Watched &line);
    void listen(uint32_t rank);

    std::vector<Watched> watched_; // by rank
    FileDescriptor held_;
    HideOnFork shield_;         // hides `held_` from forked children
    std::vector<pollfd> polls_; // by rank
    std::optional<Told> told_;
};

} // namespace qccl
