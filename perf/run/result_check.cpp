// Implements result_check.hpp: reads the inputs of all ranks and combines them in double or
// int64_t, compares a result with the exact one block by block, and derives the bounds for rounding
// and for codecs.
#include "perf/run/result_check.hpp"

#include "codec/shared_scales.hpp"
#include "kernels/codec/number.hpp"
#include "perf/run/input_data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace qccl::perf {

// ---- Exact result

Operation in_reals(Operation operation) {
    operation.count *= reals_of(operation.type);
    if (operation.parts) operation.parts = operation.parts->in_reals(reals_of(operation.type));
    operation.type = real_type(operation.type);
    return operation;
}

const std::byte *ExactResult::read(uint32_t giver, uint64_t first, size_t count) {
    raw_.resize(count * type_bytes(operation_.type));
    source_.read(giver, operation_.type, first, count, raw_.data());
    return raw_.data();
}

// Calls `use(i, value, is_first)` for every input of every element i of the range. An element of a
// collective that does not reduce has one input.
template <class T, class Load, class Use>
void ExactResult::for_each_input(uint32_t rank, uint64_t first, size_t count, Load load, Use use) {
    std::vector<T> values(count);
    const auto take = [&](uint32_t giver, uint64_t giver_first, size_t at, size_t part,
                          bool is_first) {
        load(operation_.type, read(giver, giver_first, part), part, values.data());
        if (operation_.op == RedOp::pre_mul_sum)
            for (size_t i = 0; i < part; i++) values[i] *= static_cast<T>(scalar_of(giver));
        for (size_t i = 0; i < part; i++) use(at + i, values[i], is_first);
    };
    const CollectiveRow &row = row_of(operation_.collective);
    if (row.reduces) {
        const uint64_t begin = first + operation_.recv_in_place_start(rank);
        const uint32_t givers = covered_ranks(operation_.collective, rank, operation_.ranks);
        for (uint32_t giver = 0; giver < givers; giver++) take(giver, begin, 0, count, giver == 0);
    } else if (operation_.pattern == Pattern::sendrecv) {
        take((rank + operation_.ranks - 1) % operation_.ranks, first, 0, count, true);
    } else if (row.has_one_source && !gathers(operation_.kind())) {
        take(operation_.root, first + operation_.recv_in_place_start(rank), 0, count, true);
    } else {
        uint64_t start = 0; // of the giver's part in what the rank receives
        for (uint32_t giver = 0; giver < operation_.ranks && start < first + count; giver++) {
            const uint64_t end = start + operation_.part_count(giver, rank);
            const uint64_t from = std::max(first, start), to = std::min(first + count, end);
            if (from < to)
                take(giver, operation_.part_start(giver, rank) + from - start, from - first,
                     to - from, true);
            start = end;
        }
    }
}

// Multiplies the number whose imaginary part is dst[imaginary].
void ExactResult::multiply(size_t imaginary, double re, double im, bool is_first, double *dst,
                           double *magnitudes) const {
    double *const at = dst + imaginary - 1;
    const double a = is_first ? 1 : at[0], b = is_first ? 0 : at[1];
    const double before = is_first ? 1 : magnitudes[imaginary];
    at[0] = is_first ? re : a * re - b * im;
    at[1] = is_first ? im : a * im + b * re;
    magnitudes[imaginary - 1] = magnitudes[imaginary] = before * (std::fabs(re) + std::fabs(im));
}

void ExactResult::reals(uint32_t rank, uint64_t first, size_t count, double *dst,
                        double *magnitudes) {
    const RedOp op = operation_.op;
    const auto combine = [op](double a, double b) {
        switch (op) {
        case RedOp::prod: return a * b;
        case RedOp::max: return maximum(a, b);
        case RedOp::min: return minimum(a, b);
        default: return a + b;
        }
    };
    double real_part = 0;
    for_each_input<double>(rank, first, count, load_reals,
                           [&](size_t i, double value, bool is_first) {
                               if (multiplies_complex_) {
                                   largest_ = std::max(largest_, std::fabs(value));
                                   if (i % 2 == 0)
                                       real_part = value;
                                   else
                                       multiply(i, real_part, value, is_first, dst, magnitudes);
                                   return;
                               }
                               dst[i] = is_first ? value : combine(dst[i], value);
                               const double magnitude = std::fabs(value);
                               largest_ = std::max(largest_, magnitude);
                               if (is_first)
                                   magnitudes[i] = magnitude;
                               else
                                   magnitudes[i] = op == RedOp::prod ? magnitudes[i] * magnitude
                                                                     : magnitudes[i] + magnitude;
                           });
    if (!reduces(operation_.collective) || op != RedOp::avg) return;
    for (size_t i = 0; i < count; i++) dst[i] /= operation_.ranks;
}

static int64_t wrapped(DataType type, int64_t value) {
    switch (type) {
    case DataType::int8: return static_cast<int8_t>(value);
    case DataType::uint8: return static_cast<uint8_t>(value);
    case DataType::int16: return static_cast<int16_t>(value);
    case DataType::uint16: return static_cast<uint16_t>(value);
    case DataType::int32: return static_cast<int32_t>(value);
    case DataType::uint32: return static_cast<uint32_t>(value);
    default: return value;
    }
}

static int64_t combine(DataType type, RedOp op, int64_t a, int64_t b) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    const bool a_is_less = type == DataType::uint64 ? x < y : a < b;
    switch (op) {
    case RedOp::prod: return wrapped(type, static_cast<int64_t>(x * y));
    case RedOp::max: return a_is_less ? b : a;
    case RedOp::min: return a_is_less ? a : b;
    case RedOp::bit_and: return a & b;
    case RedOp::bit_or: return a | b;
    case RedOp::bit_xor: return a ^ b;
    case RedOp::logical_and: return a != 0 && b != 0 ? 1 : 0;
    case RedOp::logical_or: return a != 0 || b != 0 ? 1 : 0;
    case RedOp::logical_xor: return (a != 0) != (b != 0) ? 1 : 0;
    // The value stands above the index.
    case RedOp::min_loc: return std::min(a, b);
    case RedOp::max_loc:
        return pair_steps_of(a) == pair_steps_of(b) ? std::min(a, b) : std::max(a, b);
    default: return wrapped(type, static_cast<int64_t>(x + y));
    }
}

void ExactResult::integers(uint32_t rank, uint64_t first, size_t count, int64_t *dst) {
    for_each_input<int64_t>(
        rank, first, count, load_integers, [&](size_t i, int64_t value, bool is_first) {
            dst[i] = is_first ? value : combine(operation_.type, operation_.op, dst[i], value);
        });
    if (!reduces(operation_.collective) || operation_.op != RedOp::avg) return;
    const auto divide = [this](int64_t value) {
        const auto bits = static_cast<uint64_t>(value);
        if (operation_.type == DataType::uint64)
            return static_cast<int64_t>(bits / operation_.ranks);
        return value / static_cast<int64_t>(operation_.ranks);
    };
    std::transform(dst, dst + count, dst, divide);
}

// ---- Check

static constexpr size_t check_block = 4096; // elements compared at a time

// What one rank found in its part of the result.
struct Findings {
    double error_squares = 0, value_squares = 0;
    double max_abs_err = 0;
    double largest_input = 0;
    uint64_t non_finite = 0;
    uint64_t overflowed = 0;
    uint64_t dropped = 0; // NaN or Inf expected, but the result is a number
    uint64_t wrong = 0;
};

struct Part {
    uint64_t begin = 0, end = 0;
};

// A step in units of the largest value. A value above the lowest of the exponential levels is less
// than itself away from either neighbour.
static double norm_bound(const Codec &codec) {
    const bool is_l2 = codec.norm == BucketNorm::l2;
    const double norm = is_l2 ? std::sqrt(codec.bucket) : 1, levels = norm_levels(codec.bits);
    const double step = codec.levels == Levels::uniform
                            ? norm / levels
                            : std::max(norm * std::exp2(1 - levels), is_l2 ? 1 : 0.5);
    return 1.01 * step;
}

double encode_bound(const Codec &codec) {
    // A rotated value may be as large as the root of d times the largest value, and an error that
    // is rotated back that much larger again.
    if (codec.rotation != 0) {
        Codec plain = codec;
        plain.rotation = 0;
        return codec.rotation * encode_bound(plain);
    }
    // Scales are rounded too, by less than this factor.
    static constexpr double scale_slack = 1.01;
    // Half a step of a scale for the largest value of all ranks.
    if (codec.shares_scales()) return scale_slack / 2 / shared_limit(codec);
    const CodecRow &row = codec.row();
    switch (row.kind) {
    case CodecKind::plain: return 0;
    case CodecKind::cast: // a whole step, if chance may take either neighbour
        return unit_roundoff(*row.cast) * (codec.rounding == Rounding::nearest ? 1 : 2);
    // Relative: of the range, which is at most twice the largest value.
    case CodecKind::grid: return codec.is_relative ? 2.0 * codec.bound : codec.bound;
    // A whole step, because stochastic rounding may take either neighbour, and the negative of the
    // largest value has no code.
    // Dither moves it by up to half a step more.
    case CodecKind::integer:
        return scale_slack * std::ldexp(codec.dithers() ? 1.5 : 1.0, 1 - codec.bits);
    case CodecKind::minmax: return scale_slack * 2 / (std::ldexp(1.0, codec.bits) - 1);
    // A whole step of a norm that may be the root of the bucket's size times the largest value.
    case CodecKind::norm: return norm_bound(codec);
    // One step next to the largest element; OCP's scale may clip the largest element by as much.
    case CodecKind::scaled: return scale_slack * std::ldexp(1.0, -row.element.fraction_bits);
    case CodecKind::mx:
    case CodecKind::nvfp4: return std::ldexp(1.0, -row.element.fraction_bits);
    case CodecKind::onebit:
    case CodecKind::terngrad:
    case CodecKind::tbq:
    case CodecKind::dummy:
    case CodecKind::topk: return 1; // a value may become anything up to the largest value, or zero
    }
    return 0;
}

static uint64_t hash_of(const std::byte *data, size_t bytes) {
    uint64_t hash = 0xCBF29CE484222325ULL + bytes;
    const auto take = [&hash](uint64_t word) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
    };
    size_t at = 0;
    for (uint64_t word = 0; at + sizeof word <= bytes; at += sizeof word) {
        std::memcpy(&word, data + at, sizeof word);
        take(word);
    }
    uint64_t rest = 0;
    if (at < bytes) std::memcpy(&rest, data + at, bytes - at);
    take(rest);
    return hash;
}

static bool is_exact(const Operation &operation, const Source &source) {
    if (!reduces(operation.collective) || operation.op == RedOp::max || operation.op == RedOp::min)
        return true;
    const uint32_t largest_scalar = operation.op == RedOp::pre_mul_sum ? most_scalar : 1;
    return operation.op != RedOp::prod &&
           operation.ranks * largest_scalar <= source.exact_ranks(operation.type);
}

static bool rounds_twice(RedOp op) { return op == RedOp::prod || op == RedOp::pre_mul_sum; }

// The largest error of a lossless sum or product of `ranks` values: one rounding for each value, or
// two of complex factors and of scaled values, relative to the magnitudes, plus up to one smallest
// step each time for underflow.
static double rounding_bound(const Operation &operation, double magnitude) {
    const double ranks = operation.ranks, roundings = rounds_twice(operation.op) ? 2 : 1;
    const double share = operation.op == RedOp::avg ? 1 / ranks : 1;
    return roundings * (ranks + 1) *
           (unit_roundoff(operation.type) * magnitude * share * 1.0001 +
            smallest_step(operation.type));
}

// The largest change of a result value by the codec. Values that share a scale are at most k *
// `largest` after k ranks. Each rank may encode (as in a ring), and each encode also encodes the
// errors of those before.
static double codec_bound(const Operation &operation, const Codec &codec, const Findings &all) {
    const double ranks = operation.ranks, bound = encode_bound(codec);
    const double growth = std::pow(1 + bound, ranks);
    const bool is_absolute =
        codec.has_grid() && !codec.is_relative && !codec.is_pointwise && !codec.shares_scales();
    const double largest = is_absolute ? 1 : all.largest_input;
    // Each round encodes what earlier rounds have brought.
    if (operation.pattern == Pattern::hypercube)
        return growth * bound * largest * std::bit_width(operation.ranks);
    if (!reduces(operation.collective)) return bound * largest;
    if (operation.op == RedOp::max || operation.op == RedOp::min)
        return growth * bound * ranks * largest;
    if (operation.op == RedOp::prod) // casts and grids alone support products
        return growth * bound * 2 * ranks * std::pow(std::max(1.0, all.largest_input), ranks);
    const double sum = growth * bound * largest * ranks * (ranks + 1) / 2;
    return operation.op == RedOp::avg ? sum / ranks : sum;
}

// Casts saturate: a value beyond the range loses the excess, in the worst case at every rank.
static double saturation_bound(const Operation &operation, const Codec &codec,
                               const Findings &all) {
    if (!codec.is_cast()) return 0;
    const FloatFormat &format = info(*codec.row().cast).format;
    if (format.highest == info(DataType::float32).format.highest) return 0; // the range of fp32
    const double ranks = operation.ranks;
    const double peak = !reduces(operation.collective) ? all.largest_input
                        : adds(operation.op)           ? all.largest_input * ranks
                        : operation.op == RedOp::prod  ? std::pow(all.largest_input, ranks)
                                                       : all.largest_input;
    return ranks * std::max(0.0, peak - format.largest);
}

static void look_at_integers(const Operation &operation, ExactResult &exact, uint32_t rank,
                             Part part, const std::byte *result, Findings &found) {
    int64_t wanted[check_block], got[check_block];
    const size_t bytes = type_bytes(operation.type);
    for (uint64_t at = part.begin; at < part.end; at += check_block) {
        const size_t count = std::min<uint64_t>(check_block, part.end - at);
        exact.integers(rank, at, count, wanted);
        load_integers(operation.type, result + at * bytes, count, got);
        for (size_t i = 0; i < count; i++) found.wrong += wanted[i] != got[i];
    }
}

// Rounds the values once to the type, as a lossless result is rounded.
static void round_to(DataType type, double *values, size_t count) {
    std::byte stored[check_block * sizeof(double)];
    store_reals(type, values, count, stored);
    load_reals(type, stored, count, values);
}

// NaN counts as the largest, whichever argument it is.
static double larger_error(double a, double b) { return a > b || std::isnan(a) ? a : b; }

// Counts elements as wrong if their error exceeds `bound`, or without a bound, what rounding
// explains.
static void look_at_reals(const Operation &operation, ExactResult &exact, uint32_t rank, Part part,
                          const std::byte *result, bool is_bitwise, std::optional<double> bound,
                          Findings &found) {
    double wanted[check_block], rounded[check_block], magnitude[check_block],
        largest_sum[check_block], got[check_block];
    const bool may_overflow =
        reduces(operation.collective) && operation.op != RedOp::max && operation.op != RedOp::min;
    const size_t bytes = type_bytes(operation.type);
    for (uint64_t at = part.begin; at < part.end; at += check_block) {
        const size_t count = std::min<uint64_t>(check_block, part.end - at);
        exact.reals(rank, at, count, wanted, magnitude);
        load_reals(operation.type, result + at * bytes, count, got);
        std::copy_n(wanted, count, rounded);
        round_to(operation.type, rounded, count);
        std::copy_n(magnitude, count, largest_sum);
        round_to(operation.type, largest_sum, count);
        for (size_t i = 0; i < count; i++) {
            if (!std::isfinite(wanted[i]) || !std::isfinite(magnitude[i])) {
                found.non_finite++;
                found.dropped += !std::isfinite(wanted[i]) && std::isfinite(got[i]);
                continue;
            }
            if (may_overflow && !std::isfinite(largest_sum[i])) {
                found.overflowed++;
                continue;
            }
            const double error = std::fabs(got[i] - wanted[i]);
            found.error_squares += error * error;
            found.value_squares += wanted[i] * wanted[i];
            found.max_abs_err = larger_error(found.max_abs_err, error);
            const double allowed = bound ? *bound : rounding_bound(operation, magnitude[i]);
            found.wrong += is_bitwise ? got[i] != rounded[i] : !(error <= allowed);
        }
    }
    found.largest_input = std::max(found.largest_input, exact.largest_input());
}

static Findings combined(const std::vector<Findings> &parts) {
    Findings all;
    for (const Findings &part : parts) {
        all.error_squares += part.error_squares;
        all.value_squares += part.value_squares;
        all.max_abs_err = larger_error(all.max_abs_err, part.max_abs_err);
        all.largest_input = std::max(all.largest_input, part.largest_input);
        all.non_finite += part.non_finite;
        all.overflowed += part.overflowed;
        all.dropped += part.dropped;
        all.wrong += part.wrong;
    }
    return all;
}

static CheckResult result_of(const Findings &all, const Operation &operation,
                             std::optional<bool> agree) {
    CheckResult result;
    result.wrong = all.wrong + all.dropped;
    result.overflowed = all.overflowed;
    result.ranks_agree = agree;
    if (agree == false) result.wrong = std::max<uint64_t>(result.wrong, 1);
    if (!info(operation.type).is_float || all.non_finite + all.overflowed > 0) return result;
    result.max_abs_err = all.max_abs_err;
    if (all.error_squares == 0)
        result.nmse = 0;
    else if (all.value_squares > 0)
        result.nmse = all.error_squares / all.value_squares;
    return result;
}

namespace {

// Compares the results of all ranks where only the owners of values need not have the same as the
// others, each in the part that it owns. A sum over the parts' hashes is the same for all ranks if
// each rank leaves out its own part and gets that part's hash from the rank before it.
struct OwnedHashes {
    uint64_t others = 0;   // the sum of the hashes of the other ranks' parts
    uint64_t of_after = 0; // the hash of what the rank after this one owns
};

} // namespace

// Returns the elements of a result that the owner gives to all ranks.
static Part owned_part(const Operation &operation, uint32_t owner) {
    if (row_of(operation.collective).has_root)
        return {0, owner == operation.root ? operation.recv_count() : 0};
    Part part;
    for (uint32_t giver = 0; giver <= owner; giver++)
        part = {part.end, part.end + operation.part_count(giver, owner)};
    return part;
}

static Result<bool> others_agree(RankGroup &rank_group, const Operation &operation,
                                 const std::byte *result) {
    const uint32_t ranks = rank_group.size(), rank = rank_group.rank();
    const size_t bytes = type_bytes(operation.type);
    OwnedHashes mine;
    for (uint32_t owner = 0; owner < ranks; owner++) {
        const Part part = owned_part(operation, owner);
        const uint64_t hash = hash_of(result + part.begin * bytes, (part.end - part.begin) * bytes);
        if (owner != rank) mine.others += hash;
        if (owner == (rank + 1) % ranks) mine.of_after = hash;
    }
    QCCL_TRY(const auto hashes, gather(rank_group, mine));
    const auto sum = [&](uint32_t of) {
        return hashes[of].others + hashes[(of + ranks - 1) % ranks].of_after;
    };
    for (uint32_t other = 1; other < ranks; other++)
        if (sum(other) != sum(0)) return false;
    return true;
}

// Returns nothing if ranks have different results.
static Result<std::optional<bool>> compare(RankGroup &rank_group, const Operation &operation,
                                           const Codec &codec, const std::byte *result) {
    if (!is_same_everywhere(operation.collective)) return std::optional<bool>();
    if (codec.owner == OwnerKeeps::exact) {
        QCCL_TRY(const bool agree, others_agree(rank_group, operation, result));
        return std::optional(agree);
    }
    const uint64_t count = operation.recv_count(rank_group.rank());
    QCCL_TRY(const auto hashes,
             gather(rank_group, hash_of(result, count * type_bytes(operation.type))));
    return std::optional(std::all_of(hashes.begin(), hashes.end(),
                                     [&](uint64_t hash) { return hash == hashes[0]; }));
}

static Result<CheckResult> check_part(RankGroup &rank_group, const Operation &operation,
                                      const Codec &codec, const Source &source, ExactResult &exact,
                                      Part part, std::optional<bool> agree,
                                      const std::byte *result) {
    Findings found;
    if (!info(operation.type).is_float)
        look_at_integers(operation, exact, rank_group.rank(), part, result, found);
    else if (codec.is_lossless())
        look_at_reals(operation, exact, rank_group.rank(), part, result,
                      is_exact(operation, source), {}, found);
    else // wrong elements are counted below, once the largest input of all ranks is known
        look_at_reals(operation, exact, rank_group.rank(), part, result, false, HUGE_VAL, found);
    QCCL_TRY(auto parts, gather(rank_group, found));
    Findings all = combined(parts);
    if (codec.is_lossless()) return result_of(all, operation, agree);

    all.wrong = 0;
    if (all.non_finite + all.overflowed > 0)
        return result_of(all, operation,
                         agree); // the check_block with such a value is correctly NaN
    const double bound = codec_bound(operation, codec, all) +
                         saturation_bound(operation, codec, all) +
                         rounding_bound(operation, all.largest_input * operation.ranks);
    if (all.max_abs_err <= bound) return result_of(all, operation, agree);
    Findings again;
    look_at_reals(operation, exact, rank_group.rank(), part, result, false, bound, again);
    QCCL_TRY(parts, gather(rank_group, again));
    return result_of(combined(parts), operation, agree);
}

Result<CheckResult> check_result(RankGroup &rank_group, const Operation &given, const Codec &codec,
                                 const Source &source, const std::byte *result) {
    const Operation operation = in_reals(given);
    const uint32_t rank = rank_group.rank();
    const uint64_t count = given.recv_count(rank), reals = reals_of(given.type);
    const bool owners_differ = codec.owner == OwnerKeeps::exact;
    QCCL_TRY(const auto agree, compare(rank_group, operation, codec, result));
    Part part{0, operation.has_result(rank) ? count : 0};
    if (agree == true && !owners_differ)
        part = {count * rank / rank_group.size(), count * (rank + 1) / rank_group.size()};
    part = {part.begin * reals, part.end * reals};
    // The error of a broadcast is that of the ranks that receive it.
    const bool is_source = row_of(operation.collective).has_root && rank == operation.root;
    if (owners_differ && is_source) part = {};

    ExactResult exact(given, source);
    QCCL_TRY(CheckResult checked,
             check_part(rank_group, operation, codec, source, exact, part, agree, result));
    if (!owners_differ) return checked;
    Findings own;
    look_at_reals(operation, exact, rank, owned_part(operation, rank), result, true, {}, own);
    QCCL_TRY(const auto all, gather(rank_group, own));
    const Findings kept = combined(all);
    checked.wrong += kept.wrong + kept.dropped;
    return checked;
}

} // namespace qccl::perf
