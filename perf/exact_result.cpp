// Implements exact_result.hpp: reads the inputs of all ranks and combines them in double or
// int64_t.
#include "perf/exact_result.hpp"

#include "kernels/number.hpp"
#include "perf/values.hpp"

#include <algorithm>
#include <cmath>

namespace qccl::perf {

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
        for (size_t i = 0; i < part; i++) use(at + i, values[i], is_first);
    };
    if (reduces(operation_.collective)) {
        const uint64_t begin = first + rank * operation_.recv_in_place_stride();
        for (uint32_t giver = 0; giver < operation_.ranks; giver++)
            take(giver, begin, 0, count, giver == 0);
    } else if (operation_.collective == Collective::broadcast) {
        take(operation_.root, first, 0, count, true);
    } else {
        for (size_t at = 0; at < count;) {
            const uint64_t giver = (first + at) / operation_.count,
                           within = (first + at) % operation_.count;
            const size_t part = std::min<uint64_t>(count - at, operation_.count - within);
            take(static_cast<uint32_t>(giver), within, at, part, true);
            at += part;
        }
    }
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
    for_each_input<double>(rank, first, count, load_reals,
                           [&](size_t i, double value, bool is_first) {
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

} // namespace qccl::perf
