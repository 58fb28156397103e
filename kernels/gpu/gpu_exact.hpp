// The fold of sums that are rounded once (codec `exact`). A lane keeps each sum as two doubles, the
// sum and what its roundings have lost. A value whose sum they do not hold, or whose summands are
// huge or not finite, is summed again by itself in a LongAccumulator, which is slow and rare.
#pragma once

#include "device/exact_sum.hpp"
#include "kernels/gpu/gpu_fold.hpp"

#include <cmath>

namespace qccl::QCCL_GPU {

// Adds `value` to `sum`, and returns what the rounding has lost (Knuth, "The Art of Computer
// Programming", volume 2, 4.2.2).
QCCL_DEVICE double add_and_lose(double &sum, double value) {
    const double before = sum;
    sum = before + value;
    const double value_in_sum = sum - before;
    const double before_in_sum = sum - value_in_sum;
    return (before - before_in_sum) + (value - value_in_sum);
}

// Rounds a sum of two doubles to odd.
QCCL_DEVICE double added_to_odd(double sum, double rest) {
    const double lost = add_and_lose(sum, rest);
    const auto pattern = std::bit_cast<uint64_t>(sum);
    if (lost == 0 || (pattern & 1) != 0) return sum;
    // The last place moves away from zero if what was lost has the sum's sign.
    return std::bit_cast<double>((lost < 0) == (sum < 0) ? pattern + 1 : pattern - 1);
}

// T is the accumulator's type of the values.
template <class T> struct ExactRow {
    const Batch &batch;
    const Tensor &tensor;
    const Operand &sink;

    QCCL_DEVICE const Operand &source(uint32_t number) const {
        return batch.operand[tensor.first_source + number];
    }
    // Whether the result is rounded again, to a narrower type.
    QCCL_DEVICE bool rounds_again() const {
        return batch.divisor == 1 && sink.type != DataType::float64;
    }
    QCCL_DEVICE double divided_sum(double sum) const {
        return batch.divisor == 1 ? sum : sum / batch.divisor;
    }

    QCCL_DEVICE double result(double sum, double rest) const {
        if (rest == 0) return divided_sum(sum); // keeps -0
        return divided_sum(rounds_again() ? added_to_odd(sum, rest) : sum + rest);
    }

    QCCL_DEVICE double long_result(uint64_t at) const {
        LongAccumulator sum{};
#pragma unroll 1
        for (uint32_t i = 0; i < tensor.sources; i++)
            with_bits<T>(source(i).type, [&]<class Bits>(Bits) {
                const auto bits = load_one<Bits>(source(i).at + at * sizeof(Bits));
                sum.add(static_cast<double>(widened<T>(source(i).type, bits)));
            });
        return divided_sum(rounds_again() ? sum.rounded_to_odd() : sum.rounded());
    }

    QCCL_DEVICE void operator()(uint64_t number) const {
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> values;
        Held<Striped, double> sum, rest;
        uint32_t is_long = 0; // a bit for each value of the lane
        const auto note = [&](unsigned run, unsigned i, bool holds) {
            is_long |= holds ? 1U << (run * Striped::length + i) : 0U;
        };
        take_plain<T>(source(0), place, values);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            sum[run][i] = values[run][i];
            rest[run][i] = 0;
            note(run, i, !(std::fabs(sum[run][i]) < least_long_value));
        });
#pragma unroll 1
        for (uint32_t next = 1; next < tensor.sources; next++) {
            take_plain<T>(source(next), place, values);
            for_each_value<Striped>([&](unsigned run, unsigned i) {
                const double value = values[run][i];
                const double lost = add_and_lose(sum[run][i], value);
                const double lost_again = add_and_lose(rest[run][i], lost);
                note(run, i, !(std::fabs(value) < least_long_value) || lost_again != 0);
            });
        }
        for_each_value<Striped>(
            [&](unsigned run, unsigned i) { sum[run][i] = result(sum[run][i], rest[run][i]); });
        if (is_long != 0)
            for_each_slowly(place, [&](unsigned run, unsigned i, uint64_t at) {
                if ((is_long >> (run * Striped::length + i) & 1) != 0)
                    set(sum, run, i, long_result(at));
            });
        put(place, sum);
    }

    QCCL_DEVICE void put(const Place<Striped> &place, const Held<Striped, double> &sum) const {
        with_bits<T>(sink.type, [&]<class Bits>(Bits) {
            Held<Striped, Bits> bits;
            if constexpr (std::is_same_v<Bits, T>)
                for_each_value<Striped>([&](unsigned run, unsigned i) {
                    bits[run][i] = canonical(static_cast<T>(sum[run][i]));
                });
            else
                with_format<Bits>(sink.type, [&]<class F>(F) {
                    for_each_value<Striped>([&](unsigned run, unsigned i) {
                        bits[run][i] = static_cast<Bits>(narrow<F>(sum[run][i]));
                    });
                });
            store_runs(sink.at, place, bits);
        });
    }
};

template <class T> QCCL_DEVICE void fold_exact(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        ExactRow<T>{batch, tensor, sink}(number);
    });
}

} // namespace qccl::QCCL_GPU
