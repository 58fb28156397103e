// Draws the sequences that call_sequence.hpp describes from a random generator with the sequence's
// seed, finds where their ranks first disagree, and prints them.
#include "call_sequence.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

namespace sequences {

namespace {

using killable::say;

constexpr TypeRow type_table[types] = {
    {"int8", 1, 0, 0},     {"uint8", 1, 0, 0},  {"int32", 4, 0, 0},   {"uint32", 4, 0, 0},
    {"int64", 8, 0, 0},    {"uint64", 8, 0, 0}, {"half", 2, 5, 10},   {"float", 4, 8, 23},
    {"double", 8, 11, 52}, {"bf16", 2, 8, 7},   {"fp8e4m3", 1, 4, 3}, {"fp8e5m2", 1, 5, 2}};
constexpr int32_t float32 = 7, ops = 5, sum = 0, avg = 4;
constexpr int max_grouped = 4;
constexpr const char *op_names[ops] = {"sum", "prod", "max", "min", "avg"};

// Casts support every operation, the other codecs sum and avg.
constexpr const char *cast_codec = "bf16";
constexpr const char *codecs[] = {cast_codec,      "int8",   "int4",
                                  "minmax:bits=4", "onebit", "topk:ratio=0.1"};

// Algorithms by kind of call. All work with every number of ranks, on one host and on several.
constexpr const char *all_reduces[] = {"direct", "ring", "halving", "tree", "oneshot", "doubling"};
constexpr const char *scatters_and_gathers[] = {"direct", "ring", "halving"};
constexpr const char *broadcasts[] = {"direct", "ring", "tree"};
constexpr const char *reduces[] = {"direct", "ring", "halving", "tree", "oneshot"};
constexpr const char *with_root[] = {"direct", "tree"};
constexpr const char *exchanges[] = {"direct", "pairwise", "bruck", "oneshot"};
constexpr const char *prefixes[] = {"chain", "oneshot", "doubling"};

class Maker {
public:
    Maker(uint64_t seed, const Scope &scope) : random_(seed), scope_(scope) {
        made_.seed = seed;
        draw_setting();
        made_.disagreement = static_cast<Disagreement>(below(disagreements));
        made_.odd_rank = below(made_.ranks);
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
        made_.calls.assign(static_cast<size_t>(made_.ranks), calls);
        disagree(made_.calls[static_cast<size_t>(made_.odd_rank)], at);
        return made_;
    }

private:
    int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
    template <class Table> auto one_of(const Table &table) {
        return table[static_cast<size_t>(below(static_cast<int>(std::size(table))))];
    }

    void draw_setting() {
        made_.ranks = 2 + below(max_ranks - 1);
        made_.runner = one_of(std::array{Runner::init_all, Runner::init_all, Runner::threads,
                                         Runner::processes, Runner::processes});
        const int hosts = below(3) == 0 ? 2 + below(made_.ranks - 1) : 1;
        if (made_.runner != Runner::init_all && scope_.has_network) made_.hosts = hosts;
        made_.enqueues = below(8) == 0;
        made_.colors = 1 + below(2);
    }

    // Seldom returns a large count.
    uint32_t draw_count() {
        static constexpr int bounds[] = {1, 2, 64, 64, 64, 2000, 2000, 20000, 100001};
        return static_cast<uint32_t>(below(below(4) == 0 ? one_of(bounds) : 200));
    }
    int32_t draw_type() { return below(2) == 0 ? float32 : below(types); }
    const char *draw_algorithm(Kind kind) {
        switch (kind) {
        case Kind::all_reduce: return one_of(all_reduces);
        case Kind::reduce: return one_of(reduces);
        case Kind::broadcast: return one_of(broadcasts);
        case Kind::gather:
        case Kind::scatter: return one_of(with_root);
        case Kind::all_to_all: return one_of(exchanges);
        case Kind::scan:
        case Kind::exscan: return one_of(prefixes);
        default: return one_of(scatters_and_gathers);
        }
    }
    static bool can(const char *codec, const Call &call) {
        if (codec == nullptr) return true;
        if (!type_row(call.type).is_float()) return false;
        return !call.reduces() || codec == cast_codec || call.op == sum || call.op == avg;
    }

    Call draw_call(Kind kind) {
        Call call{.kind = kind};
        if (call.has_root()) call.root = below(made_.ranks);
        if (call.is_collective() || kind == Kind::messages) draw_form(call);
        if (!call.has_data()) return call;
        call.count = draw_count();
        call.type = draw_type();
        if (call.reduces()) call.op = below(2) == 0 ? sum : below(ops_of(call));
        if (const char *codec = one_of(codecs); below(3) == 0 && can(codec, call))
            call.codec = codec;
        if (below(3) == 0 && kind != Kind::messages) call.algorithm = draw_algorithm(kind);
        return call;
    }
    // Scans have no averages.
    static int ops_of(const Call &call) { return call.is_prefix() ? avg : ops; }
    void draw_form(Call &call) {
        call.form = one_of(
            std::array{CallForm::plain, CallForm::plain, CallForm::prepared, CallForm::grouped});
        if (call.kind == Kind::messages && call.form == CallForm::prepared)
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
        case Disagreement::count:
        case Disagreement::type: return call.has_data();
        // A scan with a codec may only be a sum.
        case Disagreement::op:
            return call.reduces() && !(call.is_prefix() && call.codec != nullptr);
        case Disagreement::codec: return call.has_data() && type_row(call.type).is_float();
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
            if (other != call && can(other.codec, other)) return other;
        }
    }
    void draw_difference(Call &call) {
        switch (made_.disagreement) {
        case Disagreement::root: call.root = below(made_.ranks); break;
        case Disagreement::count: call.count = below(2) == 0 ? call.count + 1 : draw_count(); break;
        case Disagreement::type: call.type = below(types); break;
        case Disagreement::op: call.op = below(ops_of(call)); break;
        case Disagreement::codec: call.codec = below(3) == 0 ? nullptr : one_of(codecs); break;
        default: call.algorithm = draw_algorithm(call.kind); break;
        }
    }

    std::mt19937_64 random_;
    const Scope scope_;
    Sequence made_;
};

} // namespace

const char *name(Kind kind) {
    static constexpr const char *names[kinds] = {
        "all_reduce", "reduce_scatter", "reduce", "scan",    "exscan",
        "all_gather", "broadcast",      "gather", "scatter", "all_to_all",
        "barrier",    "split",          "shrink", "dup",     "messages",
        "finalize",   "destroy"};
    return names[static_cast<size_t>(kind)];
}

const char *name(Disagreement disagreement) {
    static constexpr const char *names[disagreements] = {
        "none", "root",     "count", "type",  "op",     "codec",    "algorithm", "order",
        "kind", "left_out", "extra", "split", "shrink", "finalize", "destroy"};
    return names[static_cast<size_t>(disagreement)];
}

const char *name(Runner runner) {
    static constexpr const char *names[] = {"threads of qcclCommInitAll", "threads", "processes"};
    return names[static_cast<size_t>(runner)];
}

const TypeRow &type_row(int32_t type) { return type_table[type]; }

std::string text(const Call &call) {
    std::string said = name(call.kind);
    if (call.form == CallForm::prepared) said += " prepared";
    if (call.form == CallForm::grouped) said += say(" in a group of %d", call.grouped);
    if (!call.has_data()) return said;
    said += say(" %u %s", call.count, type_row(call.type).name);
    if (call.reduces()) said += say(" %s", op_names[call.op]);
    if (call.has_root()) said += say(" root=%d", call.root);
    if (call.codec != nullptr) said += say(" %s", call.codec);
    if (call.algorithm != nullptr) said += say(" %s", call.algorithm);
    return said;
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
        for (int rank = 0; rank < ranks; rank++) {
            const Call &first = calls[0][index_of(0, position)];
            if (calls[static_cast<size_t>(rank)][index_of(rank, position)] != first)
                return position;
            if (rank == ranks - 1 && first.kind == Kind::destroy) return std::nullopt;
        }
}

bool Sequence::may_meet_before_end() const {
    const std::optional<size_t> difference = first_difference();
    for (int rank = 0; rank < ranks; rank++) {
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
    std::string said =
        say("%d %s on %d host(s)%s, splits into %d, disagreement: %s of rank %d", sequence.ranks,
            name(sequence.runner), sequence.hosts, sequence.enqueues ? ", on streams" : "",
            sequence.colors, name(sequence.disagreement), sequence.odd_rank);
    for (int rank = 0; rank < sequence.ranks; rank++) {
        said += say("\n  rank %d:", rank);
        for (const Call &call : sequence.calls[static_cast<size_t>(rank)])
            said.append(" ").append(text(call)).append(";");
    }
    return said;
}

} // namespace sequences
