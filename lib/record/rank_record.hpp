// A record as its reader has it: checked, of its own, whatever bytes it came from. Knows not where
// those come from.
#pragma once

#include "record/rank_state.hpp"
#include "record/record_layout.hpp"

#include <span>
#include <string>
#include <vector>

namespace qccl {

struct RankRecord {
    RecordHead head; // texts end in it
    RecordedState state;
    std::vector<CallDescriptor> calls; // those that are whole, by number
    std::vector<RecordedProcess> processes;

    const CallDescriptor *find(uint64_t call) const;
    // What the rank did when it was last seen. `now_ns` on the machine's clock since its boot;
    // nothing: that clock is another's, or time has gone on without the rank.
    RankState rank_state(std::optional<int64_t> now_ns) const;
};

// Those of a file, as far as they are sound: any bytes will do. An error where the first is none.
Result<std::vector<RankRecord>> parse_records(std::span<const std::byte> file);

// The first call on which ranks differ, as far as their records reach, in a sentence; empty: there
// is none.
std::string first_difference(std::span<const RankRecord> records);
// A call as it stands in a list.
std::string describe(const CallDescriptor &call);

} // namespace qccl
