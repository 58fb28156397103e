// The text of a plan file, which QCCL_PLAN_FILE names: what calls of a job shall get that neither
// the program nor QCCL_CODEC and QCCL_ALGO say. Pure: the caller reads and writes the file. Any
// thread, nothing blocks.
//
//     # comment
//     qccl-plan version=1 rules=2
//     job ranks=8 nodes=2
//     codec=none parts=4 @count=589824,type=float,collective=all_reduce
//     codec=int4 algorithm=ring lanes=2 @op=sum,bytes>=1M
//
// First comes the line with the version, in which `rules`, the number of rules, may be left out.
// The line `job` may be left out, too: it says of which communicators the plan is. Each further
// line is a rule: what it wants, between blanks (codec, algorithm, and either segment, the bytes of
// a segment, or parts, the segments of each chunk; lanes), and behind an '@' the calls, as a
// selector. Of each of the four the first line counts that matches the call and says it.
#pragma once

#include "base/result.hpp"
#include "plan/rules.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

inline constexpr uint64_t newest_plan_version = 1;
// Of a file: plans of a hundred thousand tensors are smaller.
inline constexpr size_t most_plan_bytes = size_t{16} << 20;

struct PlanFile {
    uint32_t ranks = 0, nodes = 0; // of the communicator that it is for; 0: any number
    Rules rules;
};

// An error (invalid_argument) names the line and what is possible.
Result<PlanFile> parse_plan_file(std::string_view text);
// A text that is read back so.
std::string print(const PlanFile &plan);

// Refuses a plan of another job.
Done check_job(const PlanFile &plan, uint32_t ranks, uint32_t nodes);

} // namespace qccl
