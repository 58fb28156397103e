// A rank's record as a reader uses it: copied and checked, whatever bytes it came from. Used by the
// tools that look at running or dead ranks; the caller reads the bytes. Pure; any thread may call.
#pragma once

#include "record/rank_state.hpp"
#include "record/record_layout.hpp"

#include <span>
#include <string>
#include <vector>

namespace qccl {

struct RankRecord {
    RecordHead head; // its texts are terminated
    RecordedState state;
    std::vector<CallDescriptor> calls; // the complete ones, by number
    std::vector<RecordedProcess> processes;

    const CallDescriptor *find(uint64_t call) const;
    // Returns what the rank did when it was last seen. `now_ns` is the machine's clock since its
    // boot; empty: the record is from another machine's clock, or the rank no longer runs.
    RankState rank_state(std::optional<int64_t> now_ns) const;
};

// Returns the records of a file up to the first invalid one; `file` may be any bytes. Returns
// damaged_data if the first record is invalid.
Result<std::vector<RankRecord>> parse_records(std::span<const std::byte> file);

// Returns a sentence about the first call on which ranks differ, as far as their records reach;
// empty if there is none.
std::string first_difference(std::span<const RankRecord> records);
// Describes a call in one line of a list.
std::string describe(const CallDescriptor &call);

} // namespace qccl
