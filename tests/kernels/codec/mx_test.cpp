// Tests the MX codecs of the scalar reference: blocks computed by hand, both ends of the range of
// scales, values that are not finite, and stochastic rounding without a bias although the grid is
// uneven.
#include "tests/kit/trip.hpp"

#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <tuple>

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();
constexpr const char *names[] = {"mxfp8e4m3", "mxfp6e2m3", "mxfp4"};

void check_block(const std::string &text, int scale, const std::vector<float> &in,
                 const std::vector<float> &out) {
    const Trip trip = travel(parsed(text), in);
    CHECK_EQ(int{scale_at<uint8_t>(parsed(text), trip, 0)}, scale);
    for (size_t i = 0; i < in.size(); i++)
        if (std::bit_cast<uint32_t>(trip.values[i]) != std::bit_cast<uint32_t>(out[i]))
            throw qtest::Failure{text + ": value " + std::to_string(i) + " is " +
                                 std::to_string(trip.values[i]) + ", not " +
                                 std::to_string(out[i])};
}

} // namespace

static void blocks_worked_by_hand() {
    // With scale 1. A value halfway between two numbers becomes the even one: 2.5 to 2, 3.5 to 4, 5
    // to 4, 0.25 to 0.
    check_block("mxfp4", 127, {6, 2.5F, 3.5F, 5, 0.25F, 0.75F, -1.2F, -0.1F},
                {6, 2, 4, 4, 0, 1, -1, -0.0F});
    // 6.1 does not fit under a scale of 1. Under the same scale in OCP's rule it saturates.
    check_block("mxfp4", 128, {6.1F, 2.5F}, {6, 2});
    check_block("mxfp4:scale=ocp", 127, {6.1F, 2.5F, -7.9F}, {6, 2, -6});
    check_block("mxfp4:scale=ocp", 128, {8, 2.5F}, {8, 2});
    check_block("mxfp6e2m3", 127, {7.5F, 7.2F, 1.0625F, 1.1875F, -0.1F},
                {7.5F, 7, 1, 1.25F, -0.125F});
    check_block("mxfp6e2m3", 128, {7.51F}, {7.5F});
    check_block("mxfp8e4m3", 127, {448, 447, 1.0625F, -0x1p-10F, 0x1.8p-10F},
                {448, 448, 1, -0.0F, 0x1p-9F});
    check_block("mxfp8e4m3", 128, {449, 1}, {448, 1});
    for (const char *name : names) check_block(name, 0, {0, -0.0F, 0}, {0, 0, 0});
}

// At both ends of the fp32 range, every number is kept under its scale, and no result is infinite.
static void scales_end_where_fp32_does() {
    check_block("mxfp4", 252, {largest, -largest, 0x1p127F}, {0x1.8p127F, -0x1.8p127F, 0x1p127F});
    check_block("mxfp6e2m3", 252, {largest}, {0x1.Ep127F});
    check_block("mxfp8e4m3", 246, {largest}, {0x1.Cp127F});
    check_block("mxfp8e4m3", 246, {0x1.Cp127F, 0x1.C00002p127F}, {0x1.Cp127F, 0x1.Cp127F});
    // The scale is 2^-127, half the smallest normal number.
    check_block("mxfp4", 0, {0x1.8p-125F, 0x1p-127F, 0x1p-128F, 0x1p-130F, -0x1p-149F},
                {0x1.8p-125F, 0x1p-127F, 0x1p-128F, 0, -0.0F});
    check_block("mxfp8e4m3", 0, {0x1p-136F, 0x1p-138F}, {0x1p-136F, 0});
    check_block("mxfp6e2m3", 0, {0x1p-130F, 0x1p-149F}, {0x1p-130F, 0});
    check_block("mxfp4", 1, {0x1.9p-125F}, {0x1.8p-125F});
}

static void blocks_that_are_not_finite_are_nan() {
    for (const char *name : names)
        for (const char *keys : {"", ":scale=ocp", ":round=stochastic"})
            for (const float special : {infinite, -infinite, NAN}) {
                std::vector<float> values(64, 1.0F);
                values[5] = special;
                const Trip trip = travel(parsed(std::string(name) + keys), values);
                for (size_t i = 0; i < 64; i++) CHECK_EQ(std::isnan(trip.values[i]), i < 32);
                CHECK_EQ(trip.values[63], 1.0F);
                CHECK_EQ(trip.chunk[header_bytes], std::byte{0}); // codes
            }
    const std::vector<double> beyond{1, 1e39};
    const auto chunk =
        golden::encode_chunk(scalar_kernels(), parsed("mxfp4"), {DataType::float64, 2, 0, 0, 0},
                             DataType::float64, beyond.data());
    const auto decoded =
        golden::decode_chunk(scalar_kernels(), *open_chunk(chunk), DataType::float64);
    CHECK_EQ(load_bits<uint64_t>(decoded.data(), 0), double_nan);
}

// A number of the element format times a power of two is kept with every rounding and every scale.
static void numbers_of_the_grid_are_kept() {
    const auto check = [](const std::string &name, auto format) {
        using F = decltype(format);
        for (const int exponent : {-126, -20, 0, 100})
            for (const char *keys : {"", ":scale=ocp", ":round=stochastic"}) {
                std::vector<float> values;
                for (uint32_t code = 0; code <= F::largest; code++) {
                    if (code % 30 == 0) // keeps the scale of the block
                        values.push_back(std::ldexp(widen<F>(F::largest), exponent));
                    values.push_back(
                        std::ldexp(widen<F>(code | (code % 2 != 0 ? F::sign : 0)), exponent));
                }
                while (values.size() % 32 != 1) values.push_back(values[0]);
                CHECK(travel(parsed(name + keys), values).values == values);
            }
    };
    check("mxfp8e4m3", E4m3{});
    check("mxfp6e2m3", E2m3{});
    check("mxfp4", E2m1{});
}

// Over many draws, a value becomes each of its two neighbours in proportion to how near it is.
static void noise_takes_both_neighbours() {
    constexpr size_t count = 32 * 4096;
    for (const auto &[name, value, below, above] :
         {std::tuple{"mxfp4", 2.75F, 2.0F, 3.0F}, std::tuple{"mxfp4", -5.5F, -4.0F, -6.0F},
          std::tuple{"mxfp4", 0.1F, 0.0F, 0.5F}, std::tuple{"mxfp6e2m3", 3.9F, 3.75F, 4.0F},
          std::tuple{"mxfp8e4m3", 0.0009765625F, 0.0F, 0x1p-9F},
          std::tuple{"mxfp8e4m3", 430.0F, 416.0F, 448.0F}}) {
        std::vector<float> values(count, value);
        const float top = std::string(name) == "mxfp8e4m3" ? 448 : 6;
        for (size_t i = 0; i < count; i += 32) values[i] = top;
        const Trip trip = travel(parsed(std::string(name) + ":round=stochastic"), values);
        double above_count = 0, drawn = 0;
        for (size_t i = 0; i < count; i++) {
            if (i % 32 == 0) continue;
            CHECK(trip.values[i] == below || trip.values[i] == above);
            above_count += trip.values[i] == above;
            drawn++;
        }
        const double share = double{(value - below)} / double{(above - below)};
        CHECK(std::abs(above_count / drawn - share) <
              6 * std::sqrt(share * (1 - share) / drawn) + 1e-4);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(blocks_worked_by_hand),
        QTEST(scales_end_where_fp32_does),
        QTEST(blocks_that_are_not_finite_are_nan),
        QTEST(numbers_of_the_grid_are_kept),
        QTEST(noise_takes_both_neighbours),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
