// Draws the step in which a program breaks a rule (broken_rule.hpp).
#include "broken_rule.hpp"

namespace stress {

namespace {

// Larger than what a message can leave with a rank that does not receive it.
constexpr uint32_t stray_count = 300'000;
constexpr uint32_t fused_count = 100;

bool is_possible(Rule rule, const Setting &setting) {
    // Small calls between hosts are lossless whatever codec they name.
    return rule != Rule::codec || setting.hosts == 1;
}

class RuleBreaker {
public:
    RuleBreaker(Program &program, Rule rule, int comm, Random &random)
        : program_(program), rule_(rule), comm_(comm),
          ranks_(program.comms[static_cast<size_t>(comm)].size()), random_(random),
          drawer_(random, ranks_) {}

    void run() {
        program_.rule = rule_;
        program_.broken_comm = comm_;
        odd_ = random_.below(ranks_);
        program_.odd =
            program_.comms[static_cast<size_t>(comm_)].members[static_cast<size_t>(odd_)];
        if (rule_ == Rule::maker)
            program_.steps.push_back(draw_maker());
        else
            program_.steps.push_back(draw_step());
        program_.broken_step = program_.steps.size() - 1;
    }

private:
    Step draw_maker() {
        Step step;
        step.kind = random_.below(2) == 0 ? StepKind::split : StepKind::dup;
        step.comm = comm_;
        step.colors.assign(static_cast<size_t>(ranks_), 0);
        step.keys.assign(static_cast<size_t>(ranks_), 0);
        step.made.push_back(-1);
        return step;
    }

    // The call stands among calls that all ranks make alike.
    Step draw_step() {
        Step step;
        step.grouped = rule_ == Rule::ungrouped || rule_ == Rule::missing_end ||
                       rule_ == Rule::group_refusal || (may_be_grouped() && random_.below(3) == 0);
        step.streamed = random_.below(4) == 0 && rule_ < Rule::ungrouped;
        const Call call = draw_call();
        const int before = random_.below(3);
        for (int i = 0; i < before; i++) step.calls.push_back(draw_agreed());
        program_.broken_call = step.calls.size();
        step.calls.push_back({.comm = comm_, .call = call, .stream = step.streamed ? 1 : 0});
        if (rule_ == Rule::order) step.calls.push_back(draw_another(call));
        if (rule_ == Rule::ungrouped) {
            step.calls.push_back(step.calls.back());
            step.calls.back().call.salt++;
        }
        return step;
    }
    // Calls of a group may be fused, and then the library chooses the algorithm. A refusal without
    // a group is that of the call.
    bool may_be_grouped() const {
        return rule_ != Rule::algorithm && rule_ != Rule::refusal && rule_ != Rule::left_out &&
               rule_ != Rule::extra_end;
    }
    ProgramCall draw_agreed() {
        ProgramCall call{.comm = comm_};
        call.call = drawer_.draw(static_cast<Kind>(random_.below(collectives)));
        return call;
    }
    ProgramCall draw_another(const Call &call) {
        for (;;) {
            const ProgramCall another = draw_agreed();
            if (another.call.kind != call.kind) return another;
        }
    }

    Call draw_call() {
        if (rule_ == Rule::ungrouped)
            return {.kind = Kind::all_reduce, .count = fused_count, .type = float32};
        if (rule_ == Rule::message || rule_ == Rule::stray_send || rule_ == Rule::stray_recv)
            return draw_message();
        for (;;) {
            const Call call = drawer_.draw(static_cast<Kind>(random_.below(collectives)));
            if (!can_break(call)) continue;
            program_.odd_call = call;
            if (rule_ == Rule::pair_count) draw_pair(call);
            if (!draws_difference()) return call;
            for (int tries = 0; tries < 20; tries++) {
                program_.odd_call = differing_from(call);
                if (is_noticed(call, program_.odd_call)) return call;
            }
        }
    }
    bool draws_difference() const { return rule_ <= Rule::v_counts; }

    bool can_break(const Call &call) const {
        switch (rule_) {
        case Rule::count: return call.has_data() && !call.is_v_form();
        case Rule::type:
        case Rule::kind: return call.has_data() && call.count > 0;
        case Rule::op: return call.reduces() && call.codec == nullptr;
        case Rule::root: return call.has_root();
        case Rule::codec: return may_be_encoded(call) && call.count > 0;
        case Rule::algorithm: return call.algorithm != nullptr;
        case Rule::v_counts: return call.has_common_counts();
        case Rule::pair_count: return call.has_pair_counts();
        case Rule::failing_op: // an exscan of two ranks combines nothing
            return call.reduces() && !call.is_v_form() && call.kind != Kind::exscan &&
                   call.count > 0 && call.op == Op::made;
        case Rule::refusal:
        case Rule::group_refusal: return call.has_data();
        default: return true;
        }
    }
    Call differing_from(const Call &call) {
        Call other = call;
        switch (rule_) {
        case Rule::count:
            other.count = random_.below(2) == 0 ? call.count + 1 : drawer_.draw_count();
            break;
        case Rule::type: other.type = random_.below(types); break;
        case Rule::op: other.op = drawer_.draw_op(call.type, call.kind); break;
        case Rule::root: other.root = random_.below(ranks_); break;
        case Rule::codec:
            other.codec = random_.below(3) == 0 ? nullptr : drawer_.draw_codec();
            break;
        case Rule::algorithm: other.algorithm = drawer_.draw_algorithm(call.kind); break;
        case Rule::v_counts: other.shape = static_cast<uint32_t>(random_.below(1 << 20)); break;
        default: other = drawer_.draw(static_cast<Kind>(random_.below(collectives)));
        }
        return other;
    }
    // Whether the call is valid by itself, and the library tells it from the other ranks' call.
    bool is_noticed(const Call &call, const Call &other) const {
        if (other.looks_like(call) || !is_valid(other)) return false;
        if (rule_ == Rule::kind) return other.kind != call.kind;
        if (rule_ != Rule::v_counts) return true;
        for (int rank = 0; rank < ranks_; rank++)
            if (call.part(rank, rank) != other.part(rank, rank)) return true;
        return false;
    }

    // The odd rank expects or sends one element more than its peer does.
    void draw_pair(const Call &call) {
        const int peer = (odd_ + 1 + random_.below(ranks_ - 1)) % ranks_;
        program_.odd_peer = peer;
        program_.odd_receives = random_.below(2) == 0;
        if (call.kind == Kind::all_to_all_v) return;
        if (odd_ != call.root) program_.odd_peer = call.root;
        const bool root_receives = call.kind == Kind::gather_v;
        program_.odd_receives = (odd_ == call.root) == root_receives;
    }

    Call draw_message() {
        Call call = drawer_.draw(Kind::message);
        const int other = (odd_ + 1 + random_.below(ranks_ - 1)) % ranks_;
        const bool odd_sends =
            rule_ == Rule::stray_send || (rule_ == Rule::message && random_.below(2) == 0);
        call.root = odd_sends ? odd_ : other;
        call.dest = odd_sends ? other : odd_;
        call.algorithm = nullptr;
        if (rule_ == Rule::stray_send) {
            call.codec = nullptr;
            call.count = stray_count;
            call.type = float32;
        }
        program_.odd_call = call;
        if (rule_ != Rule::message) return call;
        if (random_.below(2) == 0)
            program_.odd_call.count++;
        else
            while (program_.odd_call.type == call.type ||
                   !can_encode(call.codec, program_.odd_call))
                program_.odd_call.type = random_.below(types);
        return call;
    }

    Program &program_;
    const Rule rule_;
    const int comm_, ranks_;
    Random &random_;
    CallDrawer drawer_;
    int odd_ = 0; // in the communicator
};

} // namespace

Rule draw_rule(Random &random, const Setting &setting) {
    for (;;) {
        const auto rule = static_cast<Rule>(1 + random.below(rules - 1));
        if (is_possible(rule, setting)) return rule;
    }
}

void break_rule(Program &program, Rule rule, const std::vector<int> &live, Random &random) {
    std::vector<int> larger;
    for (const int comm : live)
        if (program.comms[static_cast<size_t>(comm)].size() > 1) larger.push_back(comm);
    RuleBreaker(program, rule, random.one_of(larger), random).run();
}

const char *name(Rule rule) {
    static constexpr const char *names[rules] = {
        "none",        "count",     "type",     "op",           "root",       "codec",
        "algorithm",   "kind",      "v_counts", "pair_count",   "message",    "order",
        "left_out",    "ungrouped", "maker",    "failing_op",   "stray_send", "stray_recv",
        "missing_end", "extra_end", "refusal",  "group_refusal"};
    return names[static_cast<size_t>(rule)];
}

} // namespace stress
