// Tests sums that are rounded once: LongAccumulator against sums that are known, and every CPU tier
// that runs here against the scalar reference, for all types of floats, values that overflow,
// vanish, cancel or are not finite, and any order of the summands.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"

#include "device/exact_sum.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace qccl;
using namespace operands;

namespace {

constexpr double largest = std::numeric_limits<double>::max();
constexpr double smallest = std::numeric_limits<double>::denorm_min();
constexpr double infinity = std::numeric_limits<double>::infinity();

struct KnownSum {
    std::vector<double> values;
    double sum;
};
const std::vector<KnownSum> known_sums = {
    {{1, 0x1p100, 1, -0x1p100}, 2},
    {{1, 0x1p-53}, 1},                      // a tie goes to even
    {{1, 0x1p-53, 0x1p-106}, 1 + 0x1p-52},  // just above the tie
    {{1, 0x1p-53, 0x1p-1074}, 1 + 0x1p-52}, // far below it
    {{1, 0x1p-53, -0x1p-1074}, 1},
    {{1 + 0x1p-52, 0x1p-53}, 1 + 0x1p-51},
    {{-1, -0x1p-53, -smallest}, -1 - 0x1p-52},
    {{largest, largest, -largest}, largest}, // no overflow on the way
    {{largest, largest}, infinity},
    {{largest, 0x1p969}, largest},  // below half of the last place
    {{largest, 0x1p970}, infinity}, // half of it
    {{-largest, -0x1p970, smallest}, -largest},
    {{0x1p961, -0x1p960, -0x1p960, smallest}, smallest},
    {{smallest, smallest, -smallest}, smallest},
    {{0x1p-1022, -smallest}, 0x1p-1022 - smallest},
    {{0x1p1000, 0x1p900, 0x1p-900, -0x1p1000, -0x1p900}, 0x1p-900},
    {{infinity, -largest, 1}, infinity},
    {{0.0, -0.0}, 0.0},
    {{-0.0, -0.0, -0.0}, -0.0},
    {{-0.0, 1e300, -1e300, -0.0}, 0.0},
    {{-0.0, largest, -largest}, 0.0},
};

bool are_same(double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// Sums vectors of `count` values and rounds the sums.
Buffer summed(const Kernels &kernels, DataType type, const std::vector<Buffer *> &sources,
              size_t count, uint32_t ranks) {
    std::vector<ExactBlock> blocks(count / ExactBlock::values + 1);
    std::memset(static_cast<void *>(blocks.data()), 0xA5, blocks.size() * sizeof(ExactBlock));
    Buffer result(count * type_bytes(type), 3);
    kernels.begin_exact(type, blocks.data(), sources[0]->data(), count);
    for (size_t i = 1; i < sources.size(); i++)
        kernels.add_exact(type, blocks.data(), sources[i]->data(), count);
    kernels.round_exact(type, result.data(), blocks.data(), count, ranks);
    return result;
}

double sum_by(const Kernels &kernels, const std::vector<double> &values) {
    std::vector<Buffer> buffers;
    for (const double value : values) {
        buffers.emplace_back(sizeof(double));
        store_bits(buffers.back().data(), 0, value);
    }
    std::vector<Buffer *> sources;
    for (Buffer &buffer : buffers) sources.push_back(&buffer);
    Buffer result = summed(kernels, DataType::float64, sources, 1, 1);
    return load_bits<double>(result.data(), 0);
}

constexpr DataType float_types[] = {DataType::float64,  DataType::float32,    DataType::float16,
                                    DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};

} // namespace

static void known_sums_are_right_in_every_order() {
    for (KnownSum known : known_sums) {
        std::ranges::sort(known.values);
        do {
            LongAccumulator sum{};
            for (const double value : known.values) sum.add(value);
            CHECK(are_same(sum.rounded(), known.sum));
            for (const Kernels *const tier : available_kernels())
                if (!are_same(sum_by(*tier, known.values), known.sum))
                    throw qtest::Failure{std::string(name(tier->tier)) + ": " +
                                         std::to_string(known.sum)};
        } while (std::ranges::next_permutation(known.values).found);
    }
    LongAccumulator none{};
    none.add(infinity);
    none.add(-infinity);
    CHECK(are_same(none.rounded(), std::bit_cast<double>(double_nan)));
}

// Fixed-point numbers of 128 bits are a second way to the same sums.
static void long_sums_are_those_of_whole_numbers() {
    std::mt19937_64 random(31);
    for (int i = 0; i < 20000; i++) {
        const int lowest = static_cast<int>(random() % 1800) - 1000;
        LongAccumulator sum{}, half_a{}, half_b{};
        __int128 whole = 0;
        const size_t terms = 1 + random() % 40;
        for (size_t t = 0; t < terms; t++) {
            const auto bits = static_cast<int64_t>(random()) >> (11 + random() % 50);
            const int shift = static_cast<int>(random() % 60);
            whole += static_cast<__int128>(bits) << shift;
            const double value = std::ldexp(static_cast<double>(bits), shift + lowest);
            sum.add(value);
            (t % 3 == 0 ? half_a : half_b).add(value);
        }
        // GCC and Clang round conversions of these numbers to the nearest, ties to even.
        const double want = std::ldexp(static_cast<double>(whole), lowest);
        CHECK(are_same(sum.rounded() + 0.0, want + 0.0));
        half_a.add(half_b);
        CHECK(are_same(half_a.rounded() + 0.0, want + 0.0));
        const double odd = sum.rounded_to_odd();
        CHECK(odd == want || std::nextafter(odd, want) == want);
        const bool is_double = static_cast<__int128>(static_cast<double>(whole)) == whole;
        CHECK(is_double ? odd == want : (std::bit_cast<uint64_t>(odd) & 1) == 1);
    }
}

static void all_tiers_sum_as_the_reference() {
    Values values(32);
    for (const DataType type : float_types)
        for (const size_t summands : std::initializer_list<size_t>{1, 2, 3, 4, 17})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 63, 64, 65, 1000})
                for (const Pattern pattern : patterns) {
                    std::vector<Buffer> buffers;
                    for (size_t i = 0; i < summands; i++) {
                        buffers.emplace_back(count * type_bytes(type), values.pick(64));
                        // A few summands of another kind, so that sums cancel and vanish.
                        fill(values, i % 4 == 3 ? Pattern::special : pattern, type,
                             buffers.back().data(), count);
                    }
                    std::vector<Buffer *> sources, backwards;
                    for (Buffer &buffer : buffers) sources.push_back(&buffer);
                    backwards.assign(sources.rbegin(), sources.rend());
                    for (const uint32_t ranks : {1U, static_cast<uint32_t>(summands)}) {
                        Buffer want = summed(scalar_kernels(), type, sources, count, ranks);
                        for (const Kernels *const tier : available_kernels())
                            for (const auto &order : {sources, backwards}) {
                                Buffer got = summed(*tier, type, order, count, ranks);
                                if (!same(got, want))
                                    throw qtest::Failure{
                                        std::string(name(tier->tier)) + " differs: " + name(type) +
                                        ", " + std::to_string(summands) + " summands, count " +
                                        std::to_string(count) + ", pattern " +
                                        std::to_string(static_cast<int>(pattern))};
                            }
                    }
                }
}

// Doubles of any exponent, of which neighbours cancel, so that errors reach the last plane and
// fall off it.
static void far_exponents_agree() {
    std::mt19937_64 random(33);
    constexpr size_t count = 200, summands = 24;
    for (int round = 0; round < 20; round++) {
        std::vector<Buffer> buffers;
        for (size_t i = 0; i < summands; i++) {
            buffers.emplace_back(count * sizeof(double));
            for (size_t at = 0; at < count; at++) {
                uint64_t bits = random();
                if (i % 2 == 1 && random() % 3 == 0)
                    bits = load_bits<uint64_t>(buffers[i - 1].data(), at) ^ uint64_t { 1 } << 63;
                if ((bits >> 52 & 0x7FF) == 0x7FF) bits &= ~(uint64_t{1} << 62);
                store_bits(buffers[i].data(), at, bits);
            }
        }
        std::vector<Buffer *> sources;
        for (Buffer &buffer : buffers) sources.push_back(&buffer);
        Buffer want = summed(scalar_kernels(), DataType::float64, sources, count, 1);
        for (const Kernels *const tier : available_kernels()) {
            std::rotate(sources.begin(), sources.begin() + 7, sources.end());
            Buffer got = summed(*tier, DataType::float64, sources, count, 1);
            CHECK(same(got, want));
        }
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(known_sums_are_right_in_every_order),
        QTEST(long_sums_are_those_of_whole_numbers),
        QTEST(all_tiers_sum_as_the_reference),
        QTEST(far_exponents_agree),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
