// Tests the codec `bound`: no value changes by more than the bound, whatever the values are, on
// every tier; what has no code stays as it is; the packed form has the size that its blocks need.
// golden_chunks_test, kernels_test and packing_test compare the tiers with the reference.
#include "tests/kernels/golden_cases.hpp"
#include "tests/kernels/kernel_operands.hpp"
#include "tests/kernels/tested_kernels.hpp"
#include "tests/kit/qtest.hpp"
#include "tests/kit/sample.hpp"

#include "device/packed_chunk.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/reference.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

using namespace qccl;
using namespace operands;

namespace {

constexpr const char *specs[] = {
    "bound",          "bound:rel=0.1", "bound:rel=1e-5",  "bound:rel=1e-9", "bound:abs=0.01",
    "bound:abs=3e-5", "bound:abs=7",   "bound:abs=1e-36", "bound:abs=1e36", "bound:pw=1e-6",
    "bound:pw=0.001", "bound:pw=0.03", "bound:pw=0.5"};
constexpr DataType types[] = {DataType::float32, DataType::float16, DataType::bfloat16,
                              DataType::float64, DataType::float8e4m3};

// The values of a chunk, as doubles, before and after.
struct Trip {
    std::vector<double> before, after;
    std::vector<std::byte> payload;
};

Trip travel(const Kernels &kernels, const Codec &codec, DataType type, const std::byte *src,
            size_t count) {
    const PayloadLayout layout = payload_layout(codec, type, count);
    const ChunkRange range = whole_chunk(codec, layout, type, count);
    const DataType wide = accumulator_of(type);
    Trip trip{{}, {}, std::vector<std::byte>(layout.bytes)};
    std::vector<std::byte> out(count * type_bytes(wide));
    kernels.encode(range, {}, type, src, trip.payload.data());
    kernels.decode(range, trip.payload.data(), wide, out.data(), false);
    for (size_t i = 0; i < count; i++) {
        trip.before.push_back(load_float(type, src, i));
        trip.after.push_back(load_float(wide, out.data(), i));
    }
    return trip;
}

// The bound as the user wrote it. A range that is not finite has none.
double bound_of(const std::string &text, const Codec &codec, const std::vector<double> &values) {
    const double stated = text == "bound" ? 0.001 : std::stod(text.substr(text.find('=') + 1));
    if (!codec.is_relative) return stated;
    if (values.empty()) return 0;
    const auto [low, high] = std::ranges::minmax(values);
    return stated * (high - low);
}

bool is_kept(double before, double after, double bound) {
    if (std::isnan(before)) return std::isnan(after);
    if (std::isinf(before)) return after == before;
    return std::abs(before - after) <= bound;
}

void check_trip(const TestedKernels &tier, const std::string &text, DataType type,
                const std::byte *src, size_t count, int pattern) {
    const Codec codec = *parse_codec(text);
    const Trip trip = travel(*tier.kernels, codec, type, src, count);
    const bool are_finite =
        std::ranges::all_of(trip.before, [](double x) { return std::isfinite(x); });
    // Without a range nothing changes.
    const double bound = codec.is_relative && !are_finite ? 0 : bound_of(text, codec, trip.before);
    const auto bound_at = [&](size_t i) {
        return codec.is_pointwise ? bound * std::abs(trip.before[i]) : bound;
    };
    for (size_t i = 0; i < count; i++)
        if (!is_kept(trip.before[i], trip.after[i], bound_at(i)))
            throw qtest::Failure{tier.name + ", " + text + " of " + name(type) + ", pattern " +
                                 std::to_string(pattern) + ": " + std::to_string(trip.before[i]) +
                                 " became " + std::to_string(trip.after[i])};
}

std::vector<std::byte> as_bytes(const std::vector<float> &values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

// The bytes of a packed payload of fp32 values.
size_t packed_bytes(const char *text, const std::vector<float> &values) {
    static const auto scratch = std::make_unique<PackScratch>();
    const Codec codec = *parse_codec(text);
    const std::vector<std::byte> src = as_bytes(values);
    const Trip trip = travel(scalar_kernels(), codec, DataType::float32, src.data(), values.size());
    std::vector<std::byte> packed(trip.payload.size());
    return pack_payload(scalar_kernels(), codec, DataType::float32, values.size(),
                        trip.payload.data(), packed.data(), *scratch);
}

} // namespace

static void no_value_changes_by_more() {
    Values values(3);
    size_t at = 0;
    for (const TestedKernels &tier : tested_kernels())
        for (const char *text : specs)
            for (const DataType type : types)
                for (const Pattern pattern : patterns)
                    for (const size_t count : {1, 33, 1000, 5003}) {
                        if (!is_chosen(at++)) continue;
                        Buffer src(count * type_bytes(type));
                        fill(values, pattern, type, src.data(), count);
                        check_trip(tier, text, type, src.data(), count, static_cast<int>(pattern));
                    }
}

// Values next to the middle between two multiples, of every size, are rounded within the bound.
static void ties_keep_the_bound() {
    for (const float bound : {1e-36F, 1e-5F, 0.001F, 0.3F, 77.7F, 1e36F}) {
        const ValueGrid<float> grid(grid_step(bound));
        CHECK(grid.step > 0 && grid.step < 2 * bound && grid.step > 1.97F * bound);
        for (int32_t q = 0; q <= largest_multiple + 5; q += q < 300 ? 1 : 37)
            for (const int side : {-1, 0, 1}) {
                const double middle = (q + 0.5) * static_cast<double>(grid.step);
                if (middle + double{grid.step} > double{std::numeric_limits<float>::max()})
                    continue;
                auto x = static_cast<float>(middle);
                if (side != 0) x = std::nextafter(x, static_cast<float>(side) * 3e38F);
                const float y = grid.rounded(x);
                CHECK(std::abs(double{x} - double{y}) < bound * (1 - 0x1p-17));
                CHECK(grid.rounded(-x) == -y);
                // Up to half of the largest multiple every value has one.
                if (q < largest_multiple / 2) CHECK(grid.multiple(y) * grid.step == y && y != x);
                CHECK(grid.rounded(y) == y);
            }
    }
}

static void what_has_no_multiple_stays() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const ValueGrid<float> grid(grid_step(0.5F));
    for (const float x : {infinity, -infinity, 1e9F, -1e9F, 40000.3F, 3e38F})
        CHECK_EQ(std::bit_cast<uint32_t>(grid.rounded(x)), std::bit_cast<uint32_t>(x));
    CHECK_EQ(std::bit_cast<uint32_t>(grid.rounded(std::bit_cast<float>(0xFF812345U))), float_nan);
    CHECK_EQ(std::bit_cast<uint32_t>(grid.rounded(-0.1F)), 0U);
    const ValueGrid<float> none(0);
    for (const float x : {1.0F, -1e-40F, infinity, 3e38F})
        CHECK_EQ(std::bit_cast<uint32_t>(none.rounded(x)), std::bit_cast<uint32_t>(x));
}

// Every number of so few bits of fraction, the middle to the next one, and the neighbours of both.
static void pointwise_bounds_are_kept() {
    for (const float bound : {1e-6F, 1e-3F, 0x1p-10F, std::nextafter(0x1p-10F, 0.0F), 0.1F, 0.5F}) {
        const int kept = kept_fraction_bits(bound);
        const PointGrid<float> grid(kept);
        CHECK(std::exp2(-kept - 1) <= double{bound} && std::exp2(-kept) > double{bound});
        size_t changed = 0;
        for (uint32_t place = 1; place < float_infinity; place += 9973)
            for (const uint32_t bits :
                 {place, place >> grid.shift << grid.shift,
                  (place >> grid.shift << grid.shift) + (1U << grid.shift) / 2,
                  (place >> grid.shift << grid.shift) + (1U << grid.shift) / 2 + 1}) {
                const auto x = std::bit_cast<float>(bits < float_infinity ? bits : place);
                const float y = grid.rounded(x);
                CHECK(std::abs(double{x} - double{y}) <= double{bound} * (1 - 0x1p-23) * double{x});
                CHECK(grid.rounded(-x) == -y && grid.rounded(y) == y);
                changed += y != x;
            }
        CHECK(changed > 300000);
    }
    const PointGrid<float> grid(3);
    for (const uint32_t bits : {0U, 0x80000000U, 1U, 0x807FFFFFU, float_infinity, 0x7F7FFFFFU})
        CHECK_EQ(std::bit_cast<uint32_t>(grid.rounded(std::bit_cast<float>(bits))), bits);
    CHECK_EQ(std::bit_cast<uint32_t>(grid.rounded(std::bit_cast<float>(0xFF812345U))), float_nan);
    CHECK_EQ(grid.rounded(0x1.ffp0F), 2.0F);
    CHECK_EQ(grid.rounded(0x1.1p0F), 1.0F); // halfway: to even
    CHECK_EQ(PointGrid<double>(19).rounded(1 + 0x1p-21), 1.0);
}

static void bounds_without_a_step_have_no_grid() {
    for (const float bound : {0.0F, -1.0F, 1e-37F, 1e37F, std::numeric_limits<float>::infinity(),
                              std::bit_cast<float>(float_nan)})
        CHECK_EQ(grid_step(bound), 0.0F);
}

static void blocks_take_the_bits_that_they_need() {
    constexpr size_t count = 65536, blocks = count / 32;
    std::vector<float> values(count, 0.0F);
    constexpr size_t fixed = 4 + 4 + blocks; // the index, the size of the bodies, widths
    CHECK_EQ(packed_bytes("bound:abs=0.5", values), fixed);
    for (size_t i = 0; i < count; i += 32) values[i + 5] = -2.9F; // -3, code 5
    CHECK_EQ(packed_bytes("bound:abs=0.5", values), fixed + 3 * 4 * blocks);
    values[7] = 1e30F; // travels as it is, with its block
    CHECK_EQ(packed_bytes("bound:abs=0.5", values), fixed + 3 * 4 * (blocks - 1) + 128);
    // Pointwise: a word for each block, and the bits of the distances, counted from 1, and signs.
    CHECK_EQ(packed_bytes("bound:pw=0.01", std::vector<float>(count, -0.0F)),
             fixed + (1 + 1) * 4 * blocks);
    std::vector<float> powers(count, 0.0F);
    for (size_t i = 0; i < count; i++) powers[i] = i % 2 == 0 ? 1e20F : -2e20F; // 64 places apart
    CHECK_EQ(packed_bytes("bound:pw=0.01", powers), fixed + (1 + 8) * 4 * blocks);
    powers[9] = 1e-41F; // subnormal
    CHECK_EQ(packed_bytes("bound:pw=0.01", powers), fixed + (1 + 8) * 4 * (blocks - 1) + 128);
    // Zeros need no grid, and a constant has none.
    CHECK_EQ(packed_bytes("bound", std::vector<float>(count, 0.0F)), fixed + 4);
    CHECK_EQ(packed_bytes("bound", std::vector<float>(count, 1.5F)), 4 * count + 4);
}

// Blocks have codes of 8 bits at most here. A normal distribution's multiples have an entropy of
// log2(4.133 sigma / step).
static void entropy_coding_is_near_the_entropy() {
    Values random(9);
    constexpr size_t count = 200000;
    std::vector<float> values(count);
    for (float &x : values) x = static_cast<float>(random.next(Pattern::gauss, 0));
    for (const double bound : {0.05, 0.1, 0.3}) {
        const std::string text = "bound:abs=" + std::to_string(bound);
        const double entropy = std::log2(4.133 / grid_step(static_cast<float>(bound)));
        const auto bits = [&](const std::string &spec) {
            return 8.0 * static_cast<double>(packed_bytes(spec.c_str(), values)) / count;
        };
        CHECK(std::abs(bits(text + ",entropy=1") - entropy) < 0.08);
        CHECK(bits(text) > entropy + 0.5 && bits(text) < entropy + 2);
    }
}

// A multiple next to a type's largest number may be one that the type does not have.
static void the_largest_numbers_stay_finite() {
    const struct {
        DataType type;
        const char *spec;
        float largest, multiple;
    } cases[] = {{DataType::float16, "bound:abs=100", 65504, 65536},
                 {DataType::bfloat16, "bound:abs=1e36", 0x1.FEp127F, 0x1.FFFFFEp127F}};
    constexpr size_t count = 37;
    for (const TestedKernels &tier : tested_kernels())
        for (const auto &[type, spec, largest, multiple] : cases) {
            const Codec codec = *parse_codec(spec);
            const PayloadLayout layout = payload_layout(codec, type, count);
            const ChunkRange range = whole_chunk(codec, layout, type, count);
            std::vector<std::byte> payload(layout.bytes), out(count * type_bytes(type));
            for (size_t i = 0; i < count; i++)
                store_bits(payload.data(), i, i % 2 == 0 ? multiple : -multiple);
            tier.kernels->decode(range, payload.data(), type, out.data(), false);
            for (size_t i = 0; i < count; i++)
                CHECK_EQ(load_float(type, out.data(), i), i % 2 == 0 ? largest : -largest);
        }
}

static void steps_that_no_encoder_writes_are_refused() {
    const Codec codec = *parse_codec("bound");
    const std::vector<std::byte> src = as_bytes({1, 2, 3, 4, 5});
    const auto payload = travel(scalar_kernels(), codec, DataType::float32, src.data(), 5).payload;
    const PayloadLayout layout = payload_layout(codec, DataType::float32, 5);
    CHECK_OK(check_payload(codec, layout, payload));
    const auto is_refused = [&](uint32_t bits) {
        std::vector<std::byte> damaged = payload;
        std::memcpy(damaged.data() + layout.scales, &bits, sizeof bits);
        return !check_payload(codec, layout, damaged);
    };
    for (const uint32_t bits : {0U, 0x3F800000U, 0x03FF0000U, 0x7BFF0000U})
        CHECK(!is_refused(bits));
    for (const uint32_t bits : {0x80000000U, 0x3F800001U, 0x03FE0000U, 0x7C000000U, 0x7F800000U,
                                float_nan, 0xBF800000U, 0x00010000U})
        CHECK(is_refused(bits));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(no_value_changes_by_more),
        QTEST(pointwise_bounds_are_kept),
        QTEST(ties_keep_the_bound),
        QTEST(what_has_no_multiple_stays),
        QTEST(bounds_without_a_step_have_no_grid),
        QTEST(blocks_take_the_bits_that_they_need),
        QTEST(entropy_coding_is_near_the_entropy),
        QTEST(the_largest_numbers_stay_finite),
        QTEST(steps_that_no_encoder_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
