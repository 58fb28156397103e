// Which ranks' processes live, and which hosts can be reached. Empty where the ranks are threads of
// one process.
#pragma once

#include "base/result.hpp"
#include "base/fork_shield.hpp"

#include <cstdint>
#include <optional>
#include <poll.h>
#include <vector>

namespace qccl {

// One process's sign of life.
struct Lifeline {
    FileDescriptor shown; // to others: becomes readable or hangs up when the process ends
    FileDescriptor held;  // what the process keeps open for that; none where the kernel keeps count

    static Result<Lifeline> open();
    // For kernels, containers and tools without pidfds.
    static Result<Lifeline> open_pipe();
};

class Lifelines {
public:
    Lifelines() = default;
    // What each rank has shown, by rank, and what this one holds.
    Lifelines(std::vector<FileDescriptor> shown, FileDescriptor held);

    // A connection to a rank of another host, on which `neighbours` are, the rank among them. The
    // kernel there answers for a process that is stopped, so it breaks when the process ends; or in
    // silence when the host cannot be reached, which is the end of them all.
    void add_connection(uint32_t rank, const std::vector<uint32_t> &neighbours,
                        FileDescriptor connection);

    // Looks at all of them with one system call.
    void look();
    bool has_ended(uint32_t rank) const { return rank < lines_.size() && lines_[rank].has_ended; }
    // Has said farewell on a connection.
    bool has_left(uint32_t rank) const { return rank < lines_.size() && lines_[rank].has_left; }
    // What somebody has told on a connection that the communicator has failed with, word for word.
    struct Told {
        uint32_t from;
        Error error;
    };
    const std::optional<Told> &told() const { return told_; }

    // On all connections, where it arrives also if neither end does anything more for it. Any
    // thread.
    void say_farewell() const;
    void tell(const Error &verdict) const;

private:
    struct Line {
        FileDescriptor shown;
        ForkShield shield = {}; // of a connection
        bool is_connection = false;
        bool has_ended = false, has_left = false;
        std::vector<uint32_t> neighbours = {}; // of a connection
        // The connection has broken because nobody answers. Who sends learns it instead of who
        // listens, if it is the first to ask; any thread's, atomically.
        mutable bool is_silent = false;
    };
    static void say(const Line &line, const void *word, size_t bytes);
    static void note_silence(const Line &line);
    void listen(uint32_t rank);

    std::vector<Line> lines_; // by rank
    FileDescriptor held_;
    ForkShield shield_;         // of what is held
    std::vector<pollfd> polls_; // likewise
    std::optional<Told> told_;
};

} // namespace qccl
