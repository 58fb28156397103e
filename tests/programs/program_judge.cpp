// Finds what is wrong in the reports of ranks (program_judge.hpp).
#include "program_judge.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace stress {

namespace {

using killable::say;

std::string of_rank(int rank, const std::string &what) { return say("rank %d: ", rank) + what; }

// Whether a rank may meet the broken rule only after another one has left.
bool may_lose_a_rank(Rule rule) {
    return rule == Rule::order || rule == Rule::left_out || rule == Rule::missing_end;
}

qcclResult_t error_of(Rule rule) {
    switch (rule) {
    case Rule::stray_send:
    case Rule::stray_recv: return qcclTimeout;
    case Rule::failing_op: return qcclSystemError;
    default: return qcclMismatch;
    }
}

qcclResult_t refusal_of(Rule rule) {
    switch (rule) {
    case Rule::missing_end:
    case Rule::extra_end: return qcclInvalidUsage;
    case Rule::refusal:
    case Rule::group_refusal: return qcclInvalidArgument;
    default: return qcclSuccess;
    }
}

class BrokenJudge {
public:
    BrokenJudge(const Program &program, const BatchStage &stage)
        : program_(program), stage_(stage) {}

    std::vector<std::string> run() {
        for (int rank = 0; rank < program_.setting.ranks; rank++) {
            const RankReport &report = stage_.ranks[rank];
            const qcclResult_t refusal =
                rank == program_.odd ? refusal_of(program_.rule) : qcclSuccess;
            if (report.refusal != refusal)
                found(rank, say("the refusal is %d, not %d", report.refusal, refusal));
            for (size_t comm = 0; comm < program_.comms.size(); comm++)
                check(rank, static_cast<int>(comm));
        }
        return found_;
    }

private:
    void found(int rank, const std::string &what) { found_.push_back(of_rank(rank, what)); }
    void check(int rank, int comm) {
        const CommReport &own = stage_.ranks[rank].comms[comm];
        const bool is_broken = comm == program_.broken_comm && !is_refusal(program_.rule);
        const bool is_member = program_.comms[static_cast<size_t>(comm)].rank_of(rank) >= 0;
        if (!is_broken || !is_member) {
            if (own.error != qcclSuccess) found(rank, say("comm %d has failed", comm));
            return;
        }
        // A rank that has left a group open has made none of its calls, and leaves before the
        // others know.
        if (program_.rule == Rule::missing_end && rank == program_.odd) return;
        const bool is_lost = own.error == qcclPeerLost && may_lose_a_rank(program_.rule);
        if (own.error == qcclSuccess)
            found(rank, "heard of no error");
        else if (own.error != error_of(program_.rule) && !is_lost)
            found(rank, say("got %d, not %d", own.error, error_of(program_.rule)));
        else if (own.at < Phase::broken)
            found(rank, "got the error too early");
        else if (own.at == Phase::destroy)
            found(rank, "got the error too late");
        else if (own.error == qcclMismatch) // others may come from several ranks at a time
            compare(rank, own);
    }
    void compare(int rank, const CommReport &own) {
        const char *const sentence = without_place(own.sentence);
        if (sentence_ == nullptr) sentence_ = sentence;
        if (std::strcmp(sentence, sentence_) != 0) found(rank, "has another sentence");
    }
    // A request's error and that of a group begin with their place, which ranks may choose.
    static const char *without_place(const char *sentence) {
        const char *const group = std::strstr(sentence, " of the group");
        const bool has_place = group != nullptr || std::strncmp(sentence, "requests[", 9) == 0;
        const char *const rest = std::strstr(group != nullptr ? group : sentence, ": ");
        return has_place && rest != nullptr ? without_place(rest + 2) : sentence;
    }

    const Program &program_;
    const BatchStage &stage_;
    const char *sentence_ = nullptr; // of the first rank
    std::vector<std::string> found_;
};

std::vector<std::string> whether_all_are_back(const Batch &batch, const BatchStage &stage,
                                              bool has_ended) {
    std::vector<std::string> found;
    if (has_ended) return found;
    for (int rank = 0; rank < batch.setting.ranks; rank++)
        if (!stage.ranks[rank].has_left) found.push_back(of_rank(rank, "not back"));
    if (found.empty()) found.emplace_back("a process has died");
    return found;
}

// Returns the number of the first program in which ranks received different bytes.
std::optional<long> first_unequal(const Batch &batch, const BatchStage &stage, long last) {
    for (long number = batch.first; number <= last; number++) {
        const Program program = batch.program(number);
        const auto place = static_cast<size_t>(number - batch.first);
        for (size_t comm = 0; comm < program.comms.size(); comm++) {
            const auto &members = program.comms[comm].members;
            for (const int rank : members)
                if (stage.equal[rank][place][comm] != stage.equal[members[0]][place][comm])
                    return number;
        }
    }
    return std::nullopt;
}

std::string joined(const std::vector<std::string> &parts) {
    std::string all;
    for (const std::string &part : parts) all += (all.empty() ? "" : "; ") + part;
    return all;
}

} // namespace

std::vector<Finding> judge_right(const Batch &batch, const BatchStage &stage, bool has_ended) {
    std::vector<std::string> found = whether_all_are_back(batch, stage, has_ended);
    long first = batch.first + batch.size;
    for (int rank = 0; rank < batch.setting.ranks; rank++) {
        const RankReport &report = stage.ranks[rank];
        const bool is_right = !report.is_wrong && !report.has_error();
        if (is_right && (has_ended || report.has_left)) continue;
        if (!is_right) found.push_back(of_rank(rank, report.is_wrong ? "wrong" : "error"));
        first = std::min(first, static_cast<long>(report.program));
    }
    if (!found.empty()) return {{first, joined(found)}};
    const auto unequal = first_unequal(batch, stage, batch.first + batch.size - 1);
    if (unequal) return {{*unequal, "ranks received different bytes"}};
    return {};
}

std::vector<Finding> judge_broken(const Batch &batch, const BatchStage &stage, bool has_ended,
                                  double most_s) {
    std::vector<std::string> found = whether_all_are_back(batch, stage, has_ended);
    const Program program = batch.program(batch.first);
    if (found.empty()) found = BrokenJudge(program, stage).run();
    for (int rank = 0; rank < batch.setting.ranks; rank++)
        if (stage.ranks[rank].is_wrong) found.push_back(of_rank(rank, "wrong"));
    if (!found.empty()) return {{batch.first, joined(found)}};
    for (int rank = 0; rank < batch.setting.ranks; rank++)
        if (stage.ranks[rank].longest_s > most_s)
            return {{batch.first,
                     of_rank(rank, say("a call took %.1f s", stage.ranks[rank].longest_s)), true}};
    return {};
}

std::string reports_text(const Batch &batch, const BatchStage &stage) {
    std::string said;
    for (int rank = 0; rank < batch.setting.ranks; rank++) {
        const RankReport &report = stage.ranks[rank];
        said += say("\n  rank %d: program %ld, step %d, %s%s", rank,
                    static_cast<long>(report.program), static_cast<int>(report.step),
                    name(report.phase), report.has_left ? "" : ", not back");
        if (report.refusal != qcclSuccess) said += say(", refusal %d", report.refusal);
        if (report.is_wrong) said += std::string("; ") + report.first_wrong;
        for (size_t comm = 0; comm < max_comms; comm++) {
            const CommReport &own = report.comms[comm];
            if (own.error != qcclSuccess)
                said += say("\n    comm %zu: %d in %s: %s", comm, own.error, name(own.at),
                            own.sentence);
        }
    }
    return said;
}

} // namespace stress
