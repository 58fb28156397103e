// Tests nvfp4 of the scalar reference: buckets computed by hand, both ends of the range of bases,
// and blocks that are not finite, which do not affect other blocks.
#include "tests/kit/trip.hpp"

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();

float base_at(const Codec &codec, const Trip &trip, uint64_t i) {
    const PayloadLayout layout = payload_layout(codec, DataType::float32, trip.values.size());
    return load_bits<float>(trip.chunk.data() + header_bytes + layout.bases, i);
}

// Appends a block of 16 values: `head`, and zeros after it.
void add_block(std::vector<float> &values, const std::vector<float> &head) {
    const size_t end = values.size() + 16;
    values.insert(values.end(), head.begin(), head.end());
    values.resize(end);
}

} // namespace

static void buckets_worked_by_hand() {
    std::vector<float> values;
    add_block(values, {2688, 1100, -300}); // scale 448, base 1
    add_block(values, {6, -3, 1.5F, 0.5F, 0.1F});
    add_block(values, {6.3F, 1});
    add_block(values, {});
    add_block(values, {0.009F}); // less than half of 6 times the smallest scale
    for (const char *text : {"nvfp4", "nvfp4:scale=ceil", "nvfp4:bucket=all"}) {
        const Codec codec = parsed(text);
        const Trip trip = travel(codec, values);
        const auto scale = [&](uint64_t i) { return int{scale_at<uint8_t>(codec, trip, i)}; };
        const bool rounds_up = codec.scaling == Scaling::ceil;
        CHECK_EQ(base_at(codec, trip, 0), 1.0F);
        CHECK_EQ(scale(0), 0x7E);
        CHECK_EQ(scale(1), 0x38);
        CHECK_EQ(scale(2), rounds_up ? 0x39 : 0x38); // 1.05 to 1.125, or to 1
        CHECK_EQ(scale(3), 0);
        CHECK_EQ(scale(4), 1);
        const float third = rounds_up ? 6.75F : 6.0F, one = rounds_up ? 1.125F : 1.0F;
        std::vector<float> wanted;
        add_block(wanted, {2688, 896, -224});
        add_block(wanted, {6, -3, 1.5F, 0.5F, 0});
        add_block(wanted, {third, one});
        add_block(wanted, {});
        add_block(wanted, {4 * 0x1p-9F}); // 4.6 of 2^-9
        CHECK(trip.values == wanted);
    }
    const Trip zeros = travel(parsed("nvfp4"), {0, -0.0F});
    CHECK_EQ(base_at(parsed("nvfp4"), zeros, 0), 0.0F);
    for (const float y : zeros.values) CHECK_EQ(std::bit_cast<uint32_t>(y), 0U);
}

// Each bucket has its own base, and the last bucket may be short.
static void buckets_are_apart() {
    const Codec codec = parsed("nvfp4:bucket=32");
    std::vector<float> values(70, 6);
    for (size_t i = 32; i < 64; i++) values[i] = 0x1p40F;
    const Trip trip = travel(codec, values);
    const float six = 6.0F / 2688;
    CHECK_EQ(base_at(codec, trip, 0), six);
    CHECK_EQ(base_at(codec, trip, 1), 0x1p40F / 2688);
    CHECK_EQ(base_at(codec, trip, 2), six);
    for (size_t i = 0; i < values.size(); i++)
        CHECK(std::abs(trip.values[i] / values[i] - 1) < 1e-6F);
}

static void bases_end_where_products_would() {
    const Codec codec = parsed("nvfp4");
    const Trip huge = travel(codec, {largest, -largest, 1});
    CHECK_EQ(base_at(codec, huge, 0), 0x1.8p116F);
    CHECK_EQ(huge.values[0], 0x1.F8p127F);
    CHECK_EQ(huge.values[1], -0x1.F8p127F);
    const Trip tiny = travel(codec, {0x1p-120F, 0x1p-122F, 0x1p-149F});
    CHECK_EQ(base_at(codec, tiny, 0), 0x1p-117F);
    for (size_t i = 0; i < 2; i++)
        CHECK(std::abs(tiny.values[i] / std::ldexp(1.0F, -120 - 2 * static_cast<int>(i)) - 1) <
              0.25F);
    CHECK_EQ(tiny.values[2], 0.0F);
    CHECK_EQ(travel(codec, {0x1p-149F}).values[0], 0.0F);
}

static void blocks_that_are_not_finite_are_alone() {
    for (const char *text : {"nvfp4", "nvfp4:bucket=all,scale=ceil", "nvfp4:round=stochastic"})
        for (const float special : {infinite, -infinite, NAN}) {
            std::vector<float> values(64, 3.0F);
            const Trip before = travel(parsed(text), values);
            values[20] = special;
            const Trip trip = travel(parsed(text), values);
            CHECK_EQ(int{scale_at<uint8_t>(parsed(text), trip, 1)}, 0x7F);
            for (size_t i = 0; i < 64; i++) {
                const bool is_hit = i >= 16 && i < 32;
                CHECK_EQ(std::isnan(trip.values[i]), is_hit);
                if (!is_hit) CHECK_EQ(trip.values[i], before.values[i]);
            }
        }
    const std::vector<float> all(40, NAN);
    const Trip trip = travel(parsed("nvfp4"), all);
    CHECK_EQ(base_at(parsed("nvfp4"), trip, 0), 0.0F);
    for (const float y : trip.values) CHECK(std::isnan(y));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(buckets_worked_by_hand),
        QTEST(buckets_are_apart),
        QTEST(bases_end_where_products_would),
        QTEST(blocks_that_are_not_finite_are_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
