// The tables of stress_call.hpp, and the random choice of calls.
#include "stress_call.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace stress {

namespace {

using killable::say;
using enum TypeClass;

constexpr TypeRow type_table[types] = {
    {"int8", 0, 1, integer, 1, 0, 0, 0},        {"uint8", 1, 1, unsigned_integer, 1, 0, 0, 0},
    {"int32", 2, 4, integer, 4, 0, 0, 0},       {"uint32", 3, 4, unsigned_integer, 4, 0, 0, 0},
    {"int64", 4, 8, integer, 8, 0, 0, 0},       {"uint64", 5, 8, unsigned_integer, 8, 0, 0, 0},
    {"half", 6, 2, real, 2, 5, 10, 0},          {"float", 7, 4, real, 4, 8, 23, 0},
    {"double", 8, 8, real, 8, 11, 52, 0},       {"bf16", 9, 2, real, 2, 8, 7, 0},
    {"fp8e4m3", 10, 1, real, 1, 4, 3, 0},       {"fp8e5m2", 11, 1, real, 1, 5, 2, 0},
    {"int16", 64, 2, integer, 2, 0, 0, 0},      {"uint16", 65, 2, unsigned_integer, 2, 0, 0, 0},
    {"complex64", 66, 8, complex, 4, 8, 23, 0}, {"complex128", 67, 16, complex, 8, 11, 52, 0},
    {"bool", 68, 1, boolean, 1, 0, 0, 0},       {"float_int", 69, 8, pair, 4, 8, 23, 4},
    {"double_int", 70, 16, pair, 8, 11, 52, 8}, {"long_int", 71, 16, pair, 8, 0, 0, 8},
    {"int_int", 72, 8, pair, 4, 0, 0, 4},       {"short_int", 73, 8, pair, 2, 0, 0, 4}};

// Casts support every operation, the other codecs sum and avg.
constexpr const char *cast_codec = "bf16";
constexpr const char *codecs[] = {cast_codec,      "int8",   "int4",
                                  "minmax:bits=4", "onebit", "topk:ratio=0.1"};

// Algorithms by kind of call. All work with every number of ranks, on one host and on several.
constexpr const char *all_reduces[] = {"direct", "ring", "halving", "tree", "oneshot", "doubling"};
constexpr const char *reduce_scatters[] = {"direct", "ring", "halving", "oneshot"};
constexpr const char *all_gathers[] = {"direct",  "ring",  "halving",
                                       "oneshot", "bruck", "neighbour"};
constexpr const char *by_counts[] = {"direct", "ring", "halving", "oneshot"};
constexpr const char *broadcasts[] = {"direct", "ring", "tree", "oneshot"};
constexpr const char *reduces[] = {"direct", "ring", "halving", "tree", "oneshot", "chain"};
constexpr const char *with_root[] = {"direct", "tree"};
constexpr const char *straight[] = {"direct", "oneshot"};
constexpr const char *exchanges[] = {"direct", "pairwise", "bruck", "oneshot"};
constexpr const char *exchanges_v[] = {"direct", "pairwise", "oneshot"};
constexpr const char *prefixes[] = {"chain", "oneshot", "doubling"};

} // namespace

const char *name(Kind kind) {
    static constexpr const char *names[] = {
        "all_reduce", "reduce_scatter", "reduce_scatter_v", "reduce",  "scan",     "exscan",
        "all_gather", "all_gather_v",   "broadcast",        "gather",  "gather_v", "scatter",
        "scatter_v",  "all_to_all",     "all_to_all_v",     "barrier", "split",    "shrink",
        "dup",        "messages",       "finalize",         "destroy", "message"};
    return names[static_cast<size_t>(kind)];
}

const TypeRow &type_row(int32_t type) { return type_table[type]; }

const char *name(Op op) {
    static constexpr const char *names[] = {
        "sum",     "prod",    "max",           "min",        "avg",         "bit_and",
        "bit_or",  "bit_xor", "logical_and",   "logical_or", "logical_xor", "min_loc",
        "max_loc", "made",    "made_in_order", "pre_mul_sum"};
    return names[static_cast<size_t>(op)];
}

std::vector<Op> ops_of(int32_t type, Kind kind) {
    std::vector<Op> ops;
    const auto add = [&](Op first, Op last) {
        for (int op = static_cast<int>(first); op <= static_cast<int>(last); op++)
            ops.push_back(static_cast<Op>(op));
    };
    const TypeClass of = type_row(type).of;
    const bool is_integer = of == integer || of == unsigned_integer;
    const bool is_number = is_integer || of == real || of == complex;
    if (is_number) add(Op::sum, Op::prod);
    if (is_number && of != complex) add(Op::max, Op::min);
    if (of == boolean) add(Op::max, Op::min);
    // Scans have no averages.
    if (is_number && kind != Kind::scan && kind != Kind::exscan) add(Op::avg, Op::avg);
    if (is_integer || of == boolean) add(Op::bit_and, Op::logical_xor);
    if (of == pair) add(Op::min_loc, Op::max_loc);
    add(Op::made, Op::made_in_order);
    if (is_number) add(Op::pre_mul_sum, Op::pre_mul_sum);
    return ops;
}

uint32_t Call::part(int from, int to) const {
    if (!is_v_form()) return count;
    const bool by_both = kind == Kind::all_to_all_v;
    const int which = by_both ? from * max_ranks + to : gathers() ? from : to;
    const auto ranks = static_cast<uint64_t>(max_ranks);
    const uint64_t drawn = mixed(uint64_t{shape} * 1315423911U + static_cast<uint64_t>(which));
    switch (shape % 5) {
    case 0: return count; // equal parts
    case 1: return shape / 5 % ranks == static_cast<uint64_t>(gathers() ? from : to) ? count : 0;
    case 2: return drawn % 2 == 0 ? 0 : static_cast<uint32_t>(drawn / 2 % (count + 1));
    case 3: // the parts of two ranks are equal in both directions
        return by_both ? (count + static_cast<uint32_t>(from + to)) % (count + 1)
                       : static_cast<uint32_t>(drawn % (count + 1));
    default: return static_cast<uint32_t>(drawn % (count + 1));
    }
}

std::string text(const Call &call) {
    std::string said = name(call.kind);
    if (call.form == CallForm::prepared) said += " prepared";
    if (call.form == CallForm::grouped) said += say(" in a group of %d", call.grouped);
    if (!call.has_data()) return said;
    said += say(" %u %s", call.count, type_row(call.type).name);
    if (call.is_v_form()) said += say(" shape=%u", call.shape);
    if (call.reduces()) said += say(" %s", name(call.op));
    if (call.has_root()) said += say(" root=%d", call.root);
    if (call.kind == Kind::message) said += say(" %d->%d", call.root, call.dest);
    if (call.codec != nullptr) said += say(" %s", call.codec);
    if (call.algorithm != nullptr) said += say(" %s", call.algorithm);
    return said;
}

bool can_encode(const char *codec, const Call &call) {
    if (codec == nullptr) return true;
    const TypeClass of = type_row(call.type).of;
    if (of != real && of != complex) return false;
    if (!call.reduces() || call.op == Op::sum || call.op == Op::avg) return true;
    // A scan with a codec may only be a sum.
    if (of == complex || call.is_prefix()) return false;
    return call.op == Op::pre_mul_sum || (codec == cast_codec && call.op <= Op::avg);
}

bool may_be_encoded(const Call &call) { return call.has_data() && can_encode(cast_codec, call); }

bool is_valid(const Call &call) {
    if (!can_encode(call.codec, call)) return false;
    if (!call.reduces()) return true;
    // Only some algorithms keep the order of ranks; the library knows which.
    if (call.op == Op::made_in_order && call.algorithm != nullptr) return false;
    const std::vector<Op> ops = ops_of(call.type, call.kind);
    return std::find(ops.begin(), ops.end(), call.op) != ops.end();
}

// The values that are encoded are small whole numbers.
bool is_exact(const Call &call) { return call.codec == nullptr || call.codec == cast_codec; }

// Seldom returns a large count.
uint32_t CallDrawer::draw_count() {
    static constexpr int bounds[] = {1, 2, 64, 64, 64, 2000, 2000, 20000, 100001};
    return static_cast<uint32_t>(
        random_.below(random_.below(4) == 0 ? random_.one_of(bounds) : 200));
}

Op CallDrawer::draw_op(int32_t type, Kind kind) { return random_.one_of(ops_of(type, kind)); }
const char *CallDrawer::draw_codec() { return random_.one_of(codecs); }

const char *CallDrawer::draw_algorithm(Kind kind) {
    switch (kind) {
    case Kind::all_reduce: return random_.one_of(all_reduces);
    case Kind::reduce_scatter: return random_.one_of(reduce_scatters);
    case Kind::reduce: return random_.one_of(reduces);
    case Kind::all_gather: return random_.one_of(all_gathers);
    case Kind::broadcast: return random_.one_of(broadcasts);
    case Kind::gather:
    case Kind::scatter: return random_.one_of(with_root);
    case Kind::all_to_all: return random_.one_of(exchanges);
    case Kind::all_to_all_v: return random_.one_of(exchanges_v);
    case Kind::scan:
    case Kind::exscan: return random_.one_of(prefixes);
    case Kind::barrier: return random_.below(2) == 0 ? "oneshot" : "doubling";
    case Kind::reduce_scatter_v:
    case Kind::all_gather_v: return random_.one_of(by_counts);
    default: return random_.one_of(straight); // messages, too
    }
}

Call CallDrawer::draw(Kind kind) {
    Call call{.kind = kind};
    if (call.has_root()) call.root = random_.below(ranks_);
    if (!call.has_data()) return call;
    call.count = draw_count();
    call.type = draw_type();
    call.salt = static_cast<uint32_t>(random_.bits());
    if (call.is_v_form()) call.shape = static_cast<uint32_t>(random_.below(1 << 20));
    const bool is_usual = random_.below(3) == 0;
    const Op usual = ops_of(call.type, kind).front();
    if (call.reduces()) call.op = is_usual ? usual : draw_op(call.type, kind);
    if (const char *codec = draw_codec(); random_.below(3) == 0 && can_encode(codec, call))
        call.codec = codec;
    Call chosen = call;
    chosen.algorithm = draw_algorithm(kind);
    return random_.below(3) == 0 && is_valid(chosen) ? chosen : call;
}

} // namespace stress
