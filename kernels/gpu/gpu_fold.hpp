// The fold, the body of most kernels. Warps take turns through the rows of a batch's tensors. The
// sources of each value are combined in order, and the result is put into the sink.
//
// What is computed of whole buckets besides the fold: the scales of buckets that do not fit into a
// warp's row, before the fold that makes their codes (a warp reads a small bucket, a whole block
// reads a large one); the means of onebit's buckets and the norms of norm's, before their folds;
// and terngrad's encoder, in which a team reads its bucket three times, for the largest value, for
// the squares, and for the digits.
//
// The encoders of onebit, norm and terngrad use sums: teams of 32 lanes add up a bucket in the
// order that summed_block.hpp defines, whatever the width of a warp.
#pragma once

#include "kernels/codec/number.hpp"
#include "kernels/codec/summed_block.hpp"
#include "kernels/gpu/gpu_operands.hpp"

namespace qccl::QCCL_GPU {

inline constexpr unsigned block_warps = block_threads / lanes;

// Combines a lane's values. NaN need not be canonical.
template <class T, class Layout>
QCCL_DEVICE void combine_values(RedOp op, Held<Layout, T> &values, const Held<Layout, T> &others) {
    const auto each = [&](auto &&combined) {
        for_each_value<Layout>([&](unsigned run, unsigned i) {
            values[run][i] = combined(values[run][i], others[run][i]);
        });
    };
    // The operation is the same for all values, so it is selected once and not for each value.
    if constexpr (is_pair<T>) {
        if (op == RedOp::max_loc)
            return each([](T a, T b) { return combine_raw(RedOp::max_loc, a, b); });
        return each([](T a, T b) { return combine_raw(RedOp::min_loc, a, b); });
    } else if constexpr (std::is_same_v<T, Boolean>) {
        return each([op](T a, T b) { return combine_raw(op, a, b); });
    } else {
        if (op == RedOp::prod) return each([](T a, T b) { return combine_raw(RedOp::prod, a, b); });
        if constexpr (!is_complex<T>) {
            if (op == RedOp::max)
                return each([](T a, T b) { return combine_raw(RedOp::max, a, b); });
            if (op == RedOp::min)
                return each([](T a, T b) { return combine_raw(RedOp::min, a, b); });
        }
        // One loop for all of these keeps the kernels of integers small.
        if constexpr (std::is_integral_v<T>)
            if (op >= RedOp::bit_and) return each([op](T a, T b) { return combine_raw(op, a, b); });
        each([](T a, T b) { return combine_raw(RedOp::sum, a, b); });
    }
}

// Takes a source's values, and combines them with those of the sources before it.
template <class T, bool has_dither, class Layout>
QCCL_DEVICE void take_next(const Batch &batch, const Tensor &tensor, uint32_t source,
                           const Place<Layout> &place, Held<Layout, T> &values) {
    Held<Layout, T> taken;
    take<T, has_dither>(batch.operand[tensor.first_source + source], base_call(batch), place,
                        taken);
    if (source == 0)
        for_each_value<Layout>([&](unsigned run, unsigned i) { values[run][i] = taken[run][i]; });
    else
        combine_values<T, Layout>(batch.op, values, taken);
}

// Combines all sources of a tensor and divides the result by the batch's divisor. Without dither,
// the first source is not copied to the sum but taken into it, so that the next source is asked for
// before the first has arrived. With dither the code for all sources is large, and stands once.
template <class T, bool has_dither, class Layout>
QCCL_DEVICE void take_all(const Batch &batch, const Tensor &tensor, const Place<Layout> &place,
                          Held<Layout, T> &values) {
    if constexpr (!has_dither)
        take<T, has_dither>(batch.operand[tensor.first_source], base_call(batch), place, values);
#pragma unroll 1
    for (uint32_t source = has_dither ? 0 : 1; source < tensor.sources; source++)
        take_next<T, has_dither>(batch, tensor, source, place, values);
    if (batch.divisor != 1)
        for_each_value<Layout>([&](unsigned run, unsigned i) {
            values[run][i] = divided(values[run][i], batch.divisor);
        });
    make_canonical(values);
}

// Zeroes the bytes between the sections of a chunk that ends in this launch.
QCCL_DEVICE void clear_gaps(const Operand &sink) {
    for (size_t i = 0; i < chunk_parts; i++)
        if (lane() < sink.gap[i]) sink.at[sink.section[i] - 1 - lane()] = std::byte{0};
}

// Calls visit(tensor, sink, number) for every row that belongs to this warp. Between two rows a
// lane keeps two numbers only, so that registers are left for values; a row has enough values that
// 32 bits count the rows of any GPU's memory.
template <class Visitor> QCCL_DEVICE void for_each_row(const Batch &batch, Visitor &&visit) {
    uint32_t i = 0, number = block() * block_warps + warp();
#pragma unroll 1
    while (i < batch.tensors) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1];
        if (number == 0) clear_gaps(sink); // also if no value is at the chunk's end
        const auto rows = static_cast<uint32_t>((tensor.count + row_values - 1) / row_values);
        if (number < rows) {
            visit(tensor, sink, number);
            number += blocks() * block_warps;
        } else {
            // The next tensor continues the turns where this one ends, so exactly one warp has its
            // row 0.
            number -= rows;
            i++;
        }
    }
}

// A compiler may call a lambda of this size instead of inlining it, and then keeps values in
// memory.
template <class T> struct FoldRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> values;
        take_all<T, false>(batch, tensor, place, values);
        put_plain<T>(sink, place, values);
    }
};
template <class T> QCCL_DEVICE void fold(const Batch &batch) {
    for_each_row(batch, FoldRow<T>{batch});
}

// Folds sources of which some have dither or are rotated, into values, which may be those of a
// grid. Its step is that of the bound, or has been measured.
template <class T> struct FoldDitheredRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> values;
        take_all<T, true>(batch, tensor, place, values);
        if (sink.has_grid()) {
            const auto round_all = [&](const auto &grid) {
                for_each_value<Striped>([&](unsigned run, unsigned i) {
                    values[run][i] = grid.rounded(values[run][i]);
                });
            };
            const auto bound = std::bit_cast<float>(sink.clip & ~pointwise_bit);
            if ((sink.clip & pointwise_bit) != 0)
                round_all(PointGrid<T>(kept_fraction_bits(bound)));
            else
                round_all(ValueGrid<T>(sink.is_measured
                                           ? load_one<float>(part_of(sink, ChunkPart::scales))
                                           : grid_step(bound)));
        }
        put_plain<T>(sink, place, values);
    }
};
template <class T> QCCL_DEVICE void fold_dithered(const Batch &batch) {
    for_each_row(batch, FoldDitheredRow<T>{batch});
}

// Adds to the sink the errors of the first source, of which the second one is what its codes decode
// to. A third one is a velocity, which ends where a code decodes to more than zero. All operands
// here and of add_velocities have values of type T.
template <class T> QCCL_DEVICE void keep_errors(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> kept, values, decoded;
        load_runs(batch.operand[tensor.first_source].at, place, values);
        load_runs(batch.operand[tensor.first_source + 1].at, place, decoded);
        load_runs(sink.at, place, kept);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            kept[run][i] = kept_error(kept[run][i], values[run][i], decoded[run][i], batch.divisor);
        });
        store_runs(sink.at, place, kept);
        if (tensor.sources < 3) return;
        const Operand &velocity = batch.operand[tensor.first_source + 2];
        load_runs(velocity.at, place, kept);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            kept[run][i] = masked_velocity(kept[run][i], decoded[run][i]);
        });
        store_runs(velocity.at, place, kept);
    });
}

// Adds to the sink the first source times the momentum, and writes the sum to the second one, too.
template <class T> QCCL_DEVICE void add_velocities(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        const Place<Striped> place(number, tensor.count);
        const T momentum = momentum_of<T>(batch.divisor);
        Held<Striped, T> values, before;
        load_runs(batch.operand[tensor.first_source].at, place, before);
        load_runs(sink.at, place, values);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            values[run][i] = next_velocity(before[run][i], momentum, values[run][i]);
        });
        store_runs(sink.at, place, values);
        for_each_value<Striped>(
            [&](unsigned run, unsigned i) { values[run][i] = finite_velocity(values[run][i]); });
        store_runs(batch.operand[tensor.first_source + 1].at, place, values);
    });
}

// Encodes the values of one plain source.
template <class CodecTraits, class T> QCCL_DEVICE void encode_coded(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        Row<T> row(batch, tensor, sink, number);
        take_plain<T>(batch.operand[tensor.first_source], row.place, row.values);
        put_coded<CodecTraits>(row);
    });
}

// Folds into codes of the sink's codec, whose buckets lie in a row. The launcher fuses no others.
template <class T> struct FoldCodedRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        Row<T> row(batch, tensor, sink, number);
        take_all<T, false>(batch, tensor, row.place, row.values);
        switch (sink.codec) {
        case CodecId::integer: return put_fused<IntegerTraits<T>>(row);
        case CodecId::minmax: return put_fused<MinmaxTraits<T>>(row);
        case CodecId::mxfp8e4m3: return put_fused<Mxfp8e4m3Traits<T>>(row);
        case CodecId::mxfp6e2m3: return put_fused<Mxfp6e2m3Traits<T>>(row);
        case CodecId::mxfp4: return put_fused<Mxfp4Traits<T>>(row);
        default: return; // the launcher knows which codecs have a case
        }
    }
};
template <class T> QCCL_DEVICE void fold_coded(const Batch &batch) {
    for_each_row(batch, FoldCodedRow<T>{batch});
}

// Encodes a row, rotated if the sink's values are.
template <class CodecTraits, class T> QCCL_DEVICE void put_rotated(Row<T> &row) {
    if (row.sink.is_rotated())
        rotate_row<typename CodecTraits::Computed, false>(row.sink.rotation(), row.place,
                                                          row.values);
    put_fused<CodecTraits>(row);
}

// Folds any sources into codes of a codec that may dither or rotate, or into values of a cast that
// rounds with noise. A lane's runs are those that a block of the generator serves.
template <class T> struct FoldGroupedRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        Row<T> row(batch, tensor, sink, number);
        take_all<T, true>(batch, tensor, row.place, row.values);
        switch (sink.codec) {
        case CodecId::integer: return put_rotated<IntegerTraits<T>>(row);
        case CodecId::minmax: return put_rotated<MinmaxTraits<T>>(row);
        default: return put_by_chance(row);
        }
    }
};
template <class T> QCCL_DEVICE void fold_grouped(const Batch &batch) {
    for_each_row(batch, FoldGroupedRow<T>{batch});
}

// ---- Scales of large buckets

// A bucket of this many values or more is read by a whole block.
inline constexpr uint64_t large_bucket = 8192;

// Values that a thread reads at a time, next to each other.
inline constexpr unsigned scan_values = 4;

// Calls see(values, there) for every `stride`-th four values of a bucket, the first of which are
// the thread's: it is number `first` of the bucket's `stride` readers. `there` tells how many
// values exist. All lanes of a warp get the same number of calls.
template <class T, class See>
QCCL_DEVICE void scan(const Operand &source, uint64_t start, uint64_t end, unsigned first,
                      unsigned stride, See &&see) {
    constexpr unsigned runs = 4; // asked for at once
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        const bool is_aligned_here =
            is_aligned<Bits, scan_values>(source.at + start * sizeof(Bits));
        const uint64_t step = uint64_t{stride} * scan_values;
        for (uint64_t row = start + (first - first % lanes) * scan_values; row < end;
             row += step * runs) {
            Bits bits[runs][scan_values] = {};
            unsigned there[runs];
#pragma unroll
            for (unsigned run = 0; run < runs; run++) {
                const uint64_t place = row + run * step + first % lanes * scan_values;
                const std::byte *const at = source.at + place * sizeof(Bits);
                there[run] = remaining(place, end, scan_values);
                if (is_aligned_here && there[run] == scan_values)
                    load(at, bits[run]);
                else
#pragma unroll
                    for (unsigned i = 0; i < scan_values; i++)
                        if (i < there[run]) bits[run][i] = load_one<Bits>(at + i * sizeof(Bits));
            }
            T values[runs][scan_values];
            widen_values(source.type, bits, values);
#pragma unroll
            for (unsigned run = 0; run < runs; run++) see(values[run], there[run]);
        }
    });
}

template <class CodecTraits, class T>
QCCL_DEVICE typename CodecTraits::Extremes
extremes_of(const Operand &source, uint64_t start, uint64_t end, unsigned first, unsigned stride) {
    auto extremes = CodecTraits::Extremes::none();
    scan<T>(source, start, end, first, stride, [&](const T(&values)[scan_values], unsigned there) {
        if constexpr (requires { extremes.add_lanes(values, there); }) {
            extremes.add_lanes(values, there);
        } else {
#pragma unroll
            for (unsigned i = 0; i < scan_values; i++)
                if (i < there) extremes.add(values[i]);
        }
    });
    for (unsigned mask = 1; mask < lanes; mask *= 2) extremes.merge_lane(mask);
    return extremes;
}

QCCL_DEVICE uint64_t bucket_values(const Tensor &tensor, const Operand &sink) {
    return sink.bucket == 0 ? tensor.count : sink.bucket;
}

struct Span {
    uint64_t start, end;
};
QCCL_DEVICE Span bucket_span(const Tensor &tensor, uint64_t values, uint64_t bucket) {
    const uint64_t start = bucket * values;
    return {start, start + values < tensor.count ? start + values : tensor.count};
}

template <class CodecTraits, class T>
QCCL_DEVICE void measure_small(const Tensor &tensor, const Operand *operands, uint64_t values,
                               uint64_t buckets) {
    const Operand &sink = operands[0], &source = operands[1];
    const uint64_t stride = uint64_t{blocks()} * block_warps;
    for (uint64_t i = uint64_t{block()} * block_warps + warp(); i < buckets; i += stride) {
        const Span span = bucket_span(tensor, values, i);
        const auto extremes =
            extremes_of<CodecTraits, T>(source, span.start, span.end, lane(), lanes);
        if (lane() == 0) CodecTraits::store_measured(sink, span.start, extremes);
    }
}

template <class CodecTraits, class T>
QCCL_DEVICE void measure_large(const Tensor &tensor, const Operand *operands, uint64_t values,
                               uint64_t buckets) {
    using Extremes = typename CodecTraits::Extremes;
    QCCL_SHARED(Extremes, parts, block_warps);
    const Operand &sink = operands[0], &source = operands[1];
    for (uint64_t i = block(); i < buckets; i += blocks()) {
        const Span span = bucket_span(tensor, values, i);
        const auto part =
            extremes_of<CodecTraits, T>(source, span.start, span.end, thread(), block_threads);
        if (lane() == 0) parts[warp()] = part;
        barrier();
        if (thread() == 0) {
            Extremes extremes = Extremes::none();
            for (unsigned w = 0; w < block_warps; w++) extremes.merge(parts[w]);
            CodecTraits::store_measured(sink, span.start, extremes);
        }
        barrier(); // the next bucket reuses `parts`
    }
}

template <class CodecTraits, class T>
QCCL_DEVICE void measure_tensor(const Tensor &tensor, const Operand *operands) {
    const uint64_t values = bucket_values(tensor, operands[0]);
    const uint64_t buckets = (tensor.count - 1) / values + 1;
    if (values < large_bucket)
        measure_small<CodecTraits, T>(tensor, operands, values, buckets);
    else
        measure_large<CodecTraits, T>(tensor, operands, values, buckets);
}

template <class CodecTraits, class T> QCCL_DEVICE void measure(const Batch &batch) {
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        if (tensor.count == 0) continue;
        measure_tensor<CodecTraits, T>(tensor, &batch.operand[tensor.first_source - 1]);
    }
}

// ---- Sums

QCCL_DEVICE unsigned team_lane() { return thread() % sum_lanes; }

struct TeamBucket {
    const Tensor &tensor;
    const Operand &sink, &source;
    bool is_there; // false: the team only takes part because its warp's other team has a bucket
    Span span;
};

// Calls visit(bucket) for every bucket that belongs to this team.
template <class Visitor>
QCCL_DEVICE void for_each_team_bucket(const Batch &batch, Visitor &&visit) {
    constexpr unsigned teams = block_threads / sum_lanes;
    const uint64_t stride = uint64_t{blocks()} * teams;
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1];
        const uint64_t values = bucket_values(tensor, sink);
        const uint64_t buckets = (tensor.count + values - 1) / values;
        // Two teams may share a warp, and all lanes of a warp must take the same number of turns.
        const uint64_t turns = (buckets + stride - 1) / stride;
        uint64_t number = uint64_t{block()} * teams + thread() / sum_lanes;
        for (uint64_t turn = 0; turn < turns; turn++, number += stride) {
            const bool is_there = number < buckets;
            visit(TeamBucket{tensor, sink, batch.operand[tensor.first_source], is_there,
                             is_there ? bucket_span(tensor, values, number) : Span{0, 0}});
        }
    }
}

template <class T> QCCL_DEVICE float load_float_value(const Operand &source, uint64_t place) {
    float x = 0;
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        const auto bits = load_one<Bits>(source.at + place * sizeof(Bits));
        x = static_cast<float>(widened<T>(source.type, bits));
    });
    return x;
}

// Calls f(x) for the lane's values of a bucket, in order. Eight values are asked for at once.
template <class T, class Call>
QCCL_DEVICE void for_each_team_value(const Operand &source, const Span &span, Call &&call) {
    constexpr unsigned at_once = 8;
    uint64_t place = span.start + team_lane();
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        for (; place + (at_once - 1) * sum_lanes < span.end; place += at_once * sum_lanes) {
            Bits bits[1][at_once];
            T values[1][at_once];
#pragma unroll
            for (unsigned i = 0; i < at_once; i++)
                bits[0][i] = load_one<Bits>(source.at + (place + i * sum_lanes) * sizeof(Bits));
            widen_values(source.type, bits, values);
#pragma unroll
            for (unsigned i = 0; i < at_once; i++) call(static_cast<float>(values[0][i]));
        }
    });
    for (; place < span.end; place += sum_lanes) call(load_float_value<T>(source, place));
}

// Returns the sum of what the lanes of the team have.
QCCL_DEVICE float team_sum(float sum) {
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return sum;
}

// Returns the sum of the squares of a bucket's values times `lift`.
template <class T> QCCL_DEVICE float team_squares(const TeamBucket &bucket, float lift) {
    float squares = 0;
    for_each_team_value<T>(bucket.source, bucket.span, [&](float x) {
        const float lifted = x * lift;
        squares += lifted * lifted;
    });
    return team_sum(squares);
}

// ---- Means of onebit

// What a lane knows about the values of either code, and after merging what its team knows. Values
// are multiplied by `factor` before they are summed.
struct MeanParts {
    float factor;
    float sum[2] = {};
    uint32_t negative = 0; // how many values have code 1
    float nothing = 0;     // 0, or NaN if a value is not finite

    QCCL_DEVICE void add(float x) {
        const float part = x * factor;
        const bool is_negative = onebit_code(x) == 1;
        sum[0] += is_negative ? 0.0F : part;
        sum[1] += is_negative ? part : 0.0F;
        negative += is_negative ? 1 : 0;
        nothing += x - x;
    }
    QCCL_DEVICE void merge_lane(unsigned mask) {
        sum[0] += shuffle_xor(sum[0], mask);
        sum[1] += shuffle_xor(sum[1], mask);
        negative += shuffle_xor(negative, mask);
        nothing += shuffle_xor(nothing, mask);
    }
    QCCL_DEVICE float mean(uint32_t code, uint64_t values) const {
        if (nothing != 0) return std::bit_cast<float>(float_nan);
        return onebit_mean(sum[code], code == 1 ? negative : values - negative, factor);
    }
};

template <class T>
QCCL_DEVICE MeanParts mean_parts(const Operand &source, const Span &span, float factor) {
    MeanParts parts{factor};
    for_each_team_value<T>(source, span, [&](float x) { parts.add(x); });
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) parts.merge_lane(mask);
    return parts;
}

template <class T> QCCL_DEVICE void measure_means(const Batch &batch) {
    using WireScale = typename OnebitTraits<T>::WireScale;
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        const MeanParts parts = mean_parts<T>(bucket.source, bucket.span, 1);
        const uint64_t values = bucket.span.end - bucket.span.start;
        WireScale wire = {parts.mean(0, values), parts.mean(1, values)};
        // A sum that overflows is computed again. All lanes of the warp take part in that.
        const bool overflows =
            parts.nothing == 0 && !(is_finite(parts.sum[0]) && is_finite(parts.sum[1]));
        if (any(overflows)) {
            const MeanParts lowered = mean_parts<T>(bucket.source, bucket.span, onebit_lowered);
#pragma unroll
            for (uint32_t code = 0; code < 2; code++)
                if (!is_finite(parts.sum[code])) wire[code] = lowered.mean(code, values);
        }
        if (!bucket.is_there || team_lane() != 0) return;
        store(scale_at<WireScale>(bucket.sink, bucket.span.start), wire);
    });
}

// ---- Norms

template <class T> QCCL_DEVICE void measure_norms(const Batch &batch) {
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        auto magnitude = Magnitude<float>::none();
        float squares = 0;
        for_each_team_value<T>(bucket.source, bucket.span, [&](float x) {
            magnitude.add(x);
            squares += x * x;
        });
        for (unsigned mask = 1; mask < sum_lanes; mask *= 2) magnitude.merge_lane(mask);
        squares = team_sum(squares);
        float norm = std::bit_cast<float>(magnitude.largest);
        if (!bucket.sink.is_linf) {
            // All lanes of the warp take part in the second sum.
            const bool is_lifted = needs_lift(squares) && magnitude.largest < float_infinity;
            const float lift = is_lifted ? norm_lift(magnitude.largest) : 1.0F;
            if (any(is_lifted)) squares = team_squares<T>(bucket, lift);
            norm = norm_of_squares(squares, lift);
        }
        if (!bucket.is_there || team_lane() != 0) return;
        store_one(scale_at<float>(bucket.sink, bucket.span.start),
                  NormTraits<T>::grid(bucket.sink).stored(norm, magnitude.largest));
    });
}

// ---- terngrad

template <class T> QCCL_DEVICE TerngradScale team_scale(const TeamBucket &bucket) {
    auto magnitude = Magnitude<float>::none();
    for_each_team_value<T>(bucket.source, bucket.span, [&](float x) { magnitude.add(x); });
    for (unsigned mask = 1; mask < sum_lanes; mask *= 2) magnitude.merge_lane(mask);
    const float squares = team_squares<T>(bucket, terngrad_lift(magnitude.largest));
    return terngrad_scale(magnitude.largest, squares, bucket.span.end - bucket.span.start,
                          bucket.sink.clip);
}

template <class T> QCCL_DEVICE void encode_ternary(const Batch &batch) {
    if (block() == 0 && warp() == 0)
        for (uint32_t i = 0; i < batch.tensors; i++)
            clear_gaps(batch.operand[batch.tensor[i].first_source - 1]);
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        const TerngradScale scale = team_scale<T>(bucket);
        if (!bucket.is_there) return;
        const Operand &sink = bucket.sink;
        const Noise &noise = bucket.tensor.noise;
        if (team_lane() == 0) store_one(scale_at<float>(sink, bucket.span.start), scale.wire);
        const Ternary ternary = ternary_of(sink, bucket_of(sink, bucket.span.start));
        for (uint64_t byte = team_lane(); byte < ternary.bytes; byte += sum_lanes) {
            uint32_t digits = 0, power = 1;
            for (uint64_t i = byte; i < ternary.values; i += ternary.bytes, power *= 3) {
                const uint64_t place = bucket.span.start + i;
                const Draw draw{noise_draw(noise.key, noise.call + base_call(batch),
                                           noise.first_index + place)};
                digits +=
                    power * terngrad_digit(load_float_value<T>(bucket.source, place), scale, draw);
            }
            store_one(ternary.packed + byte, static_cast<uint8_t>(digits));
        }
    });
}

} // namespace qccl::QCCL_GPU
