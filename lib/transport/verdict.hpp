// The one failure of a communicator: the first that any rank records stands on all of them. Knows
// not what may fail.
#pragma once

#include "transport/party.hpp"

#include <mutex>

namespace qccl {

// A failure that a rank of another host has told. Where that makes no sense, it is that rank's.
Error as_heard(Error told, uint32_t from, uint32_t size);

class Verdict {
public:
    explicit Verdict(const Party &party) : party_(party) {}

    bool is_passed() const { return line().recorded_by.load(std::memory_order_acquire) != 0; }
    std::optional<Error> failure() const;
    // Passes it if nobody was first, and wakes everyone. What stands afterwards. Any thread.
    Error pass(const Error &error);
    bool is_ours_to_tell() const {
        return line().is_told.exchange(1, std::memory_order_relaxed) == 0;
    }

private:
    VerdictLine &line() const { return party_.first().verdict(); }

    const Party &party_;
    std::mutex one_writer_; // of this rank's record
};

} // namespace qccl
