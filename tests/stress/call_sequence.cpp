// Draws the sequences that call_sequence.hpp describes from a random generator with the sequence's
// seed, finds where their ranks first disagree, and prints them.
#include "call_sequence.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace stress {

namespace {

using killable::say;

constexpr int max_grouped = 4;
constexpr int hosts_one_in = 3; // of the sequences, one is on several hosts

class Maker {
public:
    Maker(uint64_t seed, const Scope &scope) : random_(seed), drawer_(random_, draw_ranks(scope)) {
        made_.seed = seed;
        made_.enqueues = below(8) == 0;
        made_.colors = 1 + below(2);
        made_.disagreement = static_cast<Disagreement>(below(disagreements));
        made_.odd_rank = below(made_.ranks());
    }

    Sequence run() {
        std::vector<Call> calls;
        for (int i = below(4); i > 0; i--) {
            const bool has_messages = below(6) == 0;
            calls.push_back(has_messages ? draw_call(Kind::messages) : draw_agreed_call());
        }
        const size_t at = calls.size();
        calls.push_back(draw_call_to_differ());
        draw_further(calls);
        made_.calls.assign(static_cast<size_t>(made_.ranks()), calls);
        disagree(made_.calls[static_cast<size_t>(made_.odd_rank)], at);
        return made_;
    }

private:
    int below(int bound) { return random_.below(bound); }
    template <class Table> auto one_of(const Table &table) { return random_.one_of(table); }

    int draw_ranks(const Scope &scope) {
        made_.setting = draw_setting(random_, scope.has_network, hosts_one_in);
        return made_.ranks();
    }

    // Ranks cannot tell calls with other values from one another, so all have the same ones.
    Call draw_call(Kind kind) {
        Call call = drawer_.draw(kind);
        call.salt = 0;
        if (call.is_v_form()) draw_parts(call);
        if (call.is_collective() || kind == Kind::messages) draw_form(call);
        return call;
    }
    // Parts that are equal, or that one rank has alone: other shapes may give the same parts.
    void draw_parts(Call &call) {
        call.count = std::max(call.count, 1U);
        call.shape = below(2) == 0 ? Call::equal_parts : Call::one_part(below(made_.ranks()));
    }
    void draw_form(Call &call) {
        call.form = one_of(
            std::array{CallForm::plain, CallForm::plain, CallForm::prepared, CallForm::grouped});
        if (call.form == CallForm::prepared && call.kind == Kind::messages)
            call.form = CallForm::plain;
        if (call.form == CallForm::grouped) call.grouped = 1 + below(max_grouped);
    }
    // Draws a call that ranks can tell from `other`, or the same one.
    Call draw_unlike(Kind kind, const Call &other) {
        for (;;)
            if (const Call call = draw_call(kind); !call.differs_in_form(other)) return call;
    }
    // Draws mostly collectives, because calls that make communicators take longer.
    Call draw_agreed_call() {
        const int which = below(4 * collectives + comm_makers);
        return draw_call(which < 4 * collectives ? static_cast<Kind>(which % collectives)
                                                 : static_cast<Kind>(which - 3 * collectives));
    }

    // Returns whether a rank can differ from this call in the way that the sequence wants.
    bool can_differ(const Call &call) const {
        switch (made_.disagreement) {
        case Disagreement::root: return call.has_root();
        // With another count, the parts of a v-form may be the same.
        case Disagreement::count: return call.has_data() && !call.is_v_form();
        case Disagreement::type: return call.has_data();
        // A scan with a codec may only be a sum.
        case Disagreement::op: return call.reduces() && call.codec == nullptr;
        case Disagreement::codec: return may_be_encoded(call);
        // Calls of a group may be fused, and then the library chooses the algorithm.
        case Disagreement::algorithm: return call.algorithm != nullptr && call.grouped == 1;
        case Disagreement::split: return call.kind != Kind::split;
        // If the others shrink, they leave out a rank that ends the communicator: no disagreement.
        case Disagreement::shrink:
        case Disagreement::finalize:
        case Disagreement::destroy: return call.kind != Kind::shrink;
        default: return true;
        }
    }
    Call draw_call_to_differ() {
        for (;;) {
            const Call call = draw_call(static_cast<Kind>(below(collectives + comm_makers)));
            if (can_differ(call)) return call;
        }
    }

    // Appends one further call, each kind being equally likely, then some agreed calls, then
    // destroy.
    void draw_further(std::vector<Call> &calls) {
        // Messages go by channels of their own, where a disagreement about calls cannot be named.
        auto further = static_cast<Kind>(below(kinds));
        if (further == Kind::messages && made_.disagreement != Disagreement::none)
            further = Kind::barrier;
        if (further != Kind::destroy) calls.push_back(draw_unlike(further, Call(calls.back())));
        if (further < Kind::finalize)
            for (int i = below(3); i > 0; i--) calls.push_back(draw_agreed_call());
        calls.push_back({.kind = Kind::destroy});
    }

    void disagree(std::vector<Call> &calls, size_t at) {
        const auto here = calls.begin() + static_cast<std::ptrdiff_t>(at);
        switch (made_.disagreement) {
        case Disagreement::none: return;
        case Disagreement::order:
            if (here[1].kind < Kind::finalize && here[1] != here[0])
                std::swap(here[0], here[1]);
            else
                calls.insert(here, another_kind(here[0]));
            return;
        case Disagreement::left_out: calls.erase(here); return;
        case Disagreement::extra:
            calls.insert(here, draw_unlike(static_cast<Kind>(below(collectives + comm_makers)),
                                           Call(*here)));
            return;
        case Disagreement::destroy: calls.erase(here, calls.end() - 1); return;
        default: *here = differing_from(*here);
        }
    }
    Call another_kind(const Call &call) {
        constexpr int possible = collectives + comm_makers;
        const int other = (static_cast<int>(call.kind) + 1 + below(possible - 1)) % possible;
        return draw_call(static_cast<Kind>(other));
    }
    Call differing_from(const Call &call) {
        switch (made_.disagreement) {
        case Disagreement::kind: return another_kind(call);
        case Disagreement::split: return draw_call(Kind::split);
        case Disagreement::shrink: return draw_call(Kind::shrink);
        case Disagreement::finalize: return {.kind = Kind::finalize};
        default: break;
        }
        for (;;) {
            Call other = call;
            draw_difference(other);
            if (other != call && is_valid(other)) return other;
        }
    }
    void draw_difference(Call &call) {
        switch (made_.disagreement) {
        case Disagreement::root: call.root = below(made_.ranks()); break;
        case Disagreement::count:
            call.count = below(2) == 0 ? call.count + 1 : drawer_.draw_count();
            break;
        case Disagreement::type: call.type = below(types); break;
        case Disagreement::op: call.op = drawer_.draw_op(call.type, call.kind); break;
        case Disagreement::codec:
            call.codec = below(3) == 0 ? nullptr : drawer_.draw_codec();
            break;
        default: call.algorithm = drawer_.draw_algorithm(call.kind); break;
        }
    }

    Sequence made_;
    Random random_;
    CallDrawer drawer_;
};

} // namespace

const char *name(Disagreement disagreement) {
    static constexpr const char *names[disagreements] = {
        "none", "root",     "count", "type",  "op",     "codec",    "algorithm", "order",
        "kind", "left_out", "extra", "split", "shrink", "finalize", "destroy"};
    return names[static_cast<size_t>(disagreement)];
}

size_t Sequence::index_of(int rank, size_t position) const {
    const std::vector<Call> &own = calls[static_cast<size_t>(rank)];
    size_t index = 0;
    for (; index < own.size(); index++)
        if (own[index].kind != Kind::finalize && position-- == 0) break;
    return index;
}

std::optional<size_t> Sequence::first_difference() const {
    for (size_t position = 0;; position++)
        for (int rank = 0; rank < setting.ranks; rank++) {
            const Call &first = calls[0][index_of(0, position)];
            if (calls[static_cast<size_t>(rank)][index_of(rank, position)] != first)
                return position;
            if (rank == setting.ranks - 1 && first.kind == Kind::destroy) return std::nullopt;
        }
}

bool Sequence::may_meet_before_end() const {
    const std::optional<size_t> difference = first_difference();
    for (int rank = 0; rank < setting.ranks; rank++) {
        const auto &own = calls[static_cast<size_t>(rank)];
        if (own.size() != calls[0].size()) return false;
        if (!difference) continue;
        const auto from = own.begin() + static_cast<ptrdiff_t>(index_of(rank, *difference));
        const auto is_shrink = [](const Call &call) { return call.kind == Kind::shrink; };
        if (std::any_of(from, own.end(), is_shrink)) return false;
    }
    return disagreement != Disagreement::finalize;
}

Sequence make_sequence(uint64_t seed, const Scope &scope) { return Maker(seed, scope).run(); }

std::string text(const Sequence &sequence) {
    std::string said = say("%d %s on %d host(s)%s, splits into %d, disagreement: %s of rank %d",
                           sequence.ranks(), name(sequence.setting.runner), sequence.setting.hosts,
                           sequence.enqueues ? ", on streams" : "", sequence.colors,
                           name(sequence.disagreement), sequence.odd_rank);
    for (int rank = 0; rank < sequence.ranks(); rank++) {
        said += say("\n  rank %d:", rank);
        for (const Call &call : sequence.calls[static_cast<size_t>(rank)])
            said.append(" ").append(text(call)).append(";");
    }
    return said;
}

} // namespace stress
