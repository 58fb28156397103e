// Tests topk of the scalar reference against a sort: which values are kept on how many pages, ties,
// values that are not finite, and the addition of dropped values.
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/trip.hpp"

#include <numeric>

using namespace qccl;
using namespace trip;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

// Returns the values with all but the `kept` largest set to zero.
std::vector<float> sorted_out(const std::vector<float> &values, uint64_t kept) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto magnitude = [&](size_t i) {
        return std::bit_cast<uint32_t>(canonical(values[i])) & 0x7FFFFFFF;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return magnitude(a) > magnitude(b); });
    std::vector<float> left(values.size());
    for (uint64_t i = 0; i < kept; i++) left[order[i]] = values[order[i]];
    return left;
}

void check(const std::string &text, const std::vector<float> &values, uint64_t kept) {
    const Trip trip = travel(parsed(text), values);
    const std::vector<float> wanted = sorted_out(values, kept);
    for (size_t i = 0; i < values.size(); i++)
        if (std::bit_cast<uint32_t>(trip.values[i]) !=
            std::bit_cast<uint32_t>(canonical(wanted[i])))
            throw qtest::Failure{text + ": value " + std::to_string(i) + " is " +
                                 std::to_string(trip.values[i]) + ", not " +
                                 std::to_string(wanted[i])};
}

} // namespace

static void the_largest_are_kept() {
    check("topk", {3, -7, 5, 0}, 1);
    check("topk:ratio=0.5", {3, -7, 5, 0}, 2);
    check("topk:ratio=0.500001", {3, -7, 5, 0}, 3);
    check("topk:ratio=1", {3, -7, -0.0F, 0}, 4);
    for (const size_t count : {1U, 63U, 1001U, 65536U, 65537U, 200001U}) {
        check("topk:ratio=0.01", gaussian(count, count), (count + 99) / 100);
        check("topk:ratio=0.5", gaussian(count, count), (count + 1) / 2);
    }
    // One page keeps most of its values, another keeps none.
    std::vector<float> uneven = gaussian(1, 140000);
    for (size_t i = 65536; i < 131072; i++) uneven[i] *= 1e-6F;
    check("topk:ratio=0.4", uneven, 56000);
}

static void of_equals_the_first_are_kept() {
    std::vector<float> values(1000, 2.0F);
    for (size_t i = 0; i < values.size(); i += 2) values[i] = -2;
    check("topk:ratio=0.1", values, 100);
    check("topk:ratio=0.1", std::vector<float>(1000), 100);
    values[999] = 3;
    check("topk:ratio=0.1", values, 100);
    check("topk:ratio=0.000001", std::vector<float>(140000, 1.0F), 1);
}

static void what_is_not_finite_is_kept_first() {
    std::vector<float> values(100, std::numeric_limits<float>::max());
    values[90] = infinite;
    values[91] = -infinite;
    values[95] = -NAN;
    check("topk:ratio=0.01", values, 1);
    check("topk:ratio=0.02", values, 2);
    check("topk:ratio=0.03", values, 3);
    check("topk:ratio=0.04", values, 4);
}

// Values are compared in the type in which they are sent; here two of them round to the same value.
static void the_types_own_order_counts() {
    const std::vector<float> values{1, 1.0001F, 0.5F};
    const auto chunk =
        golden::encode_chunk(scalar_kernels(), parsed("topk:ratio=0.3"),
                             {DataType::float16, 3, 0, 0, 0}, DataType::float32, values.data());
    const auto decoded =
        golden::decode_chunk(scalar_kernels(), *open_chunk(chunk), DataType::float32);
    CHECK_EQ(load_bits<float>(decoded.data(), 0), 1.0F);
    CHECK_EQ(load_bits<float>(decoded.data(), 1), 0.0F);
}

static void dropped_values_are_added_as_zeros() {
    const Codec codec = parsed("topk:ratio=0.25");
    const Trip trip = travel(codec, {1, 0, 0, 9});
    const auto open = open_chunk(trip.chunk);
    CHECK_OK(open);
    const PayloadLayout layout = payload_layout(codec, DataType::float32, 4);
    std::vector<float> sums{-0.0F, 5, std::bit_cast<float>(0xFFC00001U), 1};
    scalar_kernels().decode_add({&codec, &layout, DataType::float32, 4, 0, 4}, RedOp::sum,
                                open->payload.data(), sums.data());
    CHECK_EQ(std::bit_cast<uint32_t>(sums[0]), 0U);
    CHECK_EQ(sums[1], 5.0F);
    CHECK_EQ(std::bit_cast<uint32_t>(sums[2]), float_nan);
    CHECK_EQ(sums[3], 10.0F);
}

// Parts of a chunk, which begin on the grid and may cross pages, decode to the same values as the
// whole.
static void parts_decode_as_the_whole() {
    const Codec codec = parsed("topk:ratio=0.05");
    constexpr uint64_t count = 140001;
    const Trip trip = travel(codec, gaussian(9, count));
    const auto open = open_chunk(trip.chunk);
    CHECK_OK(open);
    const PayloadLayout layout = payload_layout(codec, DataType::float32, count);
    for (const uint64_t begin : {0U, 64U, 65472U, 65536U, 65600U, 131072U, 139968U})
        for (const uint64_t length : {1U, 64U, 4096U, 70000U, 140001U}) {
            const uint64_t part = std::min(length, count - begin);
            std::vector<float> values(part);
            scalar_kernels().decode({&codec, &layout, DataType::float32, count, begin, part},
                                    open->payload.data(), DataType::float32, values.data(), false);
            CHECK(std::equal(values.begin(), values.end(),
                             trip.values.begin() + static_cast<ptrdiff_t>(begin)));
        }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_largest_are_kept),
        QTEST(of_equals_the_first_are_kept),
        QTEST(what_is_not_finite_is_kept_first),
        QTEST(the_types_own_order_counts),
        QTEST(dropped_values_are_added_as_zeros),
        QTEST(parts_decode_as_the_whole),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
