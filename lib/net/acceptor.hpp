// Accepts connections at listening sockets, and keeps those that have not identified themselves
// yet. Other programs may connect and stay silent. A rank sends its cookie as soon as it has
// connected, so the oldest silent connection is closed when there are too many. Used by the
// exchange of descriptors and by keepalive connections. (A rank proves its identity to a rendezvous
// in several steps, and the rendezvous keeps such connections itself.) No call blocks. One thread
// at a time uses an Acceptor.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

namespace qccl {

// Whether a call has failed because this process, or the machine, has no descriptor left. Waiting
// does not help; giving up a connection does.
inline bool is_out_of_descriptors(int problem) { return problem == EMFILE || problem == ENFILE; }

class Acceptor {
public:
    // With `most` silent connections, a new one replaces the oldest.
    explicit Acceptor(size_t most) : most_(most) {}

    // Accepts one connection, if one waits at `listener`, and keeps it if `may_enter(connection)`.
    // If no descriptor is free, closes the oldest silent connection instead, and the caller comes
    // again: the listener is still ready. Returns system_error if there is no such connection.
    template <class MayEnter> Done accept_at(const FileDescriptor &listener, MayEnter may_enter) {
        FileDescriptor connection(
            accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!connection.is_open()) {
            if (is_out_of_descriptors(errno) && !drop_oldest())
                return cannot("accept a rank's connection");
            return {};
        }
        if (!may_enter(connection)) return {};
        if (silent_.size() >= most_) drop_oldest();
        silent_.push_back(std::move(connection));
        return {};
    }

    // Closes the oldest silent connection; returns false if there is none.
    bool drop_oldest() {
        if (silent_.empty()) return false;
        silent_.erase(silent_.begin());
        return true;
    }

    // Appends an entry for each silent connection.
    void append_polls(std::vector<pollfd> &polls) const {
        for (const FileDescriptor &connection : silent_)
            polls.push_back({connection.number(), POLLIN, 0});
    }
    // `polled` points to the first entry that append_polls() has added. For each connection whose
    // entry reports an event, calls `identify(connection)`, which reads from the connection and may
    // move it away. A connection for which `identify` returns false is dropped.
    template <class Identify> void identify_from(const pollfd *polled, Identify identify) {
        std::erase_if(silent_, [&](FileDescriptor &connection) {
            return (polled++)->revents != 0 && !identify(connection);
        });
    }
    // Closes the oldest connection whose entry reports nothing; returns false if there is none.
    bool drop_silent(const pollfd *polled) {
        const auto is_silent = [&](const FileDescriptor &) { return (polled++)->revents == 0; };
        const auto oldest = std::find_if(silent_.begin(), silent_.end(), is_silent);
        if (oldest == silent_.end()) return false;
        silent_.erase(oldest);
        return true;
    }
    size_t size() const { return silent_.size(); }

private:
    const size_t most_;
    std::vector<FileDescriptor> silent_; // oldest first
};

} // namespace qccl
