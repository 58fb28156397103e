#include "perf/plan_info.hpp"

#include "perf/session.hpp"

#include <cstdlib>
#include <vector>

namespace qccl::perf {

static Result<std::string> explanation(qcclComm_t comm, const Operation &operation,
                                       const Codec &codec, const std::string &algorithm) {
    std::string what =
        std::string(name(operation.collective)) + " count=" + std::to_string(operation.count) +
        " type=" + name(operation.type) + " op=" + name(operation.op) + " codec=" + spec(codec);
    if (!algorithm.empty()) what += " algorithm=" + algorithm;
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

// In a line of its own where it is not `asked`: "  travels with int4 (4.5 bits a value): ...".
static Result<Codec> codec_in(const std::string &text, const Codec &asked) {
    const std::string start = "\n  travels with ";
    const size_t line = text.find(start);
    if (line == std::string::npos) return asked;
    const std::string name = text.substr(line + start.size());
    // A colon before a space ends the name, and others are part of it.
    const size_t end = name.find_first_of(" \n");
    return parse_codec(name.substr(0, name.at(end - 1) == ':' ? end - 1 : end));
}

// In the line of the chosen algorithm, "* ring ...; NMSE 1.234e-05"; none is said of what loses
// nothing.
static Result<double> nmse_in(const std::string &text) {
    const size_t line = text.find("\n* ");
    if (line == std::string::npos)
        return Error::make(Code::internal_error, "qcclExplain marks no choice");
    const std::string chosen = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
    const std::string mark = "; NMSE ";
    const size_t found = chosen.find(mark);
    return found == std::string::npos ? 0 : std::atof(chosen.c_str() + found + mark.size());
}

Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm) {
    QCCL_TRY(const std::string text, explanation(comm, operation, codec, algorithm));
    PlanInfo info{
        .algorithm = algorithm, .transport = "", .codec = codec, .nmse_predicted = std::nullopt};
    QCCL_TRY(info.codec, codec_in(text, codec));
    QCCL_TRY(info.transport, transport_in(text));
    if (algorithm.empty()) {
        QCCL_TRY(info.algorithm, choice_in(text));
    }
    const bool is_predictable = !reduces(operation.collective) || adds(operation.op);
    if (!is_predictable || !qccl::info(operation.type).is_float) return info;
    QCCL_TRY(info.nmse_predicted, nmse_in(text));
    return info;
}

} // namespace qccl::perf
