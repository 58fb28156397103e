// Tests the scalar reference kernels against the promises of the codecs: examples computed by hand,
// error bounds, ranges that equal the whole, guarded buffers, and every operation on every type.
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/trip.hpp"

using namespace qccl;
using namespace trip;

namespace {

const Kernels &kernels = scalar_kernels();

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

void check_values(const std::string &text, const std::vector<float> &in,
                  const std::vector<float> &out) {
    const Trip trip = travel(parsed(text), in);
    for (size_t i = 0; i < in.size(); i++)
        if (bits_of(trip.values[i]) != bits_of(out[i]))
            throw qtest::Failure{text + ": value " + std::to_string(i) + " is " +
                                 std::to_string(trip.values[i]) + ", not " +
                                 std::to_string(out[i])};
}

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();

} // namespace

static void blocks_worked_by_hand() {
    // m = 8: s = -1, the lowest code is -8; a tie goes to even; -8 has no code and takes the
    // highest, 7.
    check_values("int4", {8, 1, 2.5F, 3.5F, -0.5F, -8, 0}, {8, 1, 2, 4, -0.0F, -7, -0.0F});
    // m = -8: s = 1.
    check_values("int4", {-8, 1, 2.5F, 7, 0}, {-8, 1, 2, 7, 0});
    // If 8 and -8 both occur, the positive one is the extreme.
    check_values("int4", {-8, 8}, {-7, 8});
    check_values("int4", {0, -0.0F, 0}, {0, 0, 0});
    check_values("int2", {3, 1.6F, 0.7F, -3}, {3, 1.5F, -0.0F, -1.5F});
    // 257 / 128 needs nine bits and rounds away from zero to 2.015625; 257 is 127.5 of such steps.
    const Codec int8 = parsed("int8");
    const Trip trip = travel(int8, {257, 1});
    CHECK_EQ(scale_at<uint16_t>(int8, trip, 0), 0xC001);
    CHECK_EQ(trip.values[0], 128 * 2.015625F);
}

static void blocks_at_the_ends_of_fp32() {
    const Codec int8 = parsed("int8"), int2 = parsed("int2");
    // Rounded away from zero, the scale would make the lowest code overflow; it rounds toward zero
    // instead.
    CHECK_EQ(scale_at<uint16_t>(int8, travel(int8, {largest}), 0), 0xFBFF);
    CHECK_EQ(scale_at<uint16_t>(int2, travel(int2, {-largest}), 0), 0x7EFF);
    CHECK(std::isfinite(travel(int8, {largest}).values[0]));
    // Subnormal scales: the quotient of the smallest number is 2^-156, and its scale is 2^-133.
    const float smallest = 0x1p-149F;
    CHECK_EQ(scale_at<uint16_t>(int8, travel(int8, {smallest}), 0), 0x8001);
    CHECK_EQ(travel(int8, {smallest}).values[0], 0.0F);
    CHECK_EQ(scale_at<uint16_t>(int8, travel(int8, {0x1p-126F}), 0), 0x8001);
    CHECK_EQ(travel(int8, {0x1p-126F}).values[0], 0x1p-126F);
    CHECK_EQ(travel(int8, {0x1p-126F, 0x1p-127F}).values[1], 0x1p-127F);
    CHECK_EQ(scale_at<uint16_t>(int2, travel(int2, {-0x1.02p-126F}), 0), 0x0041);
}

static void blocks_that_are_not_finite_are_nan() {
    for (const float special : {infinite, -infinite, NAN, -NAN}) {
        std::vector<float> values(64, 1.0F);
        values[5] = special;
        for (const char *text : {"int4", "minmax:bits=4,bucket=32", "int8:round=stochastic"}) {
            const Trip trip = travel(parsed(text), values);
            for (size_t i = 0; i < 64; i++)
                CHECK_EQ(bits_of(trip.values[i]), i < 32 ? float_nan : bits_of(trip.values[63]));
            CHECK(std::abs(trip.values[63] - 1) < 0.1F);
        }
    }
}

static void doubles_beyond_fp32_are_nan() {
    for (const char *text : {"int4", "minmax:bits=4,bucket=32"})
        for (const double beyond : {1e39, -1e39, 3.4028235678e38}) {
            const std::vector<double> values{1, beyond, 2};
            const auto chunk =
                golden::encode_chunk(kernels, parsed(text), {DataType::float64, 3, 0, 0, 0},
                                     DataType::float64, values.data());
            const auto decoded =
                golden::decode_chunk(kernels, *open_chunk(chunk), DataType::float64);
            for (size_t i = 0; i < 3; i++)
                CHECK_EQ(load_bits<uint64_t>(decoded.data(), i), double_nan);
        }
}

static void buckets_worked_by_hand() {
    check_values("minmax:bits=2", {1, 4, 2.5F, 3.5F, 2},
                 {1, 4, 3, 3, 2}); // unit 1; 1.5 and 2.5 units are ties
    check_values("minmax:bits=8", {-0.0F, 0}, {0, 0});
    check_values("minmax:bits=1", {5, 5, 5}, {5, 5, 5});
    // If the unit is below the smallest normal number, all values become the minimum.
    check_values("minmax:bits=1", {0x1p-127F, 0x1.8p-127F}, {0x1p-127F, 0x1p-127F});
    check_values("minmax:bits=1", {0, 0x1p-126F}, {0, 0x1p-126F});
    check_values("minmax:bits=1,bucket=4,skip_incomplete=1", {1, 2, 1, 2, 0.3F},
                 {1, 2, 1, 2, 0.3F});
    const Codec bits1 = parsed("minmax:bits=1"), bits2 = parsed("minmax:bits=2");
    const Trip wide = travel(bits1, {-largest, largest});
    CHECK_EQ(scale_at<float>(bits1, wide, 1), largest); // one step would be 2 FLT_MAX
    CHECK_EQ(wide.values[1], 0.0F);
    const Trip halved = travel(bits2, {-largest, largest});
    CHECK_EQ(scale_at<float>(bits2, halved, 1), largest / 3 * 2);
    CHECK_EQ(bits_of(scale_at<float>(bits1, travel(bits1, {-0.0F, -0.0F}), 0)), 0U);
}

static void casts_saturate_and_keep_infinities() {
    check_values("fp16", {65504, 65519, 65520, 1e9F, -1e9F, infinite, -infinite, -NAN, -0.0F},
                 {65504, 65504, 65504, 65504, -65504, infinite, -infinite, NAN, -0.0F});
    const float most = widen<Bfloat>(Bfloat::largest);
    check_values("bf16", {largest, -largest, infinite, 1.00390625F}, {most, -most, infinite, 1});
    // A NaN becomes canonical also if the input already has the format of the payload.
    const std::vector<uint16_t> strange{0xFE01, 0x7C01, 0x3C00};
    const auto chunk =
        golden::encode_chunk(kernels, parsed("fp16"), {DataType::float16, 3, 0, 0, 0},
                             DataType::float16, strange.data());
    CHECK_EQ(load_bits<uint16_t>(chunk.data() + header_bytes, 0), 0x7E00);
    CHECK_EQ(load_bits<uint16_t>(chunk.data() + header_bytes, 1), 0x7E00);
    CHECK_EQ(load_bits<uint16_t>(chunk.data() + header_bytes, 2), 0x3C00);
}

// The error of a value is at most half a step, or a whole one if the block's far end is cut, and
// half a step more if noise is subtracted from the cut.
static void errors_are_bounded() {
    for (const std::string &text : golden::specs()) {
        const Codec codec = parsed(text);
        if (codec.id != CodecId::integer && codec.id != CodecId::minmax) continue;
        if (codec.rotation != 0) continue; // spreads an error over other values
        const bool is_stochastic = codec.rounding == Rounding::stochastic,
                   is_integer = codec.id == CodecId::integer;
        for (const golden::Kind kind :
             {golden::Kind::spread, golden::Kind::tiny, golden::Kind::ties, golden::Kind::zeros}) {
            std::vector<float> values(1001);
            std::memcpy(values.data(), golden::make_input(DataType::float32, kind, 1001).data(),
                        4004);
            const Trip trip = travel(codec, values);
            const uint64_t bucket =
                codec.bucket == Codec::whole_chunk ? values.size() : codec.bucket;
            const uint64_t coded = payload_layout(codec, DataType::float32, values.size()).coded;
            for (uint64_t i = 0; i < values.size(); i++) {
                const double error = std::abs(double{values[i]} - double{trip.values[i]});
                if (i >= coded) {
                    CHECK_EQ(error, 0.0);
                    continue;
                }
                const double step =
                    is_integer
                        ? std::abs(widen<Bfloat>(scale_at<uint16_t>(codec, trip, i / bucket)))
                        : std::max(scale_at<float>(codec, trip, i / bucket * 2 + 1), 0x1p-118F);
                const double steps = is_integer && codec.dithers() ? 1.5
                                     : is_integer || is_stochastic ? 1
                                                                   : 0.5;
                CHECK(error <= steps * step * (1 + 1e-5) + std::abs(double{values[i]}) * 0x1p-22);
            }
        }
    }
}

// Encoding the decoded values gives the same bytes, for casts and for blocks whose extreme keeps
// the lowest code.
static void decoded_values_encode_to_themselves() {
    for (const char *text : {"fp16", "bf16", "int6", "int5", "int4", "int3:block=7", "int2"}) {
        std::vector<float> values = gaussian(3, 1001);
        const Trip once = travel(parsed(text), values), twice = travel(parsed(text), once.values);
        CHECK(once.chunk == twice.chunk);
    }
}

namespace {

// Cuts [0, whole) at multiples of the grain into ranges of 1, 2, 3, ... grains.
std::vector<ChunkRange> cut(const Codec &codec, const PayloadLayout &layout, DataType type,
                            uint64_t whole) {
    std::vector<ChunkRange> ranges;
    uint64_t grains = 1;
    for (uint64_t begin = 0; begin < whole; begin += grains++ * grain(codec))
        ranges.push_back({&codec, &layout, type, whole, begin,
                          std::min(grains * grain(codec), whole - begin),
                          golden::chunk_info(type, whole).noise()});
    return ranges;
}

// An unaligned buffer with guards on both sides.
class Guarded {
public:
    explicit Guarded(size_t bytes) : storage_(bytes + 2 * guard, std::byte{0xC3}) {}
    std::byte *data() { return storage_.data() + guard; }
    size_t size() const { return storage_.size() - 2 * guard; }
    std::span<const std::byte> bytes() { return {data(), size()}; }
    void check() const {
        for (size_t i = 0; i < guard; i++)
            CHECK(storage_[i] == std::byte{0xC3} &&
                  storage_[storage_.size() - 1 - i] == std::byte{0xC3});
    }

private:
    static constexpr size_t guard = 67; // odd, so that nothing is aligned
    std::vector<std::byte> storage_;
};

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void check_ranges(const Codec &codec, DataType type, uint64_t count) {
    const PayloadLayout layout = payload_layout(codec, type, count);
    const ChunkInfo info = golden::chunk_info(type, count);
    const auto input = golden::make_input(type, golden::Kind::few_specials, count);
    const auto chunk = golden::encode_chunk(kernels, codec, info, type, input.data());
    const auto payload = std::span(chunk).subspan(header_bytes);
    const auto open = open_chunk(chunk);
    CHECK_OK(open);
    const DataType sum_type = accumulator_of(type);
    const RedOp op = golden::first_op(type);
    const auto decoded = golden::decode_chunk(kernels, *open, sum_type);

    Guarded source(input.size()), parts(layout.bytes), values(decoded.size()), sums(decoded.size());
    std::copy(input.begin(), input.end(), source.data());
    std::copy(decoded.begin(), decoded.end(), sums.data());
    for (const ChunkRange &range : cut(codec, layout, type, count)) {
        const size_t at = range.begin * type_bytes(sum_type);
        if (!codec.has_whole_buckets())
            kernels.encode(range, {info.noise_key, info.call, info.first_index}, type,
                           source.data() + range.begin * type_bytes(type), parts.data());
        kernels.decode(range, payload.data(), sum_type, values.data() + at, false);
        kernels.decode_add(range, op, payload.data(), sums.data() + at);
    }
    if (!codec.has_whole_buckets()) CHECK(equal(parts.bytes(), payload));
    CHECK(equal(values.bytes(), decoded));
    auto twice = decoded;
    kernels.reduce(op, sum_type, twice.data(), sum_type, decoded.data(), count);
    CHECK(equal(sums.bytes(), twice));
    for (Guarded *buffer : {&source, &parts, &values, &sums}) buffer->check();
}

} // namespace

static void ranges_equal_the_whole() {
    for (const std::string &text : golden::specs())
        for (const DataType type : golden::float_types)
            for (const uint64_t count : {1U, 63U, 65U, 1001U, 4095U})
                check_ranges(parsed(text), type, count);
    for (const TypeInfo &row : type_table)
        if (!row.is_float) check_ranges(parsed("none"), row.type, 333);
}

// decode_add equals decode and reduce for every operation, on casts and plain values.
static void every_operation_takes_decoded_values() {
    for (const char *text : {"none", "fp16", "bf16"})
        for (const TypeInfo &row : type_table) {
            if (!row.is_float && std::string(text) != "none") continue;
            const auto input = golden::make_input(row.type, golden::Kind::any_bits, 999),
                       other = golden::make_input(row.accumulator, golden::Kind::any_bits, 999);
            const auto chunk = golden::encode_chunk(
                kernels, parsed(text), golden::chunk_info(row.type, 999), row.type, input.data());
            const auto open = open_chunk(chunk);
            CHECK_OK(open);
            const PayloadLayout layout = payload_layout(open->codec, row.type, 999);
            const auto decoded = golden::decode_chunk(kernels, *open, row.accumulator);
            for (const RedOp op : all_ops) {
                if (!takes(row.type, op)) continue;
                auto fused = other, apart = other;
                kernels.decode_add({&open->codec, &layout, row.type, 999, 0, 999}, op,
                                   open->payload.data(), fused.data());
                kernels.reduce(op, row.accumulator, apart.data(), row.accumulator, decoded.data(),
                               999);
                CHECK(fused == apart);
            }
        }
}

template <class T> static T reduced(RedOp op, DataType type, T a, T b) {
    kernels.reduce(op, type, &a, type, &b, 1);
    return a;
}

static void integers_wrap_and_truncate() {
    CHECK_EQ(reduced<int8_t>(RedOp::sum, DataType::int8, 127, 1), -128);
    CHECK_EQ(reduced<int8_t>(RedOp::prod, DataType::int8, -128, -1), -128);
    CHECK_EQ(reduced<uint8_t>(RedOp::sum, DataType::uint8, 255, 2), 1);
    CHECK_EQ(reduced<uint8_t>(RedOp::max, DataType::uint8, 255, 2), 255);
    CHECK_EQ(reduced<int8_t>(RedOp::max, DataType::int8, -1, 2), 2);
    CHECK_EQ(reduced<int32_t>(RedOp::avg, DataType::int32, INT32_MAX, 1), INT32_MIN);
    CHECK_EQ(reduced<uint32_t>(RedOp::min, DataType::uint32, 5, UINT32_MAX), 5U);
    CHECK_EQ(reduced<int64_t>(RedOp::prod, DataType::int64, INT64_MAX, 2), -2);
    CHECK_EQ(reduced<uint64_t>(RedOp::sum, DataType::uint64, UINT64_MAX, 5), 4U);
    int8_t narrow_values[] = {-7, 7, -128};
    kernels.divide(DataType::int8, narrow_values, 3, 2);
    CHECK_EQ(narrow_values[0], -3);
    CHECK_EQ(narrow_values[1], 3);
    CHECK_EQ(narrow_values[2], -64);
    kernels.divide(DataType::int8, narrow_values, 3, 1000); // more ranks than the type holds
    CHECK_EQ(narrow_values[2], 0);
    uint64_t wide = UINT64_MAX;
    kernels.divide(DataType::uint64, &wide, 1, 2);
    CHECK_EQ(wide, UINT64_MAX / 2);
}

static void results_are_canonical() {
    const float nan = std::bit_cast<float>(0xFFFFFFFFU);
    for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min}) {
        CHECK_EQ(bits_of(reduced(op, DataType::float32, nan, 1.0F)), float_nan);
        CHECK_EQ(bits_of(reduced(op, DataType::float32, 1.0F, nan)), float_nan);
        CHECK_EQ(std::bit_cast<uint64_t>(reduced(op, DataType::float64, 1.0, double{nan})),
                 double_nan);
    }
    CHECK_EQ(bits_of(reduced(RedOp::sum, DataType::float32, infinite, -infinite)), float_nan);
    CHECK_EQ(bits_of(reduced(RedOp::prod, DataType::float32, infinite, 0.0F)), float_nan);
    CHECK_EQ(bits_of(reduced(RedOp::min, DataType::float32, 0.0F, -0.0F)), 0x80000000U);
    CHECK_EQ(bits_of(reduced(RedOp::max, DataType::float32, -0.0F, 0.0F)), 0U);
    float third[] = {1, nan, -infinite};
    kernels.divide(DataType::float32, third, 3, 3);
    CHECK_EQ(third[0], 1.0F / 3);
    CHECK_EQ(bits_of(third[1]), float_nan);
    CHECK_EQ(third[2], -infinite);
}

// Each operation is rounded by itself, and what is not finite becomes 0.
static void kept_errors_are_finite_sums() {
    const float nan = std::bit_cast<float>(0xFFFFFFFFU), largest = 0x1.FFFFFEp127F;
    float residual[] = {0.5F, 1, 2, 3, largest, 0x1p24F};
    const float given[] = {3, nan, infinite, 1, largest, 1};
    const float decoded[] = {1, 1, 1, nan, 0, 0.5F};
    kernels.keep_error(DataType::float32, residual, given, decoded, 6, 4, nullptr);
    const float wanted[] = {8.5F, 0, 0, 0, 0, 0x1p24F + 2};
    for (size_t i = 0; i < 6; i++) CHECK_EQ(residual[i], wanted[i]);
    // The difference is rounded to 1.
    float small = 0;
    const float one = 1, tiny = -0x1p-30F;
    kernels.keep_error(DataType::float32, &small, &one, &tiny, 1, 1, nullptr);
    CHECK_EQ(small, 1.0F);
    double wide = 1;
    const double value = 1, less = -0x1p-40;
    kernels.keep_error(DataType::float64, &wide, &value, &less, 1, 3, nullptr);
    CHECK_EQ(wide, 4 + 3 * 0x1p-40);
}

// A velocity is rounded after each operation; it ends where a value was sent, and never stays
// infinite.
static void velocities_are_masked_and_finite() {
    const float largest = 0x1.FFFFFEp127F;
    float values[] = {1, 1, infinite, largest, -0.0F}, next[5];
    const float before[] = {2, 0x1p-30F, 1, largest, -0.0F};
    kernels.add_velocity(DataType::float32, values, next, before, 5, 900);
    const float wanted[] = {1 + 2 * (900.0F / 1000), 1, infinite, infinite, 0},
                kept[] = {wanted[0], 1, 0, 0, 0};
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ(values[i], wanted[i]);
        CHECK_EQ(next[i], kept[i]);
    }
    float residual[] = {0, 0, 0}, velocity[] = {1, 2, 3};
    const float given[] = {5, 5, 5}, decoded[] = {5, -0.0F, std::bit_cast<float>(float_nan)};
    kernels.keep_error(DataType::float32, residual, given, decoded, 3, 1, velocity);
    CHECK(velocity[0] == 0 && velocity[1] == 2 && velocity[2] == 0);
    CHECK(residual[0] == 0 && residual[1] == 5 && residual[2] == 0);
}

// Copies keep the bits. Conversions round once, and overflow as their type defines.
static void copies_convert_once() {
    const std::vector<uint32_t> strange{0xFFFFFFFF, 0x7F800001, 0x00000001};
    std::vector<uint32_t> kept(3);
    kernels.copy(DataType::float32, kept.data(), DataType::float32, strange.data(), 3, false);
    CHECK(kept == strange);
    const std::vector<double> wide{1 + 0x1p-11 + 0x1p-30,        65520,           -1e300, 464.5,
                                   std::bit_cast<double>(~0ULL), double{infinite}};
    const auto check = [&]<class T>(DataType out, std::vector<T> expected) {
        std::vector<T> got(wide.size());
        kernels.copy(out, got.data(), DataType::float64, wide.data(), wide.size(), true);
        CHECK(got == expected);
    };
    check(DataType::float16, std::vector<uint16_t>{0x3C01, 0x7C00, 0xFC00, 0x5F42, 0x7E00, 0x7C00});
    check(DataType::bfloat16,
          std::vector<uint16_t>{0x3F80, 0x4780, 0xFF80, 0x43E8, 0x7FC0, 0x7F80});
    check(DataType::float8e4m3, std::vector<uint8_t>{0x38, 0x7E, 0xFE, 0x7E, 0x7F, 0x7F});
    check(DataType::float8e5m2, std::vector<uint8_t>{0x3C, 0x7B, 0xFB, 0x5F, 0x7E, 0x7C});
    kernels.copy(DataType::float16, nullptr, DataType::float32, nullptr, 0, false);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(blocks_worked_by_hand),
        QTEST(blocks_at_the_ends_of_fp32),
        QTEST(blocks_that_are_not_finite_are_nan),
        QTEST(doubles_beyond_fp32_are_nan),
        QTEST(buckets_worked_by_hand),
        QTEST(casts_saturate_and_keep_infinities),
        QTEST(errors_are_bounded),
        QTEST(decoded_values_encode_to_themselves),
        QTEST(ranges_equal_the_whole),
        QTEST(every_operation_takes_decoded_values),
        QTEST(integers_wrap_and_truncate),
        QTEST(results_are_canonical),
        QTEST(kept_errors_are_finite_sums),
        QTEST(velocities_are_masked_and_finite),
        QTEST(copies_convert_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
