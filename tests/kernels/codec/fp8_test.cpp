// Tests fp8 with a block in the scalar reference: blocks computed by hand, both ends of the range
// of scales, values that are not finite, and what the scale gains over the cast.
#include "tests/kit/trip.hpp"

#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();
constexpr const char *names[] = {"fp8e4m3", "fp8e5m2"};

void check_block(const std::string &text, int scale, const std::vector<float> &in,
                 const std::vector<float> &out) {
    const Trip trip = travel(parsed(text), in);
    CHECK_EQ(int{scale_at<uint16_t>(parsed(text), trip, 0)}, scale);
    for (size_t i = 0; i < in.size(); i++)
        if (std::bit_cast<uint32_t>(trip.values[i]) != std::bit_cast<uint32_t>(out[i]))
            throw qtest::Failure{text + ": value " + std::to_string(i) + " is " +
                                 std::to_string(trip.values[i]) + ", not " +
                                 std::to_string(out[i])};
}

double nmse_of(const std::string &text, const std::vector<float> &values) {
    const Trip trip = travel(parsed(text), values);
    double error = 0, power = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const double difference = double{trip.values[i]} - double{values[i]};
        error += difference * difference;
        power += double{values[i]} * double{values[i]};
    }
    return error / power;
}

} // namespace

static void blocks_worked_by_hand() {
    // With scale 1. A value halfway between two numbers becomes the even one.
    check_block("fp8e4m3:block=32", 0x3F80, {447, 1.0625F, 1.1875F, -17, -0x1p-10F, 0},
                {448, 1, 1.25F, -16, -0.0F, 0});
    // 449 does not fit under 1: the scale is 1 + 1/128, and 444.5 of it become 448.
    check_block("fp8e4m3:block=32", 0x3F81, {449}, {448 * 0x1.02p0F});
    check_block("fp8e5m2:block=32", 0x3F80, {-57343, 1.125F, 1.375F}, {-57344, 1, 1.5F});
    for (const char *name : names)
        check_block(name + std::string(":block=64"), 0, {0, -0.0F, 0}, {0, 0, 0});
}

// The second block has a scale of its own, also if it is incomplete.
static void blocks_have_their_own_scales() {
    for (const size_t block : {32U, 128U, 512U}) {
        const Codec codec = parsed("fp8e4m3:block=" + std::to_string(block));
        std::vector<float> values(block, 1.0F);
        values.insert(values.end(), 3, 0x1p-60F);
        const Trip trip = travel(codec, values);
        const double first = widen<Bfloat>(scale_at<uint16_t>(codec, trip, 0)),
                     second = widen<Bfloat>(scale_at<uint16_t>(codec, trip, 1));
        CHECK_EQ(first, second * 0x1p60);
        CHECK(first * 448 >= 1 && first * 448 < 1.01);
        for (size_t i = 0; i < values.size(); i++)
            CHECK(std::abs(trip.values[i] / values[i] - 1) < 0.01F);
    }
}

// No result is infinite, and values below the least scale lose their last places alone.
static void scales_end_where_fp32_does() {
    check_block("fp8e4m3:block=32", 0x7B12, {largest, -largest}, {0x1.FFp127F, -0x1.FFp127F});
    check_block("fp8e5m2:block=32", 0x7792, {largest, 0x1p127F}, {0x1.FFp127F, 0x1.FFp126F});
    check_block("fp8e4m3:block=32", 0x0080, {0x1p-126F, 0x1p-135F, 0x1p-136F, -0x1p-149F},
                {0x1p-126F, 0x1p-135F, 0, -0.0F});
    check_block("fp8e5m2:block=32", 0x0080, {0x1p-126F, 0x1p-142F, 0x1p-149F},
                {0x1p-126F, 0x1p-142F, 0});
}

static void blocks_that_are_not_finite_are_nan() {
    for (const char *name : names)
        for (const char *keys : {":block=32", ":block=32,round=stochastic"})
            for (const float special : {infinite, -infinite, NAN}) {
                std::vector<float> values(64, 1.0F);
                values[5] = special;
                const Trip trip = travel(parsed(std::string(name) + keys), values);
                for (size_t i = 0; i < 64; i++) CHECK_EQ(std::isnan(trip.values[i]), i < 32);
                CHECK(std::abs(trip.values[63] - 1) < 0.01F);
                CHECK_EQ(trip.chunk[header_bytes], std::byte{0}); // codes
            }
}

// A scale keeps precision where the cast has lost it, and on Gaussian values gains a fifth.
static void a_scale_keeps_precision() {
    std::vector<float> values = gaussian(7, 1 << 20);
    CHECK(std::abs(nmse_of("fp8e4m3:block=32", values) / 5.8e-4 - 1) < 0.05);
    CHECK(std::abs(nmse_of("fp8e4m3", values) / 7.05e-4 - 1) < 0.05);
    for (const float size : {0x1p-40F, 0x1p30F}) {
        std::vector<float> others = values;
        for (float &value : others) value *= size;
        CHECK(std::abs(nmse_of("fp8e4m3:block=32", others) / 5.8e-4 - 1) < 0.05);
        CHECK(std::abs(nmse_of("fp8e5m2:block=32", others) / 2.3e-3 - 1) < 0.05);
        CHECK(nmse_of("fp8e4m3", others) > 0.9);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(blocks_worked_by_hand),      QTEST(blocks_have_their_own_scales),
        QTEST(scales_end_where_fp32_does), QTEST(blocks_that_are_not_finite_are_nan),
        QTEST(a_scale_keeps_precision),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
