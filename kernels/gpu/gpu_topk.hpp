// The kernels that encode a topk chunk, in the order of their launches: a sample, the histograms of
// the magnitudes' digits, which give the threshold, the number of values that each tile keeps, and
// the values themselves. No launch waits for another block: the next launch reads what blocks
// exchange (TopkScratch in batch.hpp).
//
// A batch has one tensor, whose operands are the sink, the source and the scratch memory. The
// scratch operand's `bits` is a number that tells launches of the same kernel apart.
//
// The threads of a block compute together prefix sums, histograms of digits, and the digit of the
// n-th largest value. All threads of the block must call these functions.
#pragma once

#include "device/batch.hpp"
#include "kernels/gpu/gpu_fold.hpp"

namespace qccl::QCCL_GPU {

// ---- Histograms of a block

// The sum over the threads before this one, and the sum over all threads.
template <class N> struct Prefix { N before, total; };
// Returns the prefix sum of `own`. `parts` is shared memory with one element per warp.
template <class N, class Parts> QCCL_DEVICE Prefix<N> block_prefix(N own, Parts &&parts) {
    Prefix<N> prefix{0, own};
    for (unsigned mask = 1; mask < lanes; mask *= 2) {
        const N other = shuffle_xor(prefix.total, mask);
        if ((lane() & mask) != 0) prefix.before += other;
        prefix.total += other;
    }
    if (lane() == 0) parts[warp()] = prefix.total;
    barrier();
    prefix.total = 0;
    for (unsigned w = 0; w < block_warps; w++) {
        const N part = parts[w];
        if (w < warp()) prefix.before += part;
        prefix.total += part;
    }
    barrier(); // the next call reuses `parts`
    return prefix;
}

// ---- Histograms

template <class Bins> QCCL_DEVICE void clear_bins(Bins &&bins) {
    for (unsigned i = thread(); i < digit_bins; i += block_threads) bins[i] = 0;
    barrier();
}
// Adds the block's bins to the histogram of all blocks.
template <class Bins> QCCL_DEVICE void add_bins(Bins &&bins, std::byte *histogram) {
    barrier();
    for (unsigned i = thread(); i < digit_bins; i += block_threads)
        if (const uint32_t number = bins[i]; number != 0)
            atomic_add(reinterpret_cast<uint64_t *>(histogram) + i, number);
}

// The bins of a thread; the first thread has the highest bins.
inline constexpr unsigned thread_bins = digit_bins / block_threads;
QCCL_DEVICE unsigned lowest_bin() { return (block_threads - 1 - thread()) * thread_bins; }
QCCL_DEVICE void load_bins(const std::byte *histogram, uint64_t (&bins)[thread_bins]) {
    load(histogram + lowest_bin() * sizeof(uint64_t), bins);
}

// The digit of the n-th largest value, and how many values with that digit are among the n.
struct HistogramCut {
    uint64_t digit, left;
};
// Finds the cut for n = wanted_of(number of values in the histogram). If there are fewer values
// than n, the cut is at the lowest digit.
template <class RankSought>
QCCL_DEVICE HistogramCut find_cut(const std::byte *histogram, RankSought &&wanted_of) {
    QCCL_SHARED(uint64_t, parts, block_warps);
    QCCL_SHARED(uint64_t, cut, 2);
    uint64_t bins[thread_bins], own = 0;
    load_bins(histogram, bins);
#pragma unroll
    for (unsigned i = 0; i < thread_bins; i++) own += bins[i];
    const auto prefix = block_prefix(own, parts);
    const uint64_t wanted = wanted_of(prefix.total);
    if (prefix.before < wanted && wanted <= prefix.before + own) {
        uint64_t left = wanted - prefix.before;
        bool is_found = false;
#pragma unroll
        for (unsigned i = thread_bins; i-- > 0;) {
            if (!is_found && left <= bins[i]) {
                is_found = true;
                cut[0] = lowest_bin() + i;
                cut[1] = left;
            }
            if (!is_found) left -= bins[i];
        }
    } else if (thread() == 0 && prefix.total < wanted) {
        cut[0] = 0;
        cut[1] = 0;
    }
    barrier();
    return {cut[0], cut[1]};
}

// ---- Kernels

static_assert(tile_values == block_threads * 64 && page_tiles * tile_values == topk_page_values);

// ---- Octets: eight values next to each other

template <class Call> QCCL_DEVICE void for_each_of_octet(Call &&call) {
#pragma unroll
    for (unsigned i = 0; i < 8; i++) call(i);
}

// Loads eight values from `place` on. `count` values exist; beyond them the last one is repeated.
template <class Bits>
QCCL_DEVICE void load_eight(const std::byte *start, uint64_t place, uint64_t count,
                            Octet<Bits> &bits) {
    const std::byte *const at = start + place * sizeof(Bits);
    if (is_aligned<Bits, 8>(at) && remaining(place, count, 8) == 8) return load(at, bits);
#pragma unroll 1
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t known = place + i < count ? place + i : count - 1;
        set(bits, i, load_one<Bits>(start + known * sizeof(Bits)));
    }
}

// ---- Values as they are kept

// The unsigned type that holds the bits of a value.
template <class Bits>
using Pattern = std::conditional_t<std::is_same_v<Bits, double>, uint64_t,
                                   std::conditional_t<std::is_same_v<Bits, float>, uint32_t, Bits>>;

// The tensor of a launch. T is the accumulator's type; Bits is the type that holds a value of the
// tensor's type.
template <class T, class Bits> struct Selection {
    using Word = Pattern<Bits>;

    const Operand &sink, &source, &scratch;
    const uint64_t count;
    const TopkScratch layout;

    QCCL_DEVICE explicit Selection(const Batch &batch)
        : sink(batch.operand[0]), source(batch.operand[1]), scratch(batch.operand[2]),
          count(batch.tensor[0].count), layout(sizeof(Bits), count) {}

    QCCL_DEVICE std::byte *at(uint64_t offset) const { return scratch.at + offset; }
    QCCL_DEVICE unsigned digits() const { return layout.digits.count(); }
    QCCL_DEVICE static Word magnitude(Word pattern) {
        return static_cast<Word>(pattern & static_cast<Word>(static_cast<Word>(~Word{0}) >> 1));
    }

    // Loads eight bit patterns from `place` on, in the tensor's type with NaN canonical. `place`
    // must be inside the tensor.
    QCCL_DEVICE void load_patterns(uint64_t place, Octet<Word> &patterns) const {
        if constexpr (std::is_same_v<Bits, T>) {
            Octet<T> values;
            load_eight(source.at, place, count, values);
            for_each_of_octet(
                [&](unsigned i) { patterns[i] = std::bit_cast<Word>(canonical(values[i])); });
        } else if (source.type == sink.type) {
            load_eight(source.at, place, count, patterns);
            with_format<Bits>(sink.type, [&]<class F>(F) {
                for_each_of_octet([&](unsigned i) {
                    patterns[i] = static_cast<Word>(canonical_pattern<F>(patterns[i]));
                });
            });
        } else {
            T values[1][8];
            Word narrowed[1][8];
            load_eight(source.at, place, count, values[0]);
            narrow_values(sink.type, false, values, narrowed);
            for_each_of_octet([&](unsigned i) { patterns[i] = narrowed[0][i]; });
        }
    }
};

// Calls run(selection) with the selection of the batch's tensor.
template <class T, class Run> QCCL_DEVICE void with_selection(const Batch &batch, Run &&run) {
    if constexpr (sizeof(T) == 8)
        run(Selection<T, T>(batch)); // no narrower type has this accumulator
    else
        with_bits<T>(batch.operand[0].type,
                     [&]<class Bits>(Bits) { run(Selection<T, Bits>(batch)); });
}

// ---- The first digit

// Returns the sample's row of this number: one row in each step, but not always the same one of a
// step, because tensors have columns.
QCCL_DEVICE uint64_t sampled_row(uint64_t number) {
    return number * sample_step + (static_cast<uint32_t>(number) * 0x9E3779B1U >> 16) % sample_step;
}

template <class T> QCCL_DEVICE void topk_sample(const Batch &batch) {
    QCCL_SHARED(uint32_t, bins, digit_bins);
    clear_bins(bins);
    with_selection<T>(batch, [&]<class S>(const S &of) {
        const unsigned shift = of.layout.digits.behind(1);
        const uint64_t stride = uint64_t{blocks()} * block_warps;
        const uint64_t rows = (of.count + 8 * lanes - 1) / (8 * lanes);
        uint64_t number = uint64_t{block()} * block_warps + warp();
        for (; number * sample_step < rows; number += stride) {
            const uint64_t place = (sampled_row(number) * lanes + lane()) * 8;
            const unsigned there = remaining(place, of.count, 8);
            if (there == 0) continue;
            typename S::Word patterns[8];
            of.load_patterns(place, patterns);
            for_each_of_octet([&](unsigned i) {
                if (i < there) atomic_add(bins[of.magnitude(patterns[i]) >> shift], 1);
            });
        }
        add_bins(bins, of.at(of.layout.sample()));
    });
}

// Returns the floor: the lowest digit that the first pass counts. The share of the sample from the
// floor on is twice the share of values that are kept, and 16 values more, so the threshold is
// hardly ever below the floor.
template <class S> QCCL_DEVICE uint64_t sampled_floor(const S &of) {
    return find_cut(of.at(of.layout.sample()),
                    [&](uint64_t sampled) { return sampled / (of.count / of.sink.kept) * 2 + 16; })
        .digit;
}

// Returns true if the first digit's histogram, which counts digits from the floor on, reaches the
// threshold.
template <class S> QCCL_DEVICE bool is_floor_low_enough(const S &of, uint64_t floor) {
    QCCL_SHARED(uint64_t, parts, block_warps);
    uint64_t bins[thread_bins], own = 0;
    load_bins(of.at(of.layout.histogram(0)), bins);
#pragma unroll
    for (unsigned i = 0; i < thread_bins; i++) own += lowest_bin() + i >= floor ? bins[i] : 0;
    return block_prefix(own, parts).total >= of.sink.kept;
}

// Counts digits from `lowest` to before `end`, and marks the octets that have a digit from `lowest`
// on.
template <class S, class Bins>
QCCL_DEVICE void count_first_digits(const S &of, uint64_t lowest, uint64_t end, Bins &&bins) {
    using Marks = std::conditional_t<lanes == 32, uint32_t, uint64_t>;
    constexpr unsigned rows_at_once = 2; // keeps more loads in flight
    const unsigned shift = of.layout.digits.behind(1);
    const uint64_t rows = (of.count + 8 * lanes - 1) / (8 * lanes);
    const uint64_t stride = uint64_t{blocks()} * block_warps * rows_at_once;
    uint64_t row = (uint64_t{block()} * block_warps + warp()) * rows_at_once;
    for (; row < rows; row += stride) {
        typename S::Word patterns[rows_at_once][8];
        unsigned there[rows_at_once];
#pragma unroll
        for (unsigned k = 0; k < rows_at_once; k++) {
            const uint64_t place = ((row + k) * lanes + lane()) * 8;
            there[k] = remaining(place, of.count, 8);
            if (there[k] != 0) of.load_patterns(place, patterns[k]);
        }
#pragma unroll
        for (unsigned k = 0; k < rows_at_once; k++) {
            // Few octets have a digit to count. Behind the last value an octet repeats that value,
            // so the maximum is right there, too.
            bool is_marked = false;
            if (there[k] != 0) {
                auto largest = typename S::Word{0};
                for_each_of_octet([&](unsigned i) {
                    const auto magnitude = of.magnitude(patterns[k][i]);
                    largest = magnitude > largest ? magnitude : largest;
                });
                is_marked = uint64_t{largest} >> shift >= lowest;
            }
            const auto marks = static_cast<Marks>(ballot(is_marked));
            if (lane() == 0 && row + k < rows)
                store_one(of.at(of.layout.marks() + (row + k) * sizeof(Marks)), marks);
            if (!is_marked) continue;
            for_each_of_octet([&](unsigned i) {
                const auto digit = static_cast<uint64_t>(of.magnitude(patterns[k][i]) >> shift);
                if (i < there[k] && digit >= lowest && digit < end) atomic_add(bins[digit], 1);
            });
        }
    }
}

// Counts the first digit from the floor on. A second launch counts what the first has left out, if
// the sample has misled the first.
template <class T> QCCL_DEVICE void topk_first(const Batch &batch) {
    QCCL_SHARED(uint32_t, bins, digit_bins);
    clear_bins(bins);
    with_selection<T>(batch, [&]<class S>(const S &of) {
        const bool is_second = of.scratch.bits != 0;
        const uint64_t floor = sampled_floor(of);
        if (is_second && is_floor_low_enough(of, floor)) return;
        count_first_digits(of, is_second ? 0 : floor, is_second ? floor : digit_bins, bins);
        add_bins(bins, of.at(of.layout.histogram(0)));
    });
}

// ---- The other digits

// Returns the threshold after `digits` digits. This launch finds the last of them and stores the
// result for the next launch.
template <class S> QCCL_DEVICE TopkThreshold find_threshold(const S &of, unsigned digits) {
    TopkThreshold found{0, of.sink.kept};
    if (digits > 1) found = load_one<TopkThreshold>(of.at(of.layout.threshold(digits - 2)));
    const HistogramCut cut =
        find_cut(of.at(of.layout.histogram(digits - 1)), [&](uint64_t) { return found.ties; });
    found.magnitude = found.magnitude << of.layout.digits.width(digits - 1) | cut.digit;
    found.ties = cut.left;
    if (block() == 0 && thread() == 0) store_one(of.at(of.layout.threshold(digits - 1)), found);
    return found;
}

// Calls see(place, pattern) for the thread's values of a tile that lie in marked octets, in order.
template <class S, class See>
QCCL_DEVICE void for_each_marked(const S &of, uint64_t tile, See &&see) {
    const uint64_t first = tile * tile_values + thread() * 64; // eight octets, one byte of marks
    if (first >= of.count) return;
    uint32_t marks = load_one<uint8_t>(of.at(of.layout.marks() + first / 64));
#pragma unroll 1
    for (; marks != 0; marks &= marks - 1) {
        const uint64_t place = first + 8 * lowest_bit(marks);
        const unsigned there = remaining(place, of.count, 8);
        typename S::Word patterns[8];
        of.load_patterns(place, patterns);
        for_each_of_octet([&](unsigned i) {
            if (i < there) see(place + i, patterns[i]);
        });
    }
}

template <class T> QCCL_DEVICE void topk_digit(const Batch &batch) {
    QCCL_SHARED(uint32_t, bins, digit_bins);
    clear_bins(bins);
    with_selection<T>(batch, [&]<class S>(const S &of) {
        const unsigned digit = of.scratch.bits;
        const TopkThreshold known = find_threshold(of, digit);
        const unsigned shift = of.layout.digits.behind(digit + 1);
        const unsigned width = of.layout.digits.width(digit);
        for (uint64_t tile = block(); tile < of.layout.tiles; tile += blocks())
            for_each_marked(of, tile, [&](uint64_t, typename S::Word pattern) {
                const auto digits = static_cast<uint64_t>(of.magnitude(pattern) >> shift);
                if (digits >> width == known.magnitude)
                    atomic_add(bins[digits & ((1U << width) - 1)], 1);
            });
        add_bins(bins, of.at(of.layout.histogram(digit)));
    });
}

// ---- What is kept

// Counts the thread's values in a tile that are above the threshold (low half), and those that
// equal it.
template <class S>
QCCL_DEVICE uint32_t tile_part(const S &of, uint64_t tile, const TopkThreshold &threshold) {
    uint32_t part = 0;
    for_each_marked(of, tile, [&](uint64_t, typename S::Word pattern) {
        const uint64_t magnitude = of.magnitude(pattern);
        part += magnitude > threshold.magnitude    ? 1U
                : magnitude == threshold.magnitude ? 1U << 16
                                                   : 0;
    });
    return part;
}

template <class T> QCCL_DEVICE void topk_count(const Batch &batch) {
    QCCL_SHARED(uint32_t, parts, block_warps);
    with_selection<T>(batch, [&]<class S>(const S &of) {
        const TopkThreshold threshold = find_threshold(of, of.digits());
        for (uint64_t tile = block(); tile < of.layout.tiles; tile += blocks()) {
            const uint32_t sum = block_prefix(tile_part(of, tile, threshold), parts).total;
            if (thread() != 0) continue;
            store_one(of.at(of.layout.tile_sums() + tile * sizeof(uint32_t)), sum);
            if (sum != 0)
                atomic_add(reinterpret_cast<uint64_t *>(of.at(of.layout.page_sums())) +
                               tile / page_tiles,
                           uint64_t{sum >> 16} << 32 | (sum & 0xFFFF));
        }
    });
}

// How many values before some place are above the threshold, and how many equal it.
struct Passed {
    uint64_t above, equal;

    QCCL_DEVICE uint64_t kept(const TopkThreshold &threshold) const {
        return above + (equal < threshold.ties ? equal : threshold.ties);
    }
};

template <class S> QCCL_DEVICE Passed page_sum(const S &of, uint64_t page) {
    const auto sum = load_one<uint64_t>(of.at(of.layout.page_sums() + page * sizeof(uint64_t)));
    return {sum & 0xFFFFFFFF, sum >> 32};
}
template <class S> QCCL_DEVICE Passed tile_sum(const S &of, uint64_t tile) {
    const auto sum = load_one<uint32_t>(of.at(of.layout.tile_sums() + tile * sizeof(uint32_t)));
    return {sum & 0xFFFF, sum >> 16};
}

// Returns the counts before `tile`, with which a block begins.
template <class S, class Parts>
QCCL_DEVICE Passed passed_before(const S &of, uint64_t tile, Parts &&parts) {
    Passed own{0, 0};
    const auto add = [&](const Passed &sum) {
        own.above += sum.above;
        own.equal += sum.equal;
    };
    const uint64_t page = tile / page_tiles;
    for (uint64_t i = thread(); i < page; i += block_threads) add(page_sum(of, i));
    if (thread() < tile % page_tiles) add(tile_sum(of, page * page_tiles + thread()));
    const uint64_t above = block_prefix(own.above, parts).total;
    return {above, block_prefix(own.equal, parts).total};
}

template <class S, class Parts>
QCCL_DEVICE void write_tile(const S &of, uint64_t tile, const TopkThreshold &threshold,
                            const Passed &before, Parts &&parts) {
    using Word = typename S::Word;
    const uint32_t part = block_prefix(tile_part(of, tile, threshold), parts).before;
    Passed passed{before.above + (part & 0xFFFF), before.equal + (part >> 16)};
    for_each_marked(of, tile, [&](uint64_t place, Word pattern) {
        const uint64_t magnitude = of.magnitude(pattern);
        if (magnitude < threshold.magnitude) return;
        const uint64_t to = passed.kept(threshold);
        const bool is_tie = magnitude == threshold.magnitude;
        const bool is_kept = !is_tie || passed.equal < threshold.ties;
        if (is_tie)
            passed.equal++;
        else
            passed.above++;
        if (!is_kept) return;
        store_one(part_of(of.sink, ChunkPart::indices) + to * sizeof(uint16_t),
                  static_cast<uint16_t>(place % topk_page_values));
        store_one(part_of(of.sink, ChunkPart::kept_values) + to * sizeof(Word), pattern);
    });
}

// Writes indices, kept values and page counts. A block has consecutive tiles, so it looks up only
// once where it writes.
template <class T> QCCL_DEVICE void topk_write(const Batch &batch) {
    QCCL_SHARED(uint64_t, wide_parts, block_warps);
    QCCL_SHARED(uint32_t, parts, block_warps);
    with_selection<T>(batch, [&]<class S>(const S &of) {
        if (block() == 0 && warp() == 0) clear_gaps(of.sink);
        const auto threshold = load_one<TopkThreshold>(of.at(of.layout.threshold(of.digits() - 1)));
        const uint64_t first = of.layout.tiles * block() / blocks();
        const uint64_t end = of.layout.tiles * (block() + 1) / blocks();
        if (first == end) return;
        Passed passed = passed_before(of, first, wide_parts);
        for (uint64_t tile = first; tile < end; tile++) {
            const auto after = [&](const Passed &sum) {
                return Passed{passed.above + sum.above, passed.equal + sum.equal};
            };
            const uint64_t kept = passed.kept(threshold);
            if (tile % page_tiles == 0 && thread() == 0) {
                const uint64_t page = tile / page_tiles;
                store_one(part_of(of.sink, ChunkPart::page_counts) + page * sizeof(uint32_t),
                          static_cast<uint32_t>(after(page_sum(of, page)).kept(threshold) - kept));
            }
            const Passed next = after(tile_sum(of, tile));
            if (next.kept(threshold) != kept) write_tile(of, tile, threshold, passed, parts);
            passed = next;
        }
    });
}

// Zeroes as many 64-bit words as the tensor has values.
QCCL_DEVICE void clear(const Batch &batch) {
    const uint64_t stride = uint64_t{blocks()} * block_threads, words = batch.tensor[0].count;
    for (uint64_t i = uint64_t{block()} * block_threads + thread(); i < words; i += stride)
        store_one(batch.operand[0].at + i * sizeof(uint64_t), uint64_t{0});
}

} // namespace qccl::QCCL_GPU
