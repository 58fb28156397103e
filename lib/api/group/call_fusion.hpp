// Fuses small all-reduces of a group: calls that follow one another run as one call over a buffer
// that holds the values of all of them, so that they take the messages of one call. Results keep
// their bits, because the fused call adds the ranks' values in the same order. All ranks fuse the
// same calls if their groups hold the same calls, with the same ones on each stream.
#pragma once

#include "api/call/collective_call.hpp"
#include "comm/comm.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace qccl {

class FusedCalls {
public:
    // `first` runs by itself if no other call joins it. The calls have to stay until run() returns.
    FusedCalls(const Comm &comm, const ReadyCall &first);

    // Lets the next call join. Returns false, and changes nothing, if it has to run after the
    // others.
    bool join(const ReadyCall &next);
    // Runs the calls, or enqueues them, as Comm::run does.
    Done run(Comm &comm, const CallStream &stream) const;

private:
    bool is_apart_from_others(const ReadyCall &call);

    const uint64_t most_bytes_; // of all calls together
    std::vector<const ReadyCall *> calls_;
    uint64_t count_ = 0; // elements of all calls
    bool takes_others_ = false;
    // The buffers of the calls, none of which overlap: where each ends, by its start. A call that
    // touches a buffer of an earlier one must run after it.
    std::map<uintptr_t, uintptr_t> buffers_;
};

} // namespace qccl
