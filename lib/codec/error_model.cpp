// The errors of codecs: unit_nmse and the losses of sums, and the bits that packed values usually
// take. The NMSE of one encode of unit Gaussian values is computed from the definition of each
// quantizer: the mean, over the positions of a block's extremes, of the squared error of the values
// between them.
#include "codec/error_model.hpp"

#include "codec/chunk.hpp"
#include "codec/codec.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qccl {

// ---- NMSE of Gaussian values, and losses

namespace {

constexpr double whole_chunk_values = 1 << 20; // stands for bucket=all

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double upper_tail(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

constexpr double everywhere = 40; // the density beyond is too small for a double

// Returns the x with upper_tail(x) = tail, by bisection down to 1e-8, plenty for a mean.
double quantile(double tail) {
    double low = -everywhere, high = everywhere;
    for (int i = 0; i < 33; i++) {
        const double middle = (low + high) / 2;
        (upper_tail(middle) > tail ? low : high) = middle;
    }
    return low;
}

// 1 - p^(1 / n), exact also for large n.
double root_complement(double p, double n) { return -std::expm1(std::log(p) / n); }

struct Interval {
    double low, high;

    bool is_empty() const { return high <= low; }
    double mass() const { return upper_tail(low) - upper_tail(high); }
    // Integral of (a + b x + c x^2) times the density.
    double integral(double a, double b, double c) const {
        const double first = density(low) - density(high);
        const double second = mass() + low * density(low) - high * density(high);
        return a * mass() + b * first + c * second;
    }
    double squared_distance(double from) const { return integral(from * from, -2 * from, 1); }
    Interval within(double from, double to) const {
        return {std::max(low, from), std::min(high, to)};
    }
};

// A quantizer with 2^bits levels at low, low + step, ...
struct Quantizer {
    double low, step;
    double levels;
    Rounding rounding;

    double level(double k) const { return low + k * step; }
    double top() const { return level(levels - 1); }
    // Integral over `support` of the squared error times the density.
    double error(const Interval &support) const;

private:
    static constexpr double fine_levels = 16; // from here on the density is flat within a step
    double coarse_error(const Interval &support) const;
};

// The error of values between the lowest and the highest level is uniform within a step and has the
// variance step^2 / 12; a stochastic choice between neighbours has twice that. All values beyond
// the top level become the top level.
// Subtracted noise makes the error of every value below the top level uniform, of a coarse grid,
// too.
double Quantizer::error(const Interval &support) const {
    if (rounding == Rounding::dither) {
        const Interval beyond = support.within(top(), everywhere);
        return step * step / 12 * support.mass() +
               (beyond.is_empty() ? 0 : beyond.squared_distance(top()));
    }
    if (levels <= fine_levels) return coarse_error(support);
    const double edge = top() + (rounding == Rounding::nearest ? step / 2 : 0);
    const Interval inside = support.within(-everywhere, edge),
                   beyond = support.within(edge, everywhere);
    const double variance = step * step / (rounding == Rounding::nearest ? 12 : 6);
    return variance * inside.mass() + (beyond.is_empty() ? 0 : beyond.squared_distance(top()));
}

double Quantizer::coarse_error(const Interval &support) const {
    double sum = 0;
    for (double k = 0; k < levels; k++) {
        const bool is_top = k == levels - 1;
        const double here = level(k), next = level(k + 1);
        if (rounding == Rounding::stochastic && !is_top) {
            const Interval between = support.within(here, next);
            if (!between.is_empty()) sum += between.integral(-here * next, here + next, -1);
            continue;
        }
        const double from = rounding == Rounding::stochastic ? here
                            : k == 0                         ? -everywhere
                                                             : here - step / 2;
        const Interval cell = support.within(from, is_top ? everywhere : here + step / 2);
        if (!cell.is_empty()) sum += cell.squared_distance(here);
    }
    return sum;
}

// Rounds up to 8 significant bits, as the block's scale is stored.
double round_scale_up(double scale) {
    int exponent = 0;
    const double fraction = std::frexp(scale, &exponent);
    return std::ldexp(std::ceil(fraction * 256), exponent - 8);
}

// The last code of a block has no noise with dither (block_bits() of kernels/codec). Returns the
// square error, in steps, of a value that lies at `above` from the last code, from 0 to 1: it takes
// the last code if the noise is below `bound`, and otherwise the next one, less the noise.
double last_step_error(double above) {
    const double bound = 1 - std::sqrt(0.25 + 2 * above);
    const auto cube = [](double x) { return x * x * x; };
    return (bound + 0.5) * above * above + (cube(1 - above - bound) - cube(0.5 - above)) / 3;
}
constexpr double mean_last_step_error = 31.0 / 240; // its mean over the step

// The mean over the quantiles of the largest of n magnitudes.
double block_nmse(const Codec &codec) {
    constexpr int nodes = 128;
    const double n = codec.bucket, half = std::ldexp(1.0, codec.bits - 1);
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double extreme = quantile(root_complement((i + 0.5) / nodes, n) / 2);
        const double step = round_scale_up(extreme / half);
        const Quantizer quantizer{-half * step, step, 2 * half, codec.rounding};
        const double position = extreme / step; // of the extreme value, just above its level
        const double fraction = position - std::floor(position);
        const double own = codec.dithers() ? last_step_error(half - position)
                           : codec.rounding == Rounding::nearest
                               ? std::pow(position - std::rint(position), 2)
                               : fraction * (1 - fraction);
        const Interval support{-extreme, extreme};
        double others = quantizer.error(support);
        if (codec.dithers()) {
            const Interval last = support.within(-everywhere, (1 - half) * step);
            if (!last.is_empty())
                others += (mean_last_step_error - 1.0 / 12) * step * step * last.mass();
        }
        sum += (own * step * step + (n - 1) * others / support.mass()) / n;
    }
    return sum / nodes;
}

// The scale of a block of `shared` is that of its largest magnitude among all ranks, so it is also
// that of one rank's block that is so many times as long. Every value is rounded to a multiple.
double shared_nmse(const Codec &codec) {
    constexpr int nodes = 128;
    const double n = codec.shared_block, limit = std::ldexp(1.0, codec.shared_bits - 1) - 1;
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double extreme = quantile(root_complement((i + 0.5) / nodes, n) / 2);
        const double step = round_scale_up(extreme / limit);
        const Quantizer quantizer{-limit * step, step, 2 * limit + 1, Rounding::nearest};
        const Interval support{-extreme, extreme};
        const double own = std::pow(extreme - std::rint(extreme / step) * step, 2);
        sum += (own + (n - 1) * quantizer.error(support) / support.mass()) / n;
    }
    return sum / nodes;
}

// The mean over the quantiles of the largest of n values, and of the smallest given the largest.
double bucket_nmse(const Codec &codec) {
    constexpr int nodes = 32;
    const double n = codec.bucket == Codec::whole_chunk ? whole_chunk_values : codec.bucket;
    // Both values are extremes, which are exact, except for dither.
    if (n <= (codec.dithers() ? 1 : 2)) return 0;
    const double levels = std::ldexp(1.0, codec.bits);
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double above = root_complement((i + 0.5) / nodes, n), high = quantile(above);
        for (int j = 0; j < nodes; j++) {
            const double below = (1 - above) * root_complement((j + 0.5) / nodes, n - 1);
            const Interval support{-quantile(below), high};
            const Quantizer quantizer{support.low, (support.high - support.low) / (levels - 1),
                                      levels, codec.rounding};
            const double own = codec.dithers() ? quantizer.step * quantizer.step / 12 : 0;
            sum += (2 * own + (n - 2) * quantizer.error(support) / support.mass()) / n;
        }
    }
    return sum / (nodes * nodes);
}

// The grid of a small float: zero, a power of two and its multiples up to the next one, and so on.
struct SmallFloats : FloatFormat {
    constexpr explicit SmallFloats(const FloatFormat &format) : FloatFormat(format) {}

    // The distance from a magnitude of the grid to the next one.
    double step(double level) const {
        const int exponent = level == 0 ? lowest : std::max(std::ilogb(level), lowest);
        return std::ldexp(1.0, exponent - fraction_bits);
    }
    // Integral over magnitudes up to `most` of the squared error times the density, all divided by
    // `scale`.
    double error(double most, double scale, Rounding rounding) const;
    // The mean squared error of one magnitude.
    double error_at(double x, Rounding rounding) const;
    double rounded(double x, Scaling scaling) const;
};

double SmallFloats::error(double most, double scale, Rounding rounding) const {
    const Interval support{0, most};
    double sum = 0;
    for (double level = 0, below = 0; level <= largest && below < most;) {
        const double here = level * scale, next = (level + step(level)) * scale;
        const bool is_last = level == largest;
        const double edge = is_last ? everywhere : (here + next) / 2;
        if (rounding == Rounding::nearest || is_last) {
            const Interval cell = support.within(below, edge);
            if (!cell.is_empty()) sum += cell.squared_distance(here);
            below = edge;
        } else {
            const Interval between = support.within(here, next);
            if (!between.is_empty()) sum += between.integral(-here * next, here + next, -1);
            below = next;
        }
        level += step(level);
    }
    return sum;
}

double SmallFloats::error_at(double x, Rounding rounding) const {
    if (x >= largest) return (x - largest) * (x - largest);
    const double size = step(x), position = x / size, fraction = position - std::floor(position);
    const double squares = rounding == Rounding::nearest
                               ? std::pow(position - std::rint(position), 2)
                               : fraction * (1 - fraction);
    return squares * size * size;
}

double SmallFloats::rounded(double x, Scaling scaling) const {
    const double size = step(x), steps = x / size;
    return std::min(largest,
                    size * (scaling == Scaling::ceil ? std::ceil(steps) : std::rint(steps)));
}

// The mean squared error of a block of n values under `scale` whose largest magnitude is `most`.
double block_error(const SmallFloats &element, double n, double most, double scale,
                   Rounding rounding) {
    const double own = element.error_at(most / scale, rounding) * scale * scale;
    return (own + (n - 1) * element.error(most, scale, rounding) / Interval{0, most}.mass()) / n;
}

// The mean over the quantiles of the largest of a block's magnitudes, and over the positions of the
// variance between two powers of two.
double mx_nmse(const Codec &codec) {
    constexpr int nodes = 8, phases = 8;
    const double n = codec.bucket;
    const SmallFloats element(codec.row().element);
    double sum = 0;
    for (int i = 0; i < nodes * phases; i++) {
        const int node = i / phases;
        const double most = quantile(root_complement((node + 0.5) / nodes, n) / 2);
        const double phase = std::exp2(static_cast<double>(i % phases) / phases);
        const double exponent = codec.scaling == Scaling::ceil
                                    ? std::ceil(std::log2(most * phase / element.largest))
                                    : std::floor(std::log2(most * phase)) - element.highest;
        const double scale = std::exp2(exponent) / phase;
        sum += block_error(element, n, most, scale, codec.rounding);
    }
    return sum / (nodes * phases);
}

// The mean over the quantiles of the largest of a block's magnitudes, of a scale that is rounded
// up.
double scaled_nmse(const Codec &codec) {
    constexpr int nodes = 64;
    const double n = codec.bucket;
    const SmallFloats element(codec.row().element);
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double most = quantile(root_complement((i + 0.5) / nodes, n) / 2);
        sum +=
            block_error(element, n, most, round_scale_up(most / element.largest), codec.rounding);
    }
    return sum / nodes;
}

// The mean over the quantiles of the largest of a bucket's magnitudes, and over those of the
// largest of each block below that magnitude; one block contains the largest itself.
double nvfp4_nmse(const Codec &codec) {
    constexpr int nodes = 6, block_nodes = 32;
    const double n = codec.row().scale_values;
    const SmallFloats element(codec.row().element), scales(e4m3_element);
    const double values = codec.bucket == Codec::whole_chunk ? whole_chunk_values : codec.bucket;
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double tail = root_complement((i + 0.5) / nodes, values), most = quantile(tail / 2);
        const double base = most / (element.largest * scales.largest);
        const auto error = [&](double largest) {
            const double scale = scales.rounded(largest / (element.largest * base), codec.scaling);
            return block_error(element, n, largest, scale * base, codec.rounding);
        };
        const double below = std::pow(1 - tail, n); // the share of blocks that lie below it
        double others = 0;
        for (int j = 0; j < block_nodes; j++)
            others += error(quantile(root_complement(below * (j + 0.5) / block_nodes, n) / 2));
        sum += (error(most) * n + others / block_nodes * (values - n)) / values;
    }
    return sum / nodes;
}

// The variance of half a Gaussian about its mean, reduced because the means of a bucket's own
// values are nearer to the values: by one value's worth for each sign that occurs in the bucket.
double onebit_nmse(const Codec &codec) {
    const double n = codec.bucket, signs = 2 * (1 - std::exp2(-n));
    return (1 - 2 / std::numbers::pi) * (1 - signs / n);
}

// The mean over the quantiles of the largest magnitude, which hardly affects the root mean square.
// A value below the scale is decoded right on average, and one above becomes the scale. The square
// of the decoded value is on average the scale times that.
Loss terngrad_loss(const Codec &codec) {
    constexpr int nodes = 64;
    const double n = codec.bucket, clip = codec.clip / 1000.0;
    double values = 0, correlation = 0, square = 0; // means of x^2, x y and y^2
    for (int i = 0; i < nodes; i++) {
        const double most = quantile(root_complement((i + 0.5) / nodes, n) / 2);
        const double scale = std::min(most, clip), others = (n - 1) / Interval{0, most}.mass();
        const Interval kept{0, scale}, clipped{scale, most};
        const auto mean = [&](double own, double of_kept, double of_clipped) {
            return (own + others * (of_kept + (clipped.is_empty() ? 0 : of_clipped))) / n;
        };
        values += mean(most * most, kept.integral(0, 0, 1), clipped.integral(0, 0, 1));
        correlation += mean(most * scale, kept.integral(0, 0, 1), clipped.integral(0, scale, 0));
        square += scale * mean(scale, kept.integral(0, 1, 0), clipped.integral(scale, 0, 0));
    }
    return {.shrink = 1 - correlation / values, .growth = square / values - 1};
}

// Of values with variance 1, whose size does matter here.
double tbq_nmse(const Codec &codec) {
    const double threshold = std::min(double{codec.threshold}, everywhere);
    const Interval below{0, threshold}, above{threshold, everywhere};
    return 2 *
           (below.integral(0, 0, 1) + (above.is_empty() ? 0 : above.squared_distance(threshold)));
}

// The levels of `norm`, as shares of the norm.
struct NormLevels {
    double count; // above zero
    Levels levels;
    Rounding rounding;

    explicit NormLevels(const Codec &codec)
        : count(norm_levels(codec.bits)), levels(codec.levels), rounding(codec.rounding) {}

    // The mean squared error of a value that is `share` of the norm.
    double error_at(double share) const {
        const bool is_uniform = levels == Levels::uniform;
        const double lowest = std::exp2(1 - count);
        const double step = is_uniform        ? 1 / count
                            : share <= lowest ? lowest
                                              : std::exp2(std::floor(std::log2(share)));
        const double position = share / step, fraction = position - std::floor(position);
        const double squares = rounding == Rounding::nearest
                                   ? std::pow(position - std::rint(position), 2)
                                   : fraction * (1 - fraction);
        return squares * step * step;
    }
};

// Under `l2` the squares of n values are, as shares of the sum of all n squares, independent of
// that sum: the share's root has the density (1 - t^2)^((n - 3) / 2), up to a factor. With t the
// sine of an angle, the density of the angle has no pole.
double l2_nmse(const Codec &codec) {
    constexpr int nodes = 1 << 13;
    const double n = codec.bucket;
    if (n == 1) return 0; // the only value is its norm
    const NormLevels levels(codec);
    const double widest = std::min(std::numbers::pi / 2, 9 / std::sqrt(n));
    double errors = 0, mass = 0;
    for (int i = 0; i < nodes; i++) {
        const double angle = widest * (i + 0.5) / nodes;
        const double weight = std::pow(std::cos(angle), n - 2);
        errors += weight * levels.error_at(std::sin(angle));
        mass += weight;
    }
    return n * errors / mass;
}

// Under `linf`: the mean over the quantiles of the largest magnitude, which is exact.
double linf_nmse(const Codec &codec) {
    constexpr int nodes = 16, share_nodes = 1 << 10;
    const double n = codec.bucket;
    const NormLevels levels(codec);
    double sum = 0;
    for (int i = 0; i < nodes; i++) {
        const double most = quantile(root_complement((i + 0.5) / nodes, n) / 2);
        double errors = 0, mass = 0;
        for (int j = 0; j < share_nodes; j++) {
            const double share = (j + 0.5) / share_nodes, weight = density(share * most);
            errors += weight * levels.error_at(share);
            mass += weight;
        }
        sum += most * most * (n - 1) / n * errors / mass;
    }
    return sum / nodes;
}

// The square of the values that a large chunk drops.
double topk_nmse(const Codec &codec) {
    const double least = quantile(static_cast<double>(codec.share) / whole_share / 2);
    return 2 * Interval{0, least}.integral(0, 0, 1);
}

// Values around each multiple of the step become that multiple. A bound that is not relative is
// taken for one of values whose deviation is 1. Its error does not grow with the values, so that of
// sums is less than predicted.
double grid_nmse(const Codec &codec) {
    constexpr double fine = 0.05, margin = 1.0 - 1.0 / 200; // of the step below twice the bound
    const double range =
        codec.is_relative ? 2 * quantile(root_complement(0.5, whole_chunk_values)) : 1;
    const double step = 2 * margin * codec.bound * range;
    if (step < fine) return step * step / 12;
    double sum = 0;
    for (double at = 0; at < everywhere; at += step) {
        const Interval cell = Interval{0, everywhere}.within(at - step / 2, at + step / 2);
        if (!cell.is_empty()) sum += 2 * cell.squared_distance(at);
    }
    return sum;
}

// Rounding to f fraction bits has a uniform error of up to half a quantum; the quantum is 2^-f of
// the power of two below the value. Over a wide distribution the value is 2^k m with log m uniform,
// and the mean of 1 / m^2 over [1, 2) is 3 / (8 ln 2). A stochastic choice between neighbours has
// twice the variance.
double cast_nmse(const Codec &codec, DataType type) {
    const DataType wire = codec.plain_type(type);
    const int kept =
        codec.has_grid() ? kept_fraction_bits(codec.bound) : info(wire).format.fraction_bits;
    if (info(type).format.fraction_bits <= kept) return 0;
    return std::ldexp(3 / (8 * std::numbers::ln2), -2 * kept) /
           (codec.rounding == Rounding::nearest ? 12 : 6);
}

} // namespace

double unit_nmse(const Codec &codec, DataType type) {
    if (codec.shares_scales()) return shared_nmse(codec);
    switch (codec.row().kind) {
    case CodecKind::plain: return 0;
    case CodecKind::cast: return cast_nmse(codec, type);
    case CodecKind::grid: return codec.is_pointwise ? cast_nmse(codec, type) : grid_nmse(codec);
    case CodecKind::integer: return block_nmse(codec);
    case CodecKind::minmax: return bucket_nmse(codec);
    case CodecKind::mx: return mx_nmse(codec);
    case CodecKind::scaled: return scaled_nmse(codec);
    case CodecKind::nvfp4: return nvfp4_nmse(codec);
    case CodecKind::onebit: return onebit_nmse(codec);
    case CodecKind::terngrad: return terngrad_loss(codec).nmse();
    case CodecKind::topk: return topk_nmse(codec);
    case CodecKind::tbq: return tbq_nmse(codec);
    case CodecKind::dummy: return 1 - static_cast<double>(codec.share) / whole_share;
    case CodecKind::norm: return codec.norm == BucketNorm::l2 ? l2_nmse(codec) : linf_nmse(codec);
    }
    return 0;
}

Loss Loss::followed_by(const Loss &next) const {
    return {.shrink = shrink + next.shrink - shrink * next.shrink,
            .growth = growth + next.growth + growth * next.growth};
}

Loss loss_of(const Codec &codec, DataType type, double encodes, double summands) {
    if (encodes == 0) return {};
    const bool may_clip = codec.row().kind == CodecKind::terngrad;
    return repeated(codec, may_clip ? terngrad_loss(codec) : Loss{0, unit_nmse(codec, type)},
                    encodes, summands);
}

Loss repeated(const Codec &codec, const Loss &once, double encodes, double summands) {
    if (encodes == 0) return {};
    const double nu = once.nmse();
    switch (codec.row().kind) {
    case CodecKind::terngrad: {
        const double square = 1 + once.growth; // the largest value times the mean magnitude: an
                                               // upper bound for sums
        return {.shrink = 1 - std::pow(1 - once.shrink, encodes),
                .growth = std::min(std::pow(square, encodes), square * summands) - 1};
    }
    case CodecKind::dummy: return {.shrink = nu, .growth = -nu}; // the same values at every encode
    case CodecKind::onebit:
    case CodecKind::tbq:
    case CodecKind::topk: {
        const double lost = 1 - std::pow(1 - nu, encodes);
        return {.shrink = lost, .growth = -lost};
    }
    case CodecKind::plain:
    case CodecKind::cast:
    case CodecKind::grid:
    case CodecKind::integer:
    case CodecKind::minmax:
    case CodecKind::mx:
    case CodecKind::scaled:
    case CodecKind::nvfp4: break;
    case CodecKind::norm:
        // The noise of an encode adds to the norm of the next one. The noise of powers of two,
        // which next to such a power is small, adds up more slowly.
        if (codec.rounding == Rounding::stochastic && codec.levels == Levels::uniform)
            return {.shrink = 0, .growth = std::pow(1 + nu, encodes) - 1};
        break;
    }
    return {0, nu * encodes};
}

// ---- Bits

double bits_per_value(const Codec &codec, DataType type) {
    constexpr uint64_t sample = uint64_t{1} << 20;
    const double bits = static_cast<double>(payload_layout(codec, type, sample).bytes) * 8 / sample;
    return codec.packs ? bits * usual_packed_share(codec, type) : bits;
}

// Gradients have heavy tails: with a step of a thousandth of their range their multiples have an
// entropy of 4.7 bits, and a bit more or less with each factor of 2. The widest of a block of 32
// takes about 1.5 bits more.
static double usual_grid_bits(const Codec &codec) {
    // Blocks hold numbers of about ten powers of two, and a sign, and begin with a word.
    if (codec.is_pointwise) return kept_fraction_bits(codec.bound) + 5.75;
    constexpr double least_entropy_bits = 0.3, least_block_bits = 0.6, usual_range = 50;
    const double relative = codec.is_relative ? codec.bound : codec.bound / usual_range;
    const double entropy = 4.7 - std::log2(relative / 0.001);
    const double bits = codec.codes_entropy ? std::max(entropy, least_entropy_bits)
                                            : std::max(entropy + 1.5, least_block_bits);
    return std::min(bits, 32.0);
}

double usual_packed_share(const Codec &codec, DataType type) {
    constexpr double exponent_bits = 3, block_share = 0.94, chunk_share = 0.4, sparse_share = 0.1;
    if (codec.id == CodecId::tbq) return sparse_share;
    // A sum has a bit more than its summands, or a few.
    if (codec.shares_scales()) return std::min((codec.shared_bits + 1) / 32.0, 1.0);
    if (!codec.is_plain()) return codec.bucket == Codec::whole_chunk ? chunk_share : block_share;
    const DataType travels = codec.plain_type(type);
    const auto bits = static_cast<double>(8 * type_bytes(travels));
    if (codec.has_grid()) return std::min(usual_grid_bits(codec) / bits, 1.0);
    const double exponent = bits - 1 - info(travels).format.fraction_bits;
    return (bits - exponent + std::min(exponent, exponent_bits)) / bits;
}

} // namespace qccl
