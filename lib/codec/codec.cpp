// Checks which codecs are possible and which collectives, types and operations each supports, and
// computes the grid at which vectors are cut.
#include "codec/codec.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

namespace qccl {

namespace {

bool are_possible_bits(const CodecRow &row, uint8_t bits) {
    if (row.takes(SpecKey::bits)) return bits >= row.least_bits && bits <= most_code_bits;
    if (row.bits_names.empty()) return bits == row.usual.bits;
    return std::ranges::find(row.bits_names, bits, &BitsName::bits) != row.bits_names.end();
}

// Whether so many values may be rotated together, or share a scale where values are rotated, or in
// fp8: a warp of a GPU has whole blocks of them.
bool is_rotated_size(uint32_t values) {
    return std::has_single_bit(values) && values >= least_rotation && values <= most_rotation;
}

bool is_possible_bucket(const CodecRow &row, uint32_t bucket) {
    if (!row.takes(SpecKey::bucket) && (!row.takes(SpecKey::block) || row.cast))
        return bucket == row.usual.bucket;
    if (row.kind == CodecKind::scaled) return is_rotated_size(bucket);
    if (bucket == Codec::whole_chunk) return row.takes_whole_chunk;
    return bucket <= largest_bucket && bucket % row.bucket_step == 0;
}

bool is_threshold(float threshold) { return std::isnormal(threshold) && threshold > 0; }

bool is_possible_rotation(const Codec &codec) {
    if (codec.rotation == 0) return true;
    return codec.row().takes(SpecKey::rotate) && is_rotated_size(codec.rotation) &&
           is_rotated_size(codec.bucket);
}

bool is_possible_bound(const Codec &codec) {
    if (!codec.row().takes(SpecKey::abs))
        return codec.bound == 0 && !codec.is_relative && !codec.is_pointwise;
    if (codec.is_pointwise)
        return !codec.is_relative && codec.bound >= least_pointwise &&
               codec.bound <= largest_pointwise;
    return codec.is_relative ? codec.bound >= least_relative && codec.bound <= 1
                             : codec.bound >= least_absolute && codec.bound <= largest_absolute;
}

} // namespace

bool is_possible(const Codec &codec) {
    if (codec.shares_scales())
        return codec.shared_bits >= least_shared_bits && codec.shared_bits <= most_shared_bits &&
               codec.shared_block >= 1 && codec.shared_block <= largest_bucket &&
               is_possible(codec.without_use());
    const CodecRow &row = codec.row();
    // Whether the value is the usual one, or one of 1 to `most` that the key may give.
    const auto is_usual_or = [&row](SpecKey key, uint32_t value, uint32_t usual, uint32_t most) {
        return row.takes(key) ? value >= 1 && value <= most : value == usual;
    };
    if (&row == &unknown_codec || codec.is_auto()) return false;
    if (codec.rounding > Rounding::dither || (codec.dithers() && !row.takes_dither)) return false;
    if (!row.takes(SpecKey::round) && codec.rounding != row.usual.rounding) return false;
    if (!row.takes(SpecKey::scale) && codec.scaling != row.usual.scaling) return false;
    if (!row.takes(SpecKey::norm) && codec.norm != row.usual.norm) return false;
    if (!row.takes(SpecKey::levels) && codec.levels != row.usual.levels) return false;
    const bool has_grid = codec.has_grid(); // and always packs
    if ((has_grid || !row.takes(SpecKey::entropy)) && codec.packs != row.usual.packs) return false;
    if ((codec.codes_entropy && !has_grid) || !is_possible_bound(codec)) return false;
    if (!is_possible_rotation(codec)) return false;
    if (row.takes(SpecKey::threshold) ? !is_threshold(codec.threshold) : codec.threshold != 0)
        return false;
    // The bucket that is the whole chunk is never incomplete.
    if (codec.skips_incomplete &&
        (!row.takes(SpecKey::skip_incomplete) || codec.bucket == Codec::whole_chunk))
        return false;
    // These two may be zero.
    const auto is_possible_up_to = [&row](SpecKey key, uint32_t value, uint32_t most) {
        return value <= (row.takes(key) ? most : 0);
    };
    if (!is_possible_up_to(SpecKey::momentum, codec.momentum, whole_momentum - 1) ||
        !is_possible_up_to(SpecKey::warmup, codec.warm_up, longest_warm_up))
        return false;
    return are_possible_bits(row, codec.bits) && is_possible_bucket(row, codec.bucket) &&
           is_usual_or(SpecKey::clip, codec.clip, row.usual.clip, largest_clip) &&
           is_usual_or(SpecKey::ratio, codec.share, row.usual.share, whole_share);
}

Codec Codec::at_call(uint64_t call) const {
    // Each stage keeps a quarter of what the one before keeps, as in Deep Gradient Compression (Lin
    // and others, ICLR 2018).
    const auto share_of = [](unsigned stage) { return whole_share >> (2 * stage + 2); };
    Codec codec = *this;
    if (call == 0 || call > warm_up) return codec;
    unsigned stages = 0;
    while (share_of(stages) > share) stages++;
    const auto stage = static_cast<unsigned>((call - 1) * stages / warm_up);
    if (stages != 0) codec.share = share_of(stage);
    return codec;
}

// Returns the names of the collectives with owners, with "and" between them.
static std::string owners_calls() {
    std::string names;
    for (const Collective collective : value_collectives)
        if (has_owners(collective))
            names.append(names.empty() ? "" : " and ").append(name(collective));
    return names;
}

Done check_for_reductions(const Codec &codec) {
    if (codec.owner == OwnerKeeps::decoded) return {};
    return invalid_argument("codec %s: owner=exact is of %s, and a codec that calls do not name "
                            "themselves reaches reductions alone",
                            spec(codec).c_str(), owners_calls().c_str());
}

Done check_op(Collective collective, DataType type, RedOp op) {
    if (!reduces(collective) || takes(type, op)) return {};
    Names possible;
    for (const RedOp other : all_ops)
        if (takes(type, other)) possible.push_back(name(other));
    return invalid_argument("op is %s, which %s values do not have; possible are %s", name(op),
                            name(type), listed(possible).c_str());
}

Done check_type(const Codec &codec, DataType type) {
    if ((codec.is_lossless() && !codec.shares_scales()) || info(type).is_float) return {};
    return invalid_argument(
        "codec %s: %s values travel as they are, only floating point is encoded",
        spec(codec).c_str(), name(type));
}

static bool has_shared_scales(Collective collective) {
    return collective == Collective::all_reduce || collective == Collective::reduce ||
           collective == Collective::reduce_scatter;
}
static bool are_integers_added(RedOp op) { return op == RedOp::sum || op == RedOp::avg; }

Done check_codec(const Codec &codec, Collective collective, DataType type, RedOp op) {
    QCCL_TRY(check_op(collective, type, op));
    if (codec.sums_exactly && (!reduces(collective) || !adds(op) || !info(type).is_float))
        return invalid_argument(
            "codec exact: possible with sum and avg of floats, not with %s of %s",
            reduces(collective) ? name(op) : name(collective), name(type));
    if (codec.shares_scales() && (!has_shared_scales(collective) || !are_integers_added(op)))
        return invalid_argument(
            "codec %s: possible with sum and avg in all_reduce, reduce and reduce_scatter, not "
            "with %s in %s",
            spec(codec).c_str(), reduces(collective) ? name(op) : "no operation", name(collective));
    if (codec.is_lossless() && !codec.shares_scales()) return {};
    QCCL_TRY(check_type(codec, type));
    if (reduces(collective) && is_custom(op))
        return invalid_argument("codec %s: values that a function of the program combines travel "
                                "as they are",
                                spec(codec).c_str());
    if (reduces(collective) && !codec.is_plain() && !adds(op))
        return invalid_argument(
            "codec %s: possible with sum and avg, not with %s; fp16, bf16, the fp8 without a "
            "block, lossless and bound do every op",
            spec(codec).c_str(), name(op));
    if (codec.guard != 0 && !do_all_receive(collective))
        return invalid_argument("codec %s: a guard needs ranks that all hear of the error, in %s "
                                "some ranks hear of none",
                                spec(codec).c_str(), name(collective));
    if (codec.owner == OwnerKeeps::exact && !has_owners(collective))
        return invalid_argument("codec %s: owner=exact is of %s, where all ranks get the values "
                                "that one has; in %s it means nothing",
                                spec(codec).c_str(), owners_calls().c_str(), name(collective));
    return {};
}

size_t grain(const Codec &codec, const Codec &other) {
    return std::lcm(grain(codec), grain(other));
}

size_t grain(const Codec &codec) {
    constexpr size_t grid = 64; // a cache line of bytes, two groups of codes
    return std::lcm(codec.unit_values(), grid);
}

} // namespace qccl
