// Implements plan_of of session.hpp by qcclExplain, whose answer is JSON.

#include "perf/run/session.hpp"

#include <nlohmann/json.hpp>
#include <vector>

namespace qccl::perf {

static Result<std::string> explanation(qcclComm_t comm, const Operation &operation,
                                       const Codec &codec, const std::string &algorithm) {
    std::string what = std::string(name(operation.kind().called())) +
                       " count=" + std::to_string(operation.count) +
                       " type=" + name(operation.type) + " op=" + name(operation.op) +
                       " codec=" + spec(codec) + " format=json";
    if (!algorithm.empty()) what += " algorithm=" + algorithm;
    if (row_of(operation.collective).has_root) what += " root=" + std::to_string(operation.root);
    size_t bytes = 0;
    QCCL_TRY(explained(qcclExplain(comm, what.c_str(), nullptr, &bytes), "qcclExplain", comm));
    std::vector<char> buffer(bytes);
    QCCL_TRY(
        explained(qcclExplain(comm, what.c_str(), buffer.data(), &bytes), "qcclExplain", comm));
    return std::string(buffer.data());
}

Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm) {
    QCCL_TRY(const std::string text, explanation(comm, operation, codec, algorithm));
    const auto said = nlohmann::json::parse(text, nullptr, false);
    const auto word = [&](const char *key) {
        const auto found = said.find(key);
        return found != said.end() && found->is_string() ? found->get<std::string>() : "";
    };
    PlanInfo info{.algorithm = algorithm.empty() ? word("algorithm") : algorithm,
                  .transport = word("transport"),
                  .codec = codec,
                  .nmse_predicted = std::nullopt};
    if (info.algorithm.empty() || info.transport.empty())
        return Error::make(Code::internal_error, "qcclExplain names no algorithm or no transport");
    QCCL_TRY(info.codec, parse_codec(word("used_codec")));
    const bool is_predictable = !reduces(operation.collective) || adds(operation.op);
    const auto nmse = said.find("nmse_predicted");
    if (is_predictable && nmse != said.end() && nmse->is_number())
        info.nmse_predicted = nmse->get<double>();
    return info;
}

} // namespace qccl::perf
