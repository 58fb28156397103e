// Implements qccl-info explain: plans each call and prints the planner's explanation as text and as
// JSON.
#include "perf/explain_info.hpp"

#include "perf/json_file.hpp"
#include "perf/policy_info.hpp"
#include "perf/run_description.hpp"
#include "perf/sweep.hpp"
#include "plan/explain.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace qccl::perf {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char *document_tail = "\n]}\n";

template <class Link> Json json_of(const std::optional<Link> &link) {
    if (!link) return nullptr;
    return {{"class", name(link->link_class)},
            {"GBps", link->bytes_per_ns ? Json(*link->bytes_per_ns) : Json(nullptr)}};
}

Json json_of(const ExplainQuestion &question) {
    const Machine &machine = question.machine;
    const std::string &topology = question.asked.topology;
    return {{"topology", topology.empty() ? Json(nullptr) : Json(topology)},
            {"ranks", machine.ranks},
            {"hosts", machine.hosts()},
            {"gpus", machine.has_gpus},
            {"cores", machine.cores ? Json(*machine.cores) : Json(nullptr)},
            {"link_between_hosts", json_of(machine.far)},
            {"link_in_host", json_of(machine.near)}};
}

class Explainer {
public:
    explicit Explainer(const ExplainQuestion &question)
        : question_(question), machine_(question.machine),
          type_(sweep_types(question.calls).front()), op_(question.calls.ops.front()),
          link_bytes_(machine_.topology ? link_class_of(machine_.topology)
                                        : link_class_by_hosts(machine_.places.get())) {}

    Done run() {
        QCCL_TRY(policy_, policy_here(machine_.settings, machine_.ranks,
                                      static_cast<uint32_t>(machine_.hosts())));
        if (!question_.json_file.empty()) {
            QCCL_TRY(json_, JsonFile::open(question_.json_file));
            QCCL_TRY(json_->begin(head(), document_tail));
        }
        for (const uint64_t bytes : sweep_sizes(question_.calls)) {
            if (question_.codecs.empty()) QCCL_TRY(explain_call(bytes, nullptr));
            for (const Codec &codec : question_.codecs) QCCL_TRY(explain_call(bytes, &codec));
        }
        return json_ ? json_->deliver() : Done{};
    }

private:
    std::string head() const {
        Json run = describe_run(question_.command_line);
        run["machine"] = json_of(question_);
        std::string text = run.dump(-1, ' ', false, Json::error_handler_t::replace);
        text.pop_back(); // remove the closing brace, which document_tail contains
        return text + ",\n\"rows\": [";
    }

    Done explain_call(uint64_t bytes, const Codec *named) {
        const Collective collective = question_.calls.collective;
        const uint64_t count = bytes / type_bytes(type_) / parts_of(collective, machine_.ranks);
        QCCL_TRY(const CallChoice choice,
                 policy_.choose(named, question_.algorithm,
                                policy_.traits(collective, type_, op_, count)));
        const Problem problem{.collective = collective,
                              .count = count,
                              .ranks = machine_.ranks,
                              .root = *question_.calls.root,
                              .type = type_,
                              .codec = choice.codec,
                              .places = machine_.places.get()};
        QCCL_TRY(Explanation explanation, explain(problem, inputs_of(machine_, choice.pieces),
                                                  choice.algorithm, &link_bytes_));
        explanation.rules = choice.reasons;
        return show(explanation);
    }

    Done show(const Explanation &explanation) {
        if (question_.json_file != "-") {
            std::printf("%s%s", is_first_ ? "" : "\n", print_text(explanation, is_first_).c_str());
            is_first_ = false;
        }
        if (!json_) return {};
        Json row = Json::parse(print_json(explanation));
        if (reduces(question_.calls.collective)) row["op"] = name(op_);
        return json_->add(row.dump(), document_tail);
    }

    const ExplainQuestion &question_;
    const Machine &machine_;
    const DataType type_;
    const RedOp op_;
    LinkByteCounter link_bytes_;
    CallPolicy policy_;
    std::optional<JsonFile> json_;
    bool is_first_ = true;
};

} // namespace

Done print_explanations(const ExplainQuestion &question) { return Explainer(question).run(); }

} // namespace qccl::perf
