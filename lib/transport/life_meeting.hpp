// How ranks of different hosts come to have connections that carry nothing and show that the other
// end lives: one calls, at all the addresses that the other may have, and the other knows it by its
// cookie. Whatever strangers do, it lasts no longer than its deadline.
#pragma once

#include "base/prospect.hpp"
#include "transport/life_port.hpp"

#include <chrono>
#include <optional>
#include <poll.h>

namespace qccl {

// One rank's part: at most one that it calls, and one that calls it.
class LifeMeeting {
public:
    // Both live as long.
    LifeMeeting(const LifePort &port, uint32_t own_rank) : port_(port), own_rank_(own_rank) {}

    void call(const LifeContact &contact, uint32_t rank);
    void expect(uint32_t rank) { expected_ = rank; }
    Done run(TimePoint deadline, const Prospect &prospect = {});

    // What came of it, once.
    FileDescriptor take_called() { return std::move(to_called_); }
    FileDescriptor take_expected() { return std::move(from_expected_); }

private:
    // To one of the addresses of who is called.
    struct Attempt {
        LifeAddress address;
        FileDescriptor connection; // none while it waits to try again
        bool has_greeted = false;
        TimePoint again{};
    };

    bool is_over() const {
        return (!called_ || to_called_.is_open()) && (!expected_ || from_expected_.is_open());
    }
    Done connect_where_time_has_come();
    // An error of this rank alone, as from `let_in`.
    Done start(Attempt &attempt);
    void go_on(Attempt &attempt);
    void fail(Attempt &attempt, int problem);
    Done let_in(const FileDescriptor &listener);
    // False: there is none.
    bool send_guest_away();
    // False: it has nothing more to say.
    bool hear(FileDescriptor &guest);
    int look(std::vector<pollfd> &polls, TimePoint deadline) const;
    Done late() const;

    const LifePort &port_;
    const uint32_t own_rank_;
    std::optional<uint32_t> called_, expected_;
    LifeContact contact_;           // of who is called
    std::vector<Attempt> attempts_; // that may yet come to something
    int problem_ = 0;               // of the latest that has failed
    std::vector<FileDescriptor> guests_;
    FileDescriptor to_called_, from_expected_;
};

// From now on the connection breaks when the other host has been silent for so long.
void watch_life(const FileDescriptor &connection, std::chrono::nanoseconds silence);

} // namespace qccl
