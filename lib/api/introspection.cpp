// C functions that say what a communicator would do (qcclExplain) and what it has done
// (qcclCommGetStats). Any thread may call them at any time; they do not wait for other ranks.
#include "api/config.hpp"
#include "api/entry.hpp"
#include "api/explain_query.hpp"
#include "plan/explain.hpp"
#include "topology/job_links.hpp"

#include <cstring>
#include <string>

namespace qccl {

static Result<std::string> answer(const Comm &comm, const char *what) {
    QCCL_TRY(const ExplainQuery question, parse_explain_query(what, comm.size()));
    const CommParts &parts = comm.parts();
    Algorithm named;
    if (!question.algorithm.empty()) {
        QCCL_TRY(named, parse_algorithm(question.algorithm));
    }
    QCCL_TRY(const CallChoice choice,
             parts.policy.choose(question.codec ? &*question.codec : nullptr, named,
                                 parts.policy.traits(question.collective, question.type,
                                                     question.op, question.count)));
    PlannerInputs inputs = parts.inputs;
    inputs.limits = limits_of(chunking_with(choice.pieces, parts.cut));
    LinkByteCounter link_bytes(parts.topology ? link_class_of(parts.topology)
                                              : link_class_by_hosts(parts.places.get()));
    QCCL_TRY(Explanation explanation,
             explain({.collective = question.collective,
                      .count = question.count,
                      .ranks = comm.size(),
                      .root = question.root,
                      .type = question.type,
                      .codec = choice.codec,
                      .places = parts.places.get()},
                     inputs, choice.algorithm, question.is_json ? &link_bytes : nullptr));
    explanation.rules = choice.reasons;
    if (choice.codec.guard != 0)
        explanation.rules += comm.guards().describe({.collective = question.collective,
                                                     .type = question.type,
                                                     .op = question.op,
                                                     .root = question.root,
                                                     .count = question.count});
    explanation.transport = parts.transport->name();
    return question.is_json ? print_json(explanation) : print_text(explanation);
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclExplain(qcclComm_t comm, const char *what, char *buffer, size_t *bytes) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!what) return Error::make(Code::invalid_argument, "what is NULL");
        if (!bytes) return Error::make(Code::invalid_argument, "bytes is NULL");
        QCCL_TRY(const std::string text, answer(found, what));
        const size_t room = *bytes, needed = text.size() + 1;
        if (buffer && room < needed) {
            *bytes = needed;
            return Error::make(Code::invalid_argument,
                               "buffer has %zu bytes, but the text needs %zu", room, needed)
                .compared(static_cast<int64_t>(needed), static_cast<int64_t>(room));
        }
        if (buffer) std::memcpy(buffer, text.c_str(), needed);
        *bytes = needed;
        return {};
    });
}
QCCL_TWIN(qcclExplain);

qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclCommStats_t *stats_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!stats_out) return Error::make(Code::invalid_argument, "stats_out is NULL");
        const Counts counts = found.counts();
        qcclCommStats_t stats{};
        stats.calls = counts.calls;
        stats.raw_bytes = counts.raw_bytes;
        stats.wire_bytes = counts.wire_bytes;
        stats.encode_ns = counts.encode_ns;
        stats.copy_ns = counts.copy_ns;
        stats.wait_ns = counts.wait_ns;
        stats.wire_ns = counts.wire_ns;
        stats.lent_bytes = counts.lent_bytes;
        stats.network_ns = counts.network_ns;
        stats.device_bytes = counts.device_bytes;
        stats.guarded_calls = found.guards().lossless_calls();
        constexpr size_t first_bytes = 128; // release 0.1
        return give_struct("qcclCommStats_t", &stats, sizeof stats, first_bytes, stats_out);
    });
}
QCCL_TWIN(qcclCommGetStats);
