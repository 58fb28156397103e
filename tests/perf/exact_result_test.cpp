// Tests ExactResult of perf/run/result_check, the expected values of qccl-perf: every element
// equals plain arithmetic in the type itself. Integers use the full range of their type.
#include "tests/kit/qtest.hpp"

#include "codec/codec.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/result_check.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

using namespace qccl;
using namespace qccl::perf;

template <class T> static T input(uint32_t rank, uint64_t i) {
    const uint64_t bits = splitmix64(splitmix64(rank) + i);
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(bits);
    else
        return static_cast<T>(static_cast<int>(bits % 2001) - 1000) / 64;
}

template <class T> class Wide final : public Source {
public:
    void read(uint32_t rank, DataType, uint64_t first, size_t count,
              std::byte *dst) const override {
        for (size_t i = 0; i < count; i++) {
            const T value = input<T>(rank, first + i);
            std::memcpy(dst + i * sizeof value, &value, sizeof value);
        }
    }
    uint32_t exact_ranks(DataType) const override { return 1; }
};

template <class T> static T combine(RedOp op, T a, T b) {
    if (op == RedOp::max) return std::max(a, b);
    if (op == RedOp::min) return std::min(a, b);
    if constexpr (std::is_integral_v<T>) { // wraps; small types must not become int
        if (op == RedOp::bit_and) return static_cast<T>(a & b);
        if (op == RedOp::bit_or) return static_cast<T>(a | b);
        if (op == RedOp::bit_xor) return static_cast<T>(a ^ b);
        if (op == RedOp::logical_and) return static_cast<T>(a && b);
        if (op == RedOp::logical_or) return static_cast<T>(a || b);
        if (op == RedOp::logical_xor) return static_cast<T>(!a != !b);
        const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
        return static_cast<T>(op == RedOp::prod ? x * y : x + y);
    } else {
        return op == RedOp::prod ? a * b : a + b;
    }
}

// Returns element i of the result that `rank` receives.
template <class T> static T plain_result(const Operation &operation, uint32_t rank, uint64_t i) {
    if (operation.parts && !reduces(operation.collective) &&
        operation.collective != Collective::scatter) {
        uint32_t giver = 0;
        for (; i >= operation.part_count(giver, rank); giver++)
            i -= operation.part_count(giver, rank);
        uint64_t start = 0;
        for (uint32_t other = 0; operation.collective == Collective::all_to_all && other < rank;
             other++)
            start += operation.part_count(giver, other);
        return input<T>(giver, start + i);
    }
    const uint64_t own =
        operation.parts ? operation.parts->own_start(rank) : rank * operation.count;
    switch (operation.collective) {
    case Collective::send:
    case Collective::broadcast: return input<T>(operation.root, i);
    case Collective::all_to_all:
        return input<T>(static_cast<uint32_t>(i / operation.count),
                        rank * operation.count + i % operation.count);
    case Collective::scatter: return input<T>(operation.root, own + i);
    case Collective::all_gather:
    case Collective::gather:
        return input<T>(static_cast<uint32_t>(i / operation.count), i % operation.count);
    case Collective::reduce_scatter: i += own; break;
    default: break;
    }
    T result = input<T>(0, i);
    const uint32_t givers = covered_ranks(operation.collective, rank, operation.ranks);
    for (uint32_t giver = 1; giver < givers; giver++)
        result = combine(operation.op, result, input<T>(giver, i));
    return operation.op == RedOp::avg ? static_cast<T>(result / static_cast<T>(operation.ranks))
                                      : result;
}

template <class T>
static void check_range(const Operation &operation, uint32_t rank, uint64_t first, size_t count) {
    const Wide<T> source;
    ExactResult exact(operation, source);
    std::vector<std::byte> stored(count * sizeof(T));
    if constexpr (std::is_integral_v<T>) {
        std::vector<int64_t> values(count);
        exact.integers(rank, first, count, values.data());
        store_integers(operation.type, values.data(), count, stored.data());
    } else {
        std::vector<double> values(count), magnitudes(count);
        exact.reals(rank, first, count, values.data(), magnitudes.data());
        store_reals(operation.type, values.data(), count, stored.data());
    }
    for (size_t i = 0; i < count; i++) {
        T got;
        std::memcpy(&got, &stored[i * sizeof got], sizeof got);
        if (got != plain_result<T>(operation, rank, first + i))
            throw qtest::Failure{std::string(name(operation.collective)) + " " +
                                 name(operation.type) + " " + name(operation.op) + ": element " +
                                 std::to_string(first + i) + " of rank " + std::to_string(rank)};
    }
}

template <class T> static void check_operation(const Operation &operation) {
    if (!takes_op(operation.collective, operation.op) ||
        !check_op(operation.collective, operation.type, operation.op))
        return;
    for (const uint32_t rank : {0U, 1U, 2U}) {
        if (!operation.has_result(rank)) continue;
        const auto all = static_cast<size_t>(operation.recv_count(rank));
        check_range<T>(operation, rank, 0, all);
        check_range<T>(operation, rank, all / 2 + all / 14, all / 3);
    }
}

template <class T> static void check_type(DataType type) {
    for (const RedOp op : all_ops) {
        Operation operation{.type = type, .op = op, .root = 2, .ranks = 3, .count = 100};
        for (const Collective collective : value_collectives) {
            operation.collective = collective;
            check_operation<T>(operation);
        }
        operation.pattern = Pattern::v_form;
        for (const VForm &form : v_forms)
            for (const Skew skew : {Skew::linear, Skew::one, Skew::random}) {
                operation.collective = form.of;
                operation.parts = PartCounts::create({.collective = form.of,
                                                      .skew = skew,
                                                      .ranks = 3,
                                                      .root = 2,
                                                      .count = operation.count});
                check_operation<T>(operation);
            }
    }
}

static void the_exact_result_is_what_plain_arithmetic_gives() {
    check_type<int8_t>(DataType::int8);
    check_type<uint8_t>(DataType::uint8);
    check_type<int16_t>(DataType::int16);
    check_type<uint16_t>(DataType::uint16);
    check_type<int32_t>(DataType::int32);
    check_type<uint32_t>(DataType::uint32);
    check_type<int64_t>(DataType::int64);
    check_type<uint64_t>(DataType::uint64);
    check_type<double>(DataType::float64);
}

int main() {
    const CMUnitTest tests[] = {QTEST(the_exact_result_is_what_plain_arithmetic_gives)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
