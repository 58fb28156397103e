#include "perf/plan_info.hpp"

#include "perf/session.hpp"
#include "plan/planner.hpp"

#include <vector>

namespace qccl::perf {

static Result<std::string> explanation(qcclComm_t comm, const Operation &operation,
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
    return std::string(buffer.data());
}

// In a line of its own: "over shm".
static Result<std::string> transport_in(const std::string &text) {
    const std::string start = "over ";
    const size_t line = text.starts_with(start) ? 0 : text.find("\n" + start) + 1;
    const size_t end = text.find('\n', line);
    if (!text.substr(line).starts_with(start) || end == std::string::npos)
        return Error::make(Code::internal_error, "qcclExplain names no transport");
    return text.substr(line + start.size(), end - line - start.size());
}

// In the last line: "ring: the fastest".
static Result<std::string> choice_in(const std::string &text) {
    const size_t line = text.rfind('\n', text.size() - 2) + 1;
    const size_t colon = text.find(": ", line);
    if (colon == std::string::npos)
        return Error::make(Code::internal_error, "qcclExplain names no choice");
    return text.substr(line, colon - line);
}

Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm) {
    QCCL_TRY(const std::string text, explanation(comm, operation, codec));
    PlanInfo info{.algorithm = algorithm, .transport = "", .nmse_predicted = std::nullopt};
    QCCL_TRY(info.transport, transport_in(text));
    if (algorithm.empty()) {
        QCCL_TRY(info.algorithm, choice_in(text));
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
