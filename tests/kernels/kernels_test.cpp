// Tests kernels: every CPU tier that runs here, and the GPU's kernels wherever they run, produce
// the scalar reference's bytes and write nothing else. Codec, type, operation, count, alignment,
// part of the chunk and values vary.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"
#include "tested_kernels.hpp"
#include "tests/kit/sample.hpp"

#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <vector>

using namespace qccl;
using namespace operands;

namespace {

constexpr DataType float_types[] = {DataType::float32, DataType::float16,    DataType::bfloat16,
                                    DataType::float64, DataType::float8e4m3, DataType::float8e5m2};

void add_rotated(std::vector<Codec> &all) {
    Codec sparse = usual_codec("tbq");
    for (const float threshold : {0.75F, 0x1p-126F, 3e38F}) {
        sparse.threshold = threshold;
        all.push_back(sparse);
    }
    uint32_t rotation = most_rotation;
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::dither})
        for (const uint32_t bucket : {32U, 64U, 512U})
            for (const uint8_t bits : std::initializer_list<uint8_t>{4, 3, 8}) {
                all.push_back({.id = CodecId::integer,
                               .bits = bits,
                               .rounding = rounding,
                               .bucket = bucket,
                               .rotation = rotation});
                rotation = rotation == least_rotation ? most_rotation : rotation / 2;
                all.push_back({.id = CodecId::minmax,
                               .bits = bits,
                               .rounding = rounding,
                               .skips_incomplete = bits == 3,
                               .bucket = bucket,
                               .rotation = rotation});
            }
}

void add_newer(std::vector<Codec> &all) {
    for (const char *text :
         {"bound:pw=0.5", "bound:pw=0.01", "bound:pw=1e-6", "fp8e4m3:block=32",
          "fp8e4m3:block=64,round=stochastic", "fp8e4m3:block=512", "fp8e5m2:block=32",
          "fp8e5m2:block=512,round=stochastic", "fp8e5m2:block=128"})
        all.push_back(*parse_codec(text));
}

std::vector<Codec> codecs() {
    std::vector<Codec> all = {{.id = CodecId::none},
                              {.id = CodecId::fp16},
                              {.id = CodecId::bf16},
                              {.id = CodecId::fp8e4m3},
                              {.id = CodecId::fp8e5m2}};
    for (const char *text :
         {"onebit", "onebit:bucket=64", "onebit:bucket=7", "terngrad", "terngrad:bucket=7", "topk",
          "topk:ratio=0.3", "dummy", "dummy:ratio=0.01", "dgc:ratio=0.2", "lossless", "bound",
          "bound:rel=0.1", "bound:abs=0.01", "bound:abs=30", "fp16:round=stochastic",
          "bf16:round=stochastic", "fp8e4m3:round=stochastic", "fp8e5m2:round=stochastic"})
        all.push_back(*parse_codec(text));
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        for (const char *name :
             {"mxfp8e4m3", "mxfp6e2m3", "mxfp4", "nvfp4", "nvfp4:bucket=all", "nvfp4:bucket=96"})
            for (const Scaling scaling : {Scaling::ceil, Scaling::ocp}) {
                all.push_back(*parse_codec(name));
                all.back().rounding = rounding;
                all.back().scaling = scaling;
            }
        for (const uint8_t bits : std::initializer_list<uint8_t>{12, 10, 8, 6, 5, 4, 3, 2})
            for (const uint32_t block : {32U, 64U, 96U, 1024U, 20U, 8U, 16U})
                all.push_back(
                    {.id = CodecId::integer, .bits = bits, .rounding = rounding, .bucket = block});
        for (uint8_t bits = 2; bits <= 8; bits++)
            for (const uint32_t bucket : {512U, 32U, 160U, 1024U, 7U})
                for (const Levels levels : {Levels::uniform, Levels::exponential})
                    all.push_back({.id = CodecId::norm,
                                   .bits = bits,
                                   .rounding = rounding,
                                   .bucket = bucket,
                                   .norm = static_cast<BucketNorm>((bits + bucket / 32) % 2),
                                   .levels = levels});
        for (uint8_t bits = 1; bits <= 8; bits++)
            for (const uint32_t bucket : {512U, 32U, 160U, Codec::whole_chunk, 7U})
                all.push_back({.id = CodecId::minmax,
                               .bits = bits,
                               .rounding = rounding,
                               .skips_incomplete = bucket != Codec::whole_chunk && bits % 2 == 0,
                               .bucket = bucket});
    }
    const std::vector<Codec> others = all;
    for (const Codec &codec : others)
        if (codec.rounding == Rounding::nearest && codec.row().takes_dither) {
            all.push_back(codec);
            all.back().rounding = Rounding::dither;
        }
    add_rotated(all);
    add_newer(all);
    return all;
}

constexpr size_t counts[] = {0, 1, 31, 32, 33, 63, 64, 511, 512, 513, 600, 1024, 1441, 2500};

// One encoding, which all tiers must reproduce.
struct Case {
    Codec codec;
    DataType type;
    Pattern pattern;
    size_t count, shift;
    Noise noise;
    uint32_t seed;

    std::string text() const {
        return spec(codec) + " " + name(type) + " pattern " +
               std::to_string(static_cast<int>(pattern)) + " count " + std::to_string(count) +
               " shift " + std::to_string(shift);
    }
};

// The chunk in two parts, cut at a multiple of the grain as segments are.
std::vector<ChunkRange> parts_of(const ChunkRange &whole, size_t cut) {
    if (cut == 0 || cut >= whole.whole || whole.codec->has_whole_buckets()) return {whole};
    ChunkRange first = whole, second = whole;
    first.count = cut;
    second.begin = cut;
    second.count = whole.whole - cut;
    return {first, second};
}

void expect(bool holds, const Case &test, const TestedKernels &tier, const std::string &what) {
    if (!holds) throw qtest::Failure{tier.name + " differs in " + what + ": " + test.text()};
}

void check_encode(const Case &test, const ChunkRange &whole, DataType in, const std::byte *src,
                  Buffer &payload) {
    scalar_kernels().encode(whole, test.noise, in, src, payload.data());
    const size_t cut = grain(test.codec) * (test.count / 2 / grain(test.codec));
    for (const TestedKernels &tier : tested_kernels()) {
        if (!tier.knows(test.codec)) continue;
        Buffer got(whole.layout->bytes, test.shift);
        for (const ChunkRange &part : parts_of(whole, cut))
            tier->encode(part, test.noise, in, src + part.begin * type_bytes(in), got.data());
        expect(same(got, payload), test, tier, std::string("encode from ") + name(in));
    }
}

void check_decode(const Case &test, const ChunkRange &whole, const std::byte *payload,
                  DataType out) {
    Buffer want(test.count * type_bytes(out), test.shift);
    scalar_kernels().decode(whole, payload, out, want.data(), false);
    const size_t cut = grain(test.codec) * (test.count / 3 / grain(test.codec));
    for (const TestedKernels &tier : tested_kernels()) {
        if (!tier.knows(test.codec)) continue;
        for (const bool streams : {false, true}) {
            Buffer got(test.count * type_bytes(out), test.shift);
            for (const ChunkRange &part : parts_of(whole, cut))
                tier->decode(part, payload, out, got.data() + part.begin * type_bytes(out),
                             streams);
            expect(same(got, want), test, tier, std::string("decode to ") + name(out));
        }
    }
}

void check_decode_add(const Case &test, const ChunkRange &whole, const std::byte *payload,
                      RedOp op) {
    const DataType type = accumulator_of(test.type);
    Values values(test.seed);
    Buffer start(test.count * type_bytes(type), test.shift);
    fill(values, test.pattern, type, start.data(), test.count);
    Buffer want = start;
    scalar_kernels().decode_add(whole, op, payload, want.data());
    const size_t cut = grain(test.codec) * (test.count / 4 / grain(test.codec));
    for (const TestedKernels &tier : tested_kernels()) {
        if (!tier.knows(test.codec)) continue;
        Buffer got = start;
        for (const ChunkRange &part : parts_of(whole, cut))
            tier->decode_add(part, op, payload, got.data() + part.begin * type_bytes(type));
        expect(same(got, want), test, tier, std::string("decode_add ") + name(op));
    }
}

void check_case(const Case &test) {
    const PayloadLayout layout = payload_layout(test.codec, test.type, test.count);
    const ChunkRange whole{.codec = &test.codec,
                           .layout = &layout,
                           .type = test.type,
                           .whole = test.count,
                           .begin = 0,
                           .count = test.count,
                           .noise = test.noise};
    Values values(test.seed);
    Buffer payload(layout.bytes, test.shift);
    for (const DataType in : {test.type, accumulator_of(test.type)}) {
        Buffer src(test.count * type_bytes(in), test.shift);
        fill(values, test.pattern, in, src.data(), test.count);
        payload = Buffer(layout.bytes, test.shift);
        check_encode(test, whole, in, src.data(), payload);
        check_decode(test, whole, payload.data(), in);
    }
    for (const RedOp op : all_ops)
        if (takes(test.type, op)) check_decode_add(test, whole, payload.data(), op);
}

} // namespace

// The table of encodings.
static std::vector<Case> codec_cases() {
    std::vector<Case> cases;
    Values values(1);
    uint32_t seed = 0;
    for (const Codec &codec : codecs())
        for (const DataType type : float_types)
            for (const Pattern pattern : patterns) {
                seed++;
                cases.push_back({.codec = codec,
                                 .type = type,
                                 .pattern = pattern,
                                 .count = counts[values.pick(std::size(counts))],
                                 .shift = values.pick(4) == 0 ? values.pick(64) : 0,
                                 .noise = {.key = seed * 0x9E3779B97F4A7C15ULL,
                                           .call = seed * 3ULL << 20,
                                           .first_index = values.word()},
                                 .seed = seed});
            }
    return cases;
}

// A pair sample of the cases, and with QTEST_FULL=1 all.
static void codecs_agree() {
    const std::vector<Case> cases = codec_cases();
    qtest::PairSample<4> sample;
    for (size_t i = 0; i < cases.size(); i++)
        sample.offer(false, {i / (std::size(float_types) * std::size(patterns)),
                             static_cast<uint64_t>(cases[i].type),
                             static_cast<uint64_t>(cases[i].pattern), cases[i].count});
    qtest::ChosenCases chosen = sample.choose();
    for (const Case &test : cases)
        if (chosen.takes()) check_case(test);
}

// Buckets that are longer than what a kernel takes at a time, and a shorter last one.
static void long_buckets_agree() {
    uint32_t seed = 0;
    for (const char *text : {"onebit:bucket=2048", "terngrad:bucket=3001"}) {
        const Codec codec = *parse_codec(text);
        for (const Pattern pattern : {Pattern::gauss, Pattern::tiny, Pattern::zeros}) {
            if (!is_chosen(seed++)) continue;
            check_case({.codec = codec,
                        .type = pattern == Pattern::tiny ? DataType::bfloat16 : DataType::float32,
                        .pattern = pattern,
                        .count = 6011,
                        .shift = seed % 2 * 12,
                        .noise = {.key = seed, .call = 7, .first_index = 1000 + seed},
                        .seed = seed});
        }
    }
}

static void codes_that_no_encoder_writes_agree() {
    // Codes may come from outside and have any value. The scales are ones that open_chunk accepts.
    Values values(2);
    for (const Codec &codec : codecs()) {
        if (codec.is_plain()) continue;
        const Case test{.codec = codec,
                        .type = DataType::float32,
                        .pattern = Pattern::gauss,
                        .count = 1441,
                        .shift = 0,
                        .noise = {},
                        .seed = 3};
        const PayloadLayout layout = payload_layout(codec, test.type, test.count);
        const ChunkRange whole{.codec = &codec,
                               .layout = &layout,
                               .type = test.type,
                               .whole = test.count,
                               .begin = 0,
                               .count = test.count};
        Buffer src(test.count * sizeof(float)), payload(layout.bytes);
        fill(values, Pattern::special, test.type, src.data(), test.count);
        scalar_kernels().encode(whole, {}, test.type, src.data(), payload.data());
        for (size_t i = 0; i < layout.coded / 32 * codec.bits * 4; i++)
            payload.data()[i] = static_cast<std::byte>(values.word());
        check_decode(test, whole, payload.data(), DataType::float32);
        check_decode_add(test, whole, payload.data(), RedOp::sum);
    }
}

static void noise_follows_the_index_over_every_carry(Rounding rounding) {
    const Codec codec{.id = CodecId::integer, .bits = 4, .rounding = rounding, .bucket = 32};
    for (const uint64_t index :
         {0ULL, 1ULL, 7ULL, 0xFFFFFFFFULL, 0x7FFFFFFF0ULL, 0x7FFFFFFFCULL, 0xFFFFFFFFFFFFULL})
        for (const Pattern pattern : {Pattern::gauss, Pattern::whole})
            check_case({.codec = codec,
                        .type = DataType::float32,
                        .pattern = pattern,
                        .count = 1441,
                        .shift = 0,
                        .noise = {.key = 0xFFFFFFFFFFFFFFFFULL,
                                  .call = 0xFFFFFFFFULL,
                                  .first_index = index},
                        .seed = 5});
}
static void noise_follows_the_index_over_every_carry() {
    noise_follows_the_index_over_every_carry(Rounding::stochastic);
    noise_follows_the_index_over_every_carry(Rounding::dither);
}

static void reductions_agree() {
    Values values(7);
    for (const TypeInfo &type : type_table)
        for (const DataType in : {type.type, type.accumulator})
            for (const RedOp op : all_ops)
                for (const size_t count : std::initializer_list<size_t>{0, 1, 7, 16, 33, 1000})
                    for (const Pattern pattern :
                         {Pattern::gauss, Pattern::zeros, Pattern::special, Pattern::bits}) {
                        if (!takes(type.type, op)) continue;
                        const size_t shift = values.pick(2) * values.pick(64);
                        Buffer start(count * type_bytes(type.accumulator), shift),
                            src(count * type_bytes(in), shift);
                        fill(values, pattern, type.accumulator, start.data(), count);
                        fill(values, pattern, in, src.data(), count);
                        Buffer want = start;
                        scalar_kernels().reduce(op, type.accumulator, want.data(), in, src.data(),
                                                count);
                        for (const TestedKernels &tier : tested_kernels()) {
                            Buffer got = start;
                            tier->reduce(op, type.accumulator, got.data(), in, src.data(), count);
                            if (!same(got, want))
                                throw qtest::Failure{tier.name + " differs in " + name(op) +
                                                     " of " + name(in) + ", count " +
                                                     std::to_string(count)};
                        }
                    }
}

static void divisions_agree() {
    Values values(8);
    for (const TypeInfo &type : type_table) {
        if (!takes(type.type, RedOp::avg)) continue;
        for (const uint32_t ranks : {1U, 2U, 3U, 7U, 255U, 4096U, 0xFFFFFFFFU})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 9, 100}) {
                Buffer start(count * type_bytes(type.accumulator), values.pick(64));
                fill(values, Pattern::special, type.accumulator, start.data(), count);
                Buffer want = start;
                scalar_kernels().divide(type.accumulator, want.data(), count, ranks);
                for (const TestedKernels &tier : tested_kernels()) {
                    Buffer got = start;
                    tier->divide(type.accumulator, got.data(), count, ranks);
                    CHECK(same(got, want));
                }
            }
    }
}

// Sums of errors: a rank's residual, its values, and what its bytes decode to.
static void kept_errors_agree() {
    Values values(10);
    for (const DataType type : {DataType::float32, DataType::float64})
        for (const uint32_t factor : {1U, 3U, 4096U})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 9, 64, 1001})
                for (const Pattern pattern : {Pattern::gauss, Pattern::special, Pattern::huge}) {
                    const size_t bytes = count * type_bytes(type);
                    Buffer residual(bytes, values.pick(64)), given(bytes, values.pick(64)),
                        decoded(bytes, values.pick(64));
                    fill(values, pattern, type, residual.data(), count);
                    fill(values, pattern, type, given.data(), count);
                    fill(values, Pattern::gauss, type, decoded.data(), count);
                    Buffer want = residual;
                    scalar_kernels().keep_error(type, want.data(), given.data(), decoded.data(),
                                                count, factor, nullptr);
                    for (const TestedKernels &tier : tested_kernels()) {
                        Buffer got = residual;
                        tier->keep_error(type, got.data(), given.data(), decoded.data(), count,
                                         factor, nullptr);
                        CHECK(same(got, want));
                    }
                }
}

static void velocities_are_the_references() {
    Values values(27);
    for (const DataType type : {DataType::float32, DataType::float64})
        for (const uint32_t momentum : {1U, 500U, 900U, 999U})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 9, 64, 1001})
                for (const Pattern pattern : {Pattern::gauss, Pattern::special, Pattern::huge}) {
                    const size_t bytes = count * type_bytes(type);
                    Buffer before(bytes, values.pick(64)), given(bytes, values.pick(64)),
                        decoded(bytes, values.pick(64)), residual(bytes, values.pick(64));
                    fill(values, pattern, type, before.data(), count);
                    fill(values, pattern, type, given.data(), count);
                    fill(values, Pattern::special, type, decoded.data(), count);
                    Buffer sums = given, next = before, kept = residual;
                    const auto run = [&](const Kernels &kernels, Buffer &sum, Buffer &velocity,
                                         Buffer &error) {
                        kernels.add_velocity(type, sum.data(), velocity.data(), before.data(),
                                             count, momentum);
                        kernels.keep_error(type, error.data(), sum.data(), decoded.data(), count, 3,
                                           velocity.data());
                    };
                    run(scalar_kernels(), sums, next, kept);
                    for (const TestedKernels &tier : tested_kernels()) {
                        Buffer sum = given, velocity = before, error = residual;
                        run(*tier.kernels, sum, velocity, error);
                        CHECK(same(sum, sums) && same(velocity, next) && same(error, kept));
                    }
                }
}

static void copies_agree() {
    Values values(9);
    for (const TypeInfo &type : type_table)
        for (const auto &[out, in] :
             {std::pair{type.type, type.type}, std::pair{type.type, type.accumulator},
              std::pair{type.accumulator, type.type}})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 15, 64, 257, 3000})
                for (const bool streams : {false, true})
                    for (const Pattern pattern : {Pattern::gauss, Pattern::tiny, Pattern::huge,
                                                  Pattern::special, Pattern::bits}) {
                        const size_t shift = values.pick(2) * values.pick(64);
                        Buffer src(count * type_bytes(in), values.pick(2) * values.pick(64));
                        fill(values, pattern, in, src.data(), count);
                        Buffer want(count * type_bytes(out), shift);
                        scalar_kernels().copy(out, want.data(), in, src.data(), count, streams);
                        for (const TestedKernels &tier : tested_kernels()) {
                            Buffer got(count * type_bytes(out), shift);
                            tier->copy(out, got.data(), in, src.data(), count, streams);
                            CHECK(same(got, want));
                        }
                    }
}

// Every 16-bit pattern, and every float near one of them, is cast as the reference does.
static void casts_agree_on_every_pattern() {
    for (const DataType narrow :
         {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2}) {
        const size_t count = size_t{1} << (8 * type_bytes(narrow));
        Buffer all(count * type_bytes(narrow)), floats(count * sizeof(float));
        for (size_t i = 0; i < count; i++)
            std::memcpy(all.data() + i * type_bytes(narrow), &i, type_bytes(narrow));
        scalar_kernels().copy(DataType::float32, floats.data(), narrow, all.data(), count, false);
        for (const TestedKernels &tier : tested_kernels()) {
            Buffer got(count * sizeof(float));
            tier->copy(DataType::float32, got.data(), narrow, all.data(), count, false);
            CHECK(same(got, floats));
            for (const int step : {-0x1001, -0x1000, -0xFFF, -1, 0, 1, 0xFFF, 0x1000, 0x1001,
                                   0x8000, 0x7FFF, 0x80000}) {
                Buffer near(count * sizeof(float)), want(count * type_bytes(narrow)),
                    narrowed(count * type_bytes(narrow));
                for (size_t i = 0; i < count; i++)
                    store_bits(near.data(), i,
                               load_bits<uint32_t>(floats.data(), i) + static_cast<uint32_t>(step));
                scalar_kernels().copy(narrow, want.data(), DataType::float32, near.data(), count,
                                      false);
                tier->copy(narrow, narrowed.data(), DataType::float32, near.data(), count, false);
                CHECK(same(narrowed, want));
            }
        }
    }
}

// A new codec must be added to codecs().
static void every_codec_is_tried() {
    const std::vector<Codec> tried = codecs();
    for (const CodecRow &row : codec_table)
        if (std::ranges::find(tried, row.id, &Codec::id) == tried.end())
            throw qtest::Failure{std::string(row.name) + " is not in codecs()"};
}

static void masks_choose_tiers() {
    CHECK(best_kernels(tier_mask(Tier::scalar)).tier == Tier::scalar);
    CHECK(best_kernels(0).tier == Tier::scalar);
    CHECK(&best_kernels() == available_kernels().back());
    CHECK(!tested_kernels().empty());
    for (const TestedKernels &tier : tested_kernels()) printf("%s\n", tier.name.c_str());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_codec_is_tried),
        QTEST(masks_choose_tiers),
        QTEST(copies_agree),
        QTEST(casts_agree_on_every_pattern),
        QTEST(reductions_agree),
        QTEST(divisions_agree),
        QTEST(kept_errors_agree),
        QTEST(velocities_are_the_references),
        QTEST(codecs_agree),
        QTEST(long_buckets_agree),
        QTEST(codes_that_no_encoder_writes_agree),
        QTEST(noise_follows_the_index_over_every_carry),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
