// Lifelines over pidfds, or else over pipes.
#include "transport/lifelines.hpp"

#include "base/system_error.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace qccl {

Result<Lifeline> Lifeline::open() {
    Lifeline own;
    own.shown = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    if (own.shown.is_open()) return own;
    // Older than Linux 5.3, or forbidden by a container's filter.
    if (errno == ENOSYS || errno == EPERM) return open_pipe();
    return cannot("open a pidfd");
}

Result<Lifeline> Lifeline::open_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cannot("open a pipe");
    return Lifeline{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Lifelines::Lifelines(std::vector<FileDescriptor> shown, FileDescriptor held)
    : held_(std::move(held)), shield_(held_) {
    for (FileDescriptor &line : shown) {
        polls_.push_back({line.number(), POLLIN, 0});
        lines_.push_back({.shown = std::move(line)});
    }
}

void Lifelines::add_connection(uint32_t rank, const std::vector<uint32_t> &neighbours,
                               FileDescriptor connection) {
    const size_t ranks = *std::max_element(neighbours.begin(), neighbours.end()) + size_t{1};
    if (lines_.size() < ranks) {
        lines_.resize(ranks);
        polls_.resize(ranks, {-1, 0, 0});
    }
    polls_[rank] = {connection.number(), POLLIN | POLLRDHUP, 0};
    ForkShield shield(connection);
    lines_[rank] = {.shown = std::move(connection),
                    .shield = std::move(shield),
                    .is_connection = true,
                    .neighbours = neighbours};
}

void Lifelines::look() {
    if (polls_.empty()) return;
    // On failure lines keep what the last look found; the next look comes soon.
    const bool is_news = poll(polls_.data(), polls_.size(), 0) > 0;
    for (uint32_t rank = 0; rank < lines_.size() && is_news; rank++) {
        if (polls_[rank].revents == 0) continue;
        if (lines_[rank].is_connection)
            listen(rank);
        else if ((polls_[rank].revents & (POLLIN | POLLHUP)) != 0)
            lines_[rank].has_ended = true;
        // Nothing follows.
        if (lines_[rank].has_ended || lines_[rank].has_left) polls_[rank].fd = -1;
    }
    for (const Line &line : lines_)
        if (std::atomic_ref(line.is_silent).load(std::memory_order_relaxed))
            for (const uint32_t rank : line.neighbours) lines_[rank].has_ended = true;
}

namespace {

// All that is ever said on a connection: the first byte alone, or all of it.
struct Word {
    static constexpr char farewell = 'f', verdict = 'v';

    char what = farewell;
    Error error;
};

} // namespace

void Lifelines::say(const Line &line, const void *word, size_t bytes) {
    if (send(line.shown.number(), word, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) note_silence(line);
}

// By the error of a moment ago.
void Lifelines::note_silence(const Line &line) {
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)
        std::atomic_ref(line.is_silent).store(true, std::memory_order_relaxed);
}

void Lifelines::listen(uint32_t rank) {
    Line &line = lines_[rank];
    const auto read = [&](Word &word, size_t bytes, int flags) {
        return recv(line.shown.number(), &word, bytes, MSG_DONTWAIT | flags);
    };
    Word word;
    const ssize_t got = read(word, sizeof word, MSG_PEEK);
    const bool is_verdict = got > 0 && word.what == Word::verdict;
    if (is_verdict && got < static_cast<ssize_t>(sizeof word)) return; // the rest is on its way
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

void Lifelines::say_farewell() const {
    for (const Line &line : lines_)
        if (line.is_connection) say(line, &Word::farewell, 1);
}

void Lifelines::tell(const Error &verdict) const {
    const Word word{Word::verdict, verdict};
    for (const Line &line : lines_)
        if (line.is_connection) say(line, &word, sizeof word);
}

} // namespace qccl
