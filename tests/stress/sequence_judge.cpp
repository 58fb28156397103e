// Judges a sequence that has been played: finds the rules of sequence_judge.hpp that its ranks
// broke. Also prints what the ranks' calls returned.
#include "sequence_judge.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>

namespace stress {

namespace {

using killable::say;

class Judge {
public:
    Judge(const Sequence &sequence, const SequenceStage &stage, double most_s)
        : sequence_(sequence), stage_(stage), most_s_(most_s),
          difference_(sequence.first_difference()) {}

    Judgement run(bool has_ended) {
        judgement_.further = further_call();
        if (!has_ended) breach(Breach::stuck);
        for (int rank = 0; rank < sequence_.ranks(); rank++) check_rank(rank);
        for (int rank = 1; rank < sequence_.ranks(); rank++)
            for (int other = 0; other < rank; other++) compare(other, rank);
        if (difference_) check_errors();
        return judgement_;
    }

private:
    void breach(Breach which) { judgement_.breaches.insert(which); }
    const std::vector<Call> &calls(int rank) const {
        return sequence_.calls[static_cast<size_t>(rank)];
    }
    const RankOutcome &outcome(int rank) const { return stage_.ranks[rank]; }

    // Returns the index of this rank's call that disagrees; if none does, the number of its calls.
    size_t differing_index(int rank) const {
        return difference_ ? sequence_.index_of(rank, *difference_) : calls(rank).size();
    }
    // Returns the index of the call by which this rank must have an error, or of its last call.
    size_t last_index(int rank) const {
        return std::min(differing_index(rank) + 1, calls(rank).size() - 1);
    }
    // Returns the index of the first call that returned an error, or the number of returned calls.
    size_t first_error(int rank) const {
        size_t index = 0;
        while (index < outcome(rank).calls && outcome(rank).outcomes[index].result == qcclSuccess)
            index++;
        return index;
    }
    bool has_error(int rank) const { return first_error(rank) < outcome(rank).calls; }
    bool has_error_in_time(int rank) const { return first_error(rank) <= last_index(rank); }
    Kind further_call() const {
        const int rank = sequence_.odd_rank == 0 ? 1 : 0;
        return calls(rank)[last_index(rank)].kind;
    }

    bool ends_there(int rank) const {
        return calls(rank)[differing_index(rank)].kind == Kind::destroy;
    }
    // In a collective with a root a rank waits at most for the ranks between the root and itself,
    // or for those behind it, and in a scan for those before it, so it may get the error one call
    // later.
    bool may_hear_late(int rank) const {
        const Call &last = calls(rank)[last_index(rank)];
        return last.has_root() || last.is_prefix();
    }

    void check_rank(int rank) {
        const RankOutcome &own = outcome(rank);
        if (own.created != qcclSuccess) breach(Breach::agreed_failed);
        for (size_t i = 0; i < own.calls; i++) {
            if (own.outcomes[i].is_wrong) breach(Breach::wrong_data);
            const double seconds = own.outcomes[i].seconds;
            judgement_.longest_s = std::max(judgement_.longest_s, seconds);
            const bool repairs = calls(rank)[i].kind == Kind::shrink && first_error(rank) < i;
            if (seconds > most_s_) breach(repairs ? Breach::late_repair : Breach::late);
        }
        if (own.calls < calls(rank).size()) return;
        if (!has_error(rank)) {
            if (!difference_ || has_leaver() || is_codec_unused()) return;
            breach(Breach::never_told);
            breach(silence(rank));
            return;
        }
        const qcclResult_t error = own.outcomes[first_error(rank)].result;
        if (!difference_)
            breach(Breach::agreed_failed);
        else if (error != qcclMismatch && !(error == qcclPeerLost && may_lose_a_rank()))
            breach(Breach::wrong_error);
        else if (!has_error_in_time(rank) && !has_leaver() && !may_hear_late(rank))
            breach(silence(rank));
    }

    // If ranks make different numbers of calls, or make them in another order, a rank may have left
    // when another rank meets the difference.
    bool may_lose_a_rank() const {
        switch (sequence_.disagreement) {
        case Disagreement::order:
        case Disagreement::left_out:
        case Disagreement::extra:
        case Disagreement::finalize:
        case Disagreement::destroy: return true;
        default: return false;
        }
    }

    // Small calls between hosts are lossless whatever codec they name, so they are the same call
    // after all.
    bool is_codec_unused() const {
        if (sequence_.disagreement != Disagreement::codec || sequence_.setting.hosts == 1)
            return false;
        for (int rank = 0; rank < sequence_.ranks(); rank++)
            if (has_error(rank)) return false;
        return true;
    }

    // A shrink repairs a failed communicator, but only for ranks that know of the failure.
    Breach silence(int rank) const {
        bool has_failed = false;
        for (int other = 0; other < sequence_.ranks(); other++)
            has_failed = has_failed || first_error(other) < last_index(other);
        const bool shrinks = calls(rank)[last_index(rank)].kind == Kind::shrink;
        return shrinks && has_failed ? Breach::shrunk_unaware : Breach::silent;
    }

    // Compares the results of calls that leave the same vector on both ranks, if both ranks made
    // them.
    void compare(int one, int other) {
        for (size_t position = 0; !difference_ || position <= *difference_ + 1; position++) {
            const size_t i = sequence_.index_of(one, position);
            const size_t j = sequence_.index_of(other, position);
            if (i >= outcome(one).calls || j >= outcome(other).calls) return;
            const CallOutcome &mine = outcome(one).outcomes[i];
            const CallOutcome &theirs = outcome(other).outcomes[j];
            if (mine.result != qcclSuccess || theirs.result != qcclSuccess) return;
            const Call &call = calls(one)[i];
            if (!call.equals_everywhere() || !calls(other)[j].equals_everywhere()) continue;
            if (mine.hash == theirs.hash) continue;
            const bool is_agreed = !difference_ || position < *difference_;
            if (is_agreed)
                breach(Breach::wrong_data);
            else if (!has_error_in_time(one) && !has_error_in_time(other))
                breach(Breach::different_bytes);
        }
    }

    void check_errors() {
        const char *sentence = nullptr;
        bool is_somebody_told = false;
        for (int rank = 0; rank < sequence_.ranks(); rank++) {
            if (!has_error(rank)) continue;
            is_somebody_told = true;
            const CallOutcome &error = outcome(rank).outcomes[first_error(rank)];
            if (error.result != qcclMismatch) continue;
            if (sentence != nullptr && std::string(sentence) != error.sentence)
                breach(Breach::sentences);
            sentence = error.sentence;
        }
        if (is_somebody_told && sentence == nullptr && !has_leaver()) breach(Breach::unnamed);
    }
    // A rank that ends the communicator while others go on has made no call that the others did not
    // make. Ranks that needed nothing from it may have success, and others only learn that it has
    // left.
    bool has_leaver() const {
        for (int rank = 0; rank < sequence_.ranks(); rank++)
            if (ends_there(rank)) return true;
        return false;
    }

    const Sequence &sequence_;
    const SequenceStage &stage_;
    const double most_s_;
    const std::optional<size_t> difference_; // a position
    Judgement judgement_;
};

} // namespace

const char *name(Breach breach) {
    static constexpr const char *names[breaches] = {
        "different_bytes", "silent",        "shrunk_unaware", "never_told",  "unnamed", "sentences",
        "wrong_error",     "agreed_failed", "wrong_data",     "late_repair", "late",    "stuck"};
    return names[static_cast<size_t>(breach)];
}

bool may_be_load(Breach breach) { return breach == Breach::late || breach == Breach::late_repair; }

Judgement judge(const Sequence &sequence, const SequenceStage &stage, bool has_ended,
                double peer_timeout_s) {
    return Judge(sequence, stage, peer_timeout_s + 1).run(has_ended);
}

std::string results_text(const Sequence &sequence, const SequenceStage &stage) {
    std::string said;
    std::vector<std::string> sentences;
    const auto result_text = [&](qcclResult_t result, const char *sentence) {
        if (result == qcclSuccess) return say(" %d", result);
        const auto at = std::find(sentences.begin(), sentences.end(), sentence);
        const auto number = at - sentences.begin();
        if (at == sentences.end()) sentences.emplace_back(sentence);
        return say(" %d[%d]", result, static_cast<int>(number) + 1);
    };
    for (int rank = 0; rank < sequence.ranks(); rank++) {
        const RankOutcome &own = stage.ranks[rank];
        said += say("\n  rank %d got:", rank);
        if (own.created != qcclSuccess)
            said += " created" + result_text(own.created, own.sentence) + ";";
        for (size_t i = 0; i < own.calls; i++) {
            const CallOutcome &outcome = own.outcomes[i];
            said += result_text(outcome.result, outcome.sentence);
            if (outcome.is_wrong) said += " wrong";
            if (outcome.hash != 0)
                said += say(" #%04x", static_cast<unsigned>(outcome.hash & 0xFFFF));
            if (outcome.seconds > 0.1) said += say(" %.1f s", outcome.seconds);
            said += ";";
        }
        if (own.calls < sequence.calls[static_cast<size_t>(rank)].size()) said += " (not back)";
    }
    for (size_t i = 0; i < sentences.size(); i++)
        said += say("\n  [%zu] %s", i + 1, sentences[i].c_str());
    return said;
}

} // namespace stress
