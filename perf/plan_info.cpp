#include "perf/plan_info.hpp"

#include "perf/session.hpp"
#include "plan/planner.hpp"

#include <vector>

namespace qccl::perf {

// The planner's choice is in the last line of its explanation: "ring: the fastest".
static Result<std::string> chosen_algorithm(qcclComm_t comm, const Operation &operation,
                                            const Codec &codec) {
    std::string what =
        std::string(name(operation.collective)) + " count=" + std::to_string(operation.count) +
        " type=" + name(operation.type) + " op=" + name(operation.op) + " codec=" + spec(codec);
    if (operation.collective == Collective::broadcast)
        what += " root=" + std::to_string(operation.root);
    size_t bytes = 0;
    QCCL_TRY(explained(qcclExplain(comm, what.c_str(), nullptr, &bytes), "qcclExplain", comm));
    std::vector<char> buffer(bytes);
    QCCL_TRY(
        explained(qcclExplain(comm, what.c_str(), buffer.data(), &bytes), "qcclExplain", comm));
    const std::string text(buffer.data());
    const size_t line = text.rfind('\n', text.size() - 2) + 1;
    const size_t colon = text.find(": ", line);
    if (colon == std::string::npos)
        return Error::make(Code::internal_error, "qcclExplain names no choice");
    return text.substr(line, colon - line);
}

Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm) {
    PlanInfo info{.algorithm = algorithm, .nmse_predicted = std::nullopt};
    if (algorithm.empty()) {
        QCCL_TRY(info.algorithm, chosen_algorithm(comm, operation, codec));
    }
    const bool is_predictable =
        !reduces(operation.collective) || operation.op == RedOp::sum || operation.op == RedOp::avg;
    if (!is_predictable || !qccl::info(operation.type).is_float) return info;
    const Problem problem{.collective = operation.collective,
                          .count = operation.count,
                          .ranks = operation.ranks,
                          .root = operation.root,
                          .type = operation.type,
                          .codec = codec};
    // The error depends on the algorithm and the codec, not on speeds and limits.
    Tables tables;
    tables.limits = {.arena_bytes = SIZE_MAX / 4, .segment_bytes = size_t{1} << 20, .max_lanes = 1};
    QCCL_TRY(const Algorithm forced, parse_algorithm(info.algorithm));
    QCCL_TRY(const Plan plan, choose(problem, tables, forced));
    info.nmse_predicted = predicted_nmse(plan, operation.type);
    return info;
}

} // namespace qccl::perf
