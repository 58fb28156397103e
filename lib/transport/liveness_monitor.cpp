// Implements LivenessMonitor with pidfds, or with pipes where there are none, and with connections
// to other hosts.
#include "transport/liveness_monitor.hpp"

#include "base/system_error.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace qccl {

Result<ProcessLiveness> ProcessLiveness::open() {
    ProcessLiveness own;
    own.shown = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    if (own.shown.is_open()) return own;
    // The kernel is older than Linux 5.3, or a container's filter forbids the call.
    if (errno == ENOSYS || errno == EPERM) return open_pipe();
    return cannot("open a pidfd");
}

Result<ProcessLiveness> ProcessLiveness::open_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cannot("open a pipe");
    return ProcessLiveness{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

LivenessMonitor::LivenessMonitor(std::vector<FileDescriptor> shown, FileDescriptor held)
    : held_(std::move(held)), shield_(held_) {
    for (FileDescriptor &line : shown) {
        polls_.push_back({line.number(), POLLIN, 0});
        lines_.push_back({.shown = std::move(line)});
    }
}

void LivenessMonitor::add_connection(uint32_t rank, const std::vector<uint32_t> &neighbours,
                                     FileDescriptor connection) {
    const size_t ranks = *std::max_element(neighbours.begin(), neighbours.end()) + size_t{1};
    if (lines_.size() < ranks) {
        lines_.resize(ranks);
        polls_.resize(ranks, {-1, 0, 0});
    }
    polls_[rank] = {connection.number(), POLLIN | POLLRDHUP, 0};
    HideOnFork shield(connection);
    lines_[rank] = {.shown = std::move(connection),
                    .shield = std::move(shield),
                    .is_connection = true,
                    .neighbours = neighbours};
}

void LivenessMonitor::look() {
    if (polls_.empty()) return;
    // If poll fails, all ranks keep the state of the last look; the next look comes soon.
    const bool is_news = poll(polls_.data(), polls_.size(), 0) > 0;
    for (uint32_t rank = 0; rank < lines_.size() && is_news; rank++) {
        if (polls_[rank].revents == 0) continue;
        if (lines_[rank].is_connection)
            listen(rank);
        else if ((polls_[rank].revents & (POLLIN | POLLHUP)) != 0)
            lines_[rank].has_ended = true;
        // No later event of this rank matters.
        if (lines_[rank].has_ended || lines_[rank].has_left) polls_[rank].fd = -1;
    }
    for (const Line &line : lines_)
        if (std::atomic_ref(line.is_silent).load(std::memory_order_relaxed))
            for (const uint32_t rank : line.neighbours) lines_[rank].has_ended = true;
}

namespace {

// The messages on a connection: a goodbye is the first byte alone, a failure is the whole struct.
struct KeepaliveWord {
    static constexpr char farewell = 'f', shared_error = 'v';

    char what = farewell;
    Error error;
};

} // namespace

void LivenessMonitor::say(const Line &line, const void *word, size_t bytes) {
    if (send(line.shown.number(), word, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) note_silence(line);
}

// Reads the errno of the call that has just failed.
void LivenessMonitor::note_silence(const Line &line) {
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)
        std::atomic_ref(line.is_silent).store(true, std::memory_order_relaxed);
}

void LivenessMonitor::listen(uint32_t rank) {
    Line &line = lines_[rank];
    const auto read = [&](KeepaliveWord &word, size_t bytes, int flags) {
        return recv(line.shown.number(), &word, bytes, MSG_DONTWAIT | flags);
    };
    KeepaliveWord word;
    const ssize_t got = read(word, sizeof word, MSG_PEEK);
    const bool is_verdict = got > 0 && word.what == KeepaliveWord::shared_error;
    if (is_verdict && got < static_cast<ssize_t>(sizeof word)) return; // the rest has not come yet
    if (got > 0) read(word, is_verdict ? sizeof word : 1, 0);
    if (is_verdict) {
        told_ = {rank, word.error};
    } else if (got > 0) {
        line.has_left = true;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        line.has_ended = true;
        if (got < 0) note_silence(line);
    }
}

void LivenessMonitor::send_goodbye() const {
    for (const Line &line : lines_)
        if (line.is_connection) say(line, &KeepaliveWord::farewell, 1);
}

void LivenessMonitor::tell(const Error &shared_error) const {
    const KeepaliveWord word{KeepaliveWord::shared_error, shared_error};
    for (const Line &line : lines_)
        if (line.is_connection) say(line, &word, sizeof word);
}

} // namespace qccl
