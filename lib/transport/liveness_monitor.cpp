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
        watched_.push_back({.shown = std::move(line)});
    }
}

void LivenessMonitor::add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                                     FileDescriptor connection) {
    const size_t ranks = *std::max_element(host_ranks.begin(), host_ranks.end()) + size_t{1};
    if (watched_.size() < ranks) {
        watched_.resize(ranks);
        polls_.resize(ranks, {-1, 0, 0});
    }
    polls_[rank] = {connection.number(), POLLIN | POLLRDHUP, 0};
    HideOnFork shield(connection);
    watched_[rank] = {.shown = std::move(connection),
                      .shield = std::move(shield),
                      .is_connection = true,
                      .host_ranks = host_ranks};
}

void LivenessMonitor::look() {
    if (polls_.empty()) return;
    // If poll fails, all ranks keep the state of the last look; the next look comes soon.
    const bool is_news = poll(polls_.data(), polls_.size(), 0) > 0;
    for (uint32_t rank = 0; rank < watched_.size() && is_news; rank++) {
        if (polls_[rank].revents == 0) continue;
        if (watched_[rank].is_connection)
            listen(rank);
        else if ((polls_[rank].revents & (POLLIN | POLLHUP)) != 0)
            watched_[rank].has_ended = true;
        // No later event of this rank matters.
        if (watched_[rank].has_ended || watched_[rank].has_left) polls_[rank].fd = -1;
    }
    for (const Watched &line : watched_)
        if (std::atomic_ref(line.is_silent).load(std::memory_order_relaxed))
            for (const uint32_t rank : line.host_ranks) watched_[rank].has_ended = true;
}

namespace {

// The messages on a connection: a goodbye is the first byte alone, a failure is the whole struct.
struct KeepaliveWord {
    static constexpr char goodbye = 'f', failure = 'v';

    char what = goodbye;
    Error error;
};

} // namespace

void LivenessMonitor::say(const Watched &line, const void *word, size_t bytes) {
    if (send(line.shown.number(), word, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) note_silence(line);
}

// Reads the errno of the call that has just failed.
void LivenessMonitor::note_silence(const Watched &line) {
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)
        std::atomic_ref(line.is_silent).store(true, std::memory_order_relaxed);
}

void LivenessMonitor::listen(uint32_t rank) {
    Watched &line = watched_[rank];
    const auto read = [&](KeepaliveWord &word, size_t bytes, int flags) {
        return recv(line.shown.number(), &word, bytes, MSG_DONTWAIT | flags);
    };
    KeepaliveWord word;
    const ssize_t got = read(word, sizeof word, MSG_PEEK);
    const bool is_failure = got > 0 && word.what == KeepaliveWord::failure;
    if (is_failure && got < static_cast<ssize_t>(sizeof word)) return; // the rest has not come yet
    if (got > 0) read(word, is_failure ? sizeof word : 1, 0);
    if (is_failure) {
        told_ = {rank, word.error};
    } else if (got > 0) {
        line.has_left = true;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        line.has_ended = true;
        if (got < 0) note_silence(line);
    }
}

void LivenessMonitor::send_goodbye() const {
    for (const Watched &line : watched_)
        if (line.is_connection) say(line, &KeepaliveWord::goodbye, 1);
}

void LivenessMonitor::send_error(const Error &error) const {
    const KeepaliveWord word{KeepaliveWord::failure, error};
    for (const Watched &line : watched_)
        if (line.is_connection) say(line, &word, sizeof word);
}

} // namespace qccl
