// The operating system's services that several rooms use: texts for failed system calls, file
// descriptors, files that settings name, file names with %h, %p and %r, and the state of processes.
// Any thread may call. Only the functions that read files block, as long as the file system does.
//
// A FileDescriptor closes its descriptor in the destructor. A pattern of a file name is given once
// for all processes or ranks of a job, each of which writes a file of its own; the log and the
// traces use patterns.
//
// HideOnFork withholds a descriptor from forked children. While a child holds a copy of a
// descriptor, the peer at the other end of a pipe or connection does not see that the process has
// ended. (A child that calls exec loses the descriptor by O_CLOEXEC; a child that only continues
// does not.) The liveness monitor uses it. Every process has an epoch, which lies in a page that
// the kernel hands to children zeroed, so that one load tells a child from its parent; the tables
// of handles use it.
//
// ServiceThread is a thread of the library itself. It takes no signals (they belong to the
// program's own threads), has a name that top and gdb show, and is joined when its owner is
// destroyed. SignalBlocker blocks all signals of the current thread while it lives, so that threads
// started meanwhile never take any.
#pragma once

#include "base/result.hpp"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace qccl {

// ---- Failed system calls

// Returns strerror's text for an errno. For EMFILE it adds the limit that this process has reached:
// "Too many open files (the limit of open files, ulimit -n, is 1024)".
std::string describe_errno(int number);

// Returns system_error with a text such as "cannot open a pipe: No such device"; the reason is
// taken from errno.
Error cannot(const char *what);

// ---- File descriptors

class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) : number_(number) {}
    FileDescriptor(FileDescriptor &&other) noexcept : number_(std::exchange(other.number_, none)) {}
    FileDescriptor &operator=(FileDescriptor &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~FileDescriptor() {
        if (is_open()) close(number_);
    }

    bool is_open() const { return number_ >= 0; }
    int number() const { return number_; }
    // Hands the descriptor to the caller, who must close it.
    int release() { return std::exchange(number_, none); }

private:
    static constexpr int none = -1;
    int number_ = none;
};

// ---- Descriptors and fork

// As long as this object lives, forked children do not inherit the descriptor: in a child its
// number refers to /dev/null, so that no file that the child opens gets the number.
class HideOnFork {
public:
    HideOnFork() = default;
    explicit HideOnFork(const FileDescriptor &descriptor);
    HideOnFork(HideOnFork &&other) noexcept : number_(std::exchange(other.number_, none)) {}
    HideOnFork &operator=(HideOnFork &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~HideOnFork();

private:
    static constexpr int none = -1;
    int number_ = none;
};

// ---- Reading files

// Returns the content of a regular file of at most `most_bytes` bytes. The error is
// invalid_argument, or system_error if a read fails; it says why, without the path.
Result<std::string> read_regular_file(const std::string &path, size_t most_bytes);

// ---- Patterns of file names

// Returns this machine's name, or "localhost" if it has none.
std::string host_name();

// Returns the pattern with %h replaced by `host`, %p by this process's number, %r by `rank` and %%
// by a percent. Every other letter behind a % is refused, and so is %r if `rank` is empty: returns
// invalid_argument with a sentence that begins with `what` and the pattern in quotes, and lists
// what is possible.
Result<std::string> expand_file_pattern(const char *what, const std::string &pattern,
                                        const std::string &host,
                                        std::optional<uint32_t> rank = std::nullopt);

// Returns the path of the file that `rank` writes. If the pattern names the same file for several
// ranks, -%r is inserted before its extension. Errors are those of expand_file_pattern; the name of
// a folder is refused with invalid_argument, too.
Result<std::string> rank_file_path(const char *what, const std::string &pattern, uint32_t rank,
                                   uint32_t ranks);

// Returns `path` with `text` inserted before its extension, or appended if it has none: "a/b.json"
// and "-3" give "a/b-3.json".
std::string with_suffix(const std::string &path, const std::string &text);

// ---- Processes

struct ProcessStatus {
    char state = '?';   // R, S, D, T, Z, ...
    uint64_t start = 0; // ticks since the boot; with the pid it identifies the process
    bool has_ended() const { return state == 'Z' || state == 'X'; }
    bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Returns the status of a process; nothing if the process does not exist or is not visible.
std::optional<ProcessStatus> process_status(int64_t pid);
// Returns a text that differs between boots and between machines. Empty if the system does not
// tell, which is then so for every process on the machine. Returns system_error if only this
// process cannot read the text, because it has run short of a resource.
Result<std::string> boot_id();

// ---- Signals

class SignalBlocker {
public:
    // A new thread inherits the mask, so no signal can reach the thread before it blocks signals
    // itself.
    SignalBlocker() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalBlocker(const SignalBlocker &) = delete;
    SignalBlocker &operator=(const SignalBlocker &) = delete;

private:
    sigset_t before_;
};

// ---- Threads

// Linux allows at most 15 characters.
inline constexpr char stream_thread_name[] = "qccl-stream";
inline constexpr char trace_thread_name[] = "qccl-trace";
inline constexpr char topology_thread_name[] = "qccl-topology"; // runs hwloc
inline constexpr char rank_thread_name[] = "qccl-rank";         // while qcclCommInitAll runs
inline constexpr char comm_thread_name[] = "qccl-comm";         // of a nonblocking communicator

class ServiceThread {
public:
    static Result<ServiceThread> start(const char *name, std::function<void()> body);

    ServiceThread() = default;
    ServiceThread(ServiceThread &&) = default;
    ServiceThread &operator=(ServiceThread &&) = default;
    ~ServiceThread() { join(); }

    // Restricts the thread to this CPU. Returns invalid_argument if the process cannot run there;
    // the caller says where the number comes from.
    Done pin(uint64_t cpu);
    void join() {
        if (thread_.joinable()) thread_.join();
    }
    std::thread::id id() const { return thread_.get_id(); }

private:
    std::thread thread_;
};

// ---- Forked children

namespace fork_detector {
// Points to a zero until this process or an ancestor has mapped the page.
extern constinit std::atomic<std::atomic<uint64_t> *> epoch_word;
} // namespace fork_detector

// Returns 0 in a process that has made no handle, and otherwise a number that no ancestor of the
// process had.
inline uint64_t current_epoch() {
    return fork_detector::epoch_word.load(std::memory_order_acquire)
        ->load(std::memory_order_relaxed);
}
// The same for a process that makes a handle: never 0. An error means that the page cannot be
// mapped.
Result<uint64_t> begin_epoch();

} // namespace qccl
