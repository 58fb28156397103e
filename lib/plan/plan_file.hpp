// The text of a plan file, which QCCL_PLAN_FILE names. A plan file says what the calls of a job get
// where neither the program nor QCCL_CODEC and QCCL_ALGO decide. Used by call policies and the
// tools. Pure: the caller reads and writes the file. Any thread, nothing blocks.
//
//     # comment
//     qccl-plan version=1 rules=2
//     job ranks=8 nodes=2
//     codec=none parts=4 @count=589824,type=float,collective=all_reduce
//     codec=int4 algorithm=ring lanes=2 @op=sum,bytes>=1M
//
// The first line has the version; `rules`, the number of rules, is optional. The optional line
// `job` says for which communicators the plan is. Each further line is a rule. A rule names a
// codec, an algorithm or a cut, or several of them with blanks between. A cut consists of lanes and
// of either segment, the bytes of a segment, or parts, the segments of each chunk. A selector
// behind an '@' picks the calls. Each of codec, algorithm and cut comes from the first line that
// matches the call and names one.
#pragma once

#include "base/result.hpp"
#include "plan/rules.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

inline constexpr uint64_t newest_plan_version = 1;
// Largest accepted file. Plans of a hundred thousand tensors are smaller.
inline constexpr size_t most_plan_bytes = size_t{16} << 20;

struct PlanFile {
    uint32_t ranks = 0, nodes = 0; // of the plan's communicators; 0: any number
    Rules rules;
};

// Parses a plan file. An error (invalid_argument) names the line and what is possible.
Result<PlanFile> parse_plan_file(std::string_view text);
// Returns a text that parse_plan_file reads back to the same plan.
std::string print(const PlanFile &plan);

// Refuses a plan that is for other numbers of ranks or nodes (invalid_argument).
Done check_job(const PlanFile &plan, uint32_t ranks, uint32_t nodes);

} // namespace qccl
