// Tests tests/amdgpu, which runs machine code of AMD GPUs on the CPU: the probe kernels, as the
// compiler made them for waves of 32 and of 64 lanes, compute what the host computes, and races,
// accesses out of bounds and unknown instructions are reported.
#include "probe_arithmetic.hpp"
#include "wave_launch.hpp"
#include "tests/kit/qtest.hpp"

#include <bit>
#include <random>
#include <sstream>
#include <vector>

namespace amdgpu {
extern const CodeObject probe_gfx1100, probe_gfx942, refused_gfx1100, refused_gfx942;
} // namespace amdgpu

namespace {

using namespace amdgpu;
using probe::as;

// Returns a buffer of `count` values in the GPU's memory, `misalignment` bytes after a page
// boundary.
template <class T> std::span<T> buffer(Gpu &gpu, size_t count, size_t misalignment = 0) {
    return {reinterpret_cast<T *>(gpu.memory().add(count * sizeof(T), misalignment)), count};
}

// Fills with any bits, with every special value, and with more values near 1 than chance would
// give.
void fill_with_floats(std::span<float> values, unsigned seed) {
    constexpr std::array special{0x00000000U, 0x80000000U, 0x3F800000U, 0xBF800000U, 0x7F800000U,
                                 0xFF800000U, 0x7FC00000U, 0x7F800001U, 0x00000001U, 0x80000001U,
                                 0x007FFFFFU, 0x00800000U, 0x7F7FFFFFU, 0xFF7FFFFFU, 0x3F7FFFFFU};
    std::mt19937 random(seed);
    for (size_t i = 0; i < values.size(); ++i) {
        const u32 any = static_cast<u32>(random());
        const u32 near_one = (any & 0x83FFFFFF) | 0x3C000000;
        values[i] = as<float>(any % 16 == 0  ? special[any / 16 % special.size()]
                              : any % 3 == 0 ? near_one
                                             : any);
    }
}

template <class T> void fill(std::span<T> values, unsigned seed) {
    std::mt19937_64 random(seed);
    for (T &value : values) value = static_cast<T>(random());
}

#define CHECK_RUNS(outcome) CHECK_EQ((outcome), std::string())

template <class A, class B> void check_all(const A &a, const B &b) {
    CHECK_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
        if (a[i] != b[i]) {
            std::ostringstream text;
            text << "element " << i << " is 0x" << std::hex << a[i] << ", not 0x" << b[i];
            throw qtest::Failure{text.str()};
        }
}

// Checks one operation on two floats. The default count leaves the last wave partly filled.
template <class Op>
void check_operation(const CodeObject &code, const char *name, u32 count = (64U << 10) - 7) {
    constexpr u32 threads = 256;
    Gpu gpu(code);
    const auto a = buffer<float>(gpu, count), b = buffer<float>(gpu, count);
    const auto out = buffer<u32>(gpu, count);
    fill_with_floats(a, 1);
    fill_with_floats(b, 2);
    CHECK_RUNS(gpu.launch((std::string("void each<probe::") + name + ">").c_str(),
                          Shape{{(count + threads - 1) / threads}, {threads}}, a.data(), b.data(),
                          out.data(), count));
    std::vector<u32> expected(count);
    for (size_t i = 0; i < count; ++i) expected[i] = Op::of(a[i], b[i]);
    check_all(out, expected);
}

template <const CodeObject &code> void floats() {
    check_operation<probe::Divide>(code, "Divide");
    check_operation<probe::Root>(code, "Root");
    check_operation<probe::MultiplyThenAdd>(code, "MultiplyThenAdd");
    check_operation<probe::Fused>(code, "Fused");
    check_operation<probe::Round>(code, "Round");
    check_operation<probe::Extremes>(code, "Extremes");
    check_operation<probe::ToInteger>(code, "ToInteger");
    check_operation<probe::FromInteger>(code, "FromInteger");
    check_operation<probe::Halves>(code, "Halves");
    check_operation<probe::EightBits>(code, "EightBits");
    check_operation<probe::PackedHalves>(code, "PackedHalves");
}
template <const CodeObject &code> void doubles() {
    check_operation<probe::DivideDoubles>(code, "DivideDoubles");
}
template <const CodeObject &code> void integers() {
    check_operation<probe::WideProduct>(code, "WideProduct");
    check_operation<probe::WideDivision>(code, "WideDivision");
    check_operation<probe::BitCounts>(code, "BitCounts");
    check_operation<probe::PackedIntegers>(code, "PackedIntegers");
    check_operation<probe::SmallIntegers>(code, "SmallIntegers");
}
template <const CodeObject &code> void divergence() {
    check_operation<probe::Collatz>(code, "Collatz", 5000);
    check_operation<probe::PrivateArray>(code, "PrivateArray", 5000);
}

template <const CodeObject &code> void random_numbers() {
    Gpu gpu(code);
    const auto out = buffer<u32>(gpu, 5000);
    CHECK_RUNS(gpu.launch("draw", Shape{{3}, {128}}, out.data(), u32{17}, u32{4}, u32{5000}));
    std::vector<u32> expected(5000);
    for (u32 i = 0; i < 5000; ++i) expected[i] = probe::philox(i, 17, 4);
    check_all(out, expected);
}

// Returns the sum of a block as block_sums adds it: within waves by halves, then wave after wave.
float expected_sum(std::span<const float> of_block, unsigned lanes) {
    float sum = 0;
    for (size_t wave = 0; wave * lanes < of_block.size(); ++wave) {
        std::vector<float> values(of_block.begin() + static_cast<std::ptrdiff_t>(wave * lanes),
                                  of_block.begin() +
                                      static_cast<std::ptrdiff_t>((wave + 1) * lanes));
        for (unsigned away = lanes / 2; away != 0; away /= 2) {
            const std::vector<float> before = values;
            for (unsigned lane = 0; lane < lanes; ++lane)
                values[lane] = before[lane] + before[lane ^ away];
        }
        sum += values[0];
    }
    return sum;
}

template <const CodeObject &code> void blocks() {
    for (const unsigned threads : {64U, 256U, 1024U}) {
        Gpu gpu(code);
        const auto in = buffer<float>(gpu, 5 * threads), out = buffer<float>(gpu, 5);
        std::mt19937 random(threads);
        for (float &value : in) value = static_cast<float>(random() % 100000) * 0.001F;
        CHECK_RUNS(gpu.launch("block_sums", Shape{{5}, {threads}}, in.data(), out.data()));
        for (unsigned block = 0; block < 5; ++block)
            CHECK_EQ(out[block], expected_sum(in.subspan(block * threads, threads), code.lanes));
    }
}

template <const CodeObject &code> void ballots() {
    Gpu gpu(code);
    const auto in = buffer<u32>(gpu, 512), out = buffer<u32>(gpu, 512), kept = buffer<u32>(gpu, 1);
    fill(in, 3);
    CHECK_RUNS(gpu.launch("compact", Shape{{1}, {512}}, in.data(), out.data(), kept.data()));
    std::vector<u32> expected;
    for (const u32 value : in)
        if (value % 2 == 1) expected.push_back(value);
    CHECK_EQ(kept[0], expected.size());
    check_all(out.first(expected.size()), expected);
}

template <const CodeObject &code> void atomics() {
    constexpr u32 count = 3001;
    Gpu gpu(code);
    const auto in = buffer<u8>(gpu, count, 1);
    const auto out = buffer<u32>(gpu, 256);
    const auto sum = buffer<u64>(gpu, 1);
    fill(in, 4);
    std::fill(out.begin(), out.end(), 0);
    sum[0] = 5;
    CHECK_RUNS(
        gpu.launch("histogram", Shape{{4}, {192}, 1024}, in.data(), out.data(), sum.data(), count));
    std::vector<u32> expected(256);
    u64 expected_sum = 5;
    for (const u8 value : in) {
        ++expected[value];
        expected_sum += u64{value} << 30;
    }
    check_all(out, expected);
    CHECK_EQ(sum[0], expected_sum);
}

template <const CodeObject &code> void bytes() {
    constexpr u32 count = 1000;
    for (size_t misalignment = 0; misalignment < 4; ++misalignment) {
        Gpu gpu(code);
        const auto in = buffer<u8>(gpu, 4 * count, misalignment),
                   out = buffer<u8>(gpu, 4 * count, 3 - misalignment);
        fill(in, 5);
        CHECK_RUNS(gpu.launch("move_bytes", Shape{{4}, {256}}, in.data(), out.data(), count));
        for (size_t i = 0; i < 4 * count; ++i) CHECK_EQ(out[i], in[i] ^ (i % 4 == 3 ? 0x80 : 0));
    }
    Gpu gpu(code);
    const auto in = buffer<u32>(gpu, 4 * count), out = buffer<u32>(gpu, 4 * count);
    fill(in, 6);
    CHECK_RUNS(gpu.launch("move_vectors", Shape{{4}, {256}}, in.data(), out.data(), count));
    for (size_t i = 0; i < 4 * count; ++i) CHECK_EQ(out[i], in[i] * 3 + 1);
}

struct Batch {
    const float *in[160];
    float *out[160];
    u32 count[160];
    float scale;
};

template <const CodeObject &code> void batches() {
    Gpu gpu(code);
    Batch batch{};
    std::vector<std::span<float>> in, out;
    for (u32 i = 0; i < 160; ++i) {
        batch.count[i] = 1 + i * 7 % 400;
        in.push_back(buffer<float>(gpu, 400));
        out.push_back(buffer<float>(gpu, batch.count[i]));
        std::fill(in[i].begin(), in[i].end(), static_cast<float>(i + 1));
        batch.in[i] = in[i].data();
        batch.out[i] = out[i].data();
    }
    batch.scale = 0.5F;
    CHECK_RUNS(gpu.launch("batched", Shape{{2, 160}, {64}}, batch));
    for (u32 i = 0; i < 160; ++i)
        for (const float value : out[i]) CHECK_EQ(value, static_cast<float>(i + 1) * 0.5F);
    const auto which = buffer<u32>(gpu, 64);
    const auto picked = buffer<float>(gpu, 64);
    for (u32 i = 0; i < 64; ++i) which[i] = i * 37 % 160;
    CHECK_RUNS(gpu.launch("picked", Shape{{1}, {64}}, batch, which.data(), picked.data()));
    for (u32 i = 0; i < 64; ++i) CHECK_EQ(picked[i], static_cast<float>(which[i] + 1) + 0.5F);
}

u64 expected_call(u32 a, u32 b, u32 &memory) {
    const auto called = [&memory](u32 x, u32 y) {
        const auto at = [=](u32 i) { return x * (i % 12) + y; };
        memory += at(x);
        return u64{at(y)} << 32 | at(x);
    };
    const u64 first = called(a + 1, b);
    return first ^ called(a, b + 1);
}

template <const CodeObject &code> void calls() {
    Gpu gpu(code);
    const auto in = buffer<u32>(gpu, 300);
    const auto out = buffer<u64>(gpu, 300);
    fill(in, 7);
    CHECK_RUNS(gpu.launch("calls", Shape{{3}, {100}}, in.data(), out.data()));
    for (u32 i = 0; i < 300; ++i) {
        u32 here = 1;
        const u64 result = expected_call(in[i], i % 100, here);
        CHECK_EQ(out[i], result + here);
    }
}

template <const CodeObject &code> void grids() {
    Gpu gpu(code);
    const auto out = buffer<u32>(gpu, 10 * 6 * 12);
    CHECK_RUNS(gpu.launch("places", Shape{{2, 3, 4}, {5, 2, 3}}, out.data()));
    for (u32 i = 0; i < out.size(); ++i) CHECK_EQ(out[i], i % 10 | i / 10 % 6 << 10 | i / 60 << 20);
}

template <const CodeObject &code> void patterns() {
    constexpr u32 threads = 128;
    Gpu gpu(code);
    const auto in = buffer<u32>(gpu, threads), out = buffer<u32>(gpu, 7 * threads);
    fill(in, 8);
    CHECK_RUNS(gpu.launch("patterns", Shape{{1}, {threads}}, in.data(), out.data()));
    for (u32 i = 0; i < threads; ++i) {
        const u32 row = i % 16, first = i - row, lane = i % code.lanes;
        const bool is_written = lane / 16 < 2 && row / 4 % 2 == 0;
        CHECK_EQ(out[i], in[i ^ 1]);
        CHECK_EQ(out[threads + i], row < 3 ? ~0U : in[i - 3]);
        CHECK_EQ(out[2 * threads + i], row < 14 ? in[i + 2] : 0);
        CHECK_EQ(out[3 * threads + i], is_written ? in[first + 15 - row] : 7);
        CHECK_EQ(out[4 * threads + i], in[i ^ 1]);
        CHECK_EQ(out[5 * threads + i], in[i - lane + 5]);
        CHECK_EQ(out[6 * threads + i], in[first + (row + 1) % 16] + in[i]);
    }
}

// ---- Errors that must be reported.

bool says(const std::string &outcome, const char *words) {
    return outcome.find(words) != std::string::npos;
}

template <const CodeObject &code> void races() {
    Gpu gpu(code);
    const auto out = buffer<u32>(gpu, 256);
    CHECK(
        says(gpu.launch("without_barrier", Shape{{1}, {256}}, out.data()), "depends on the order"));
    // The lanes of a single wave do not race.
    CHECK_RUNS(gpu.launch("without_barrier", Shape{{1}, {code.lanes}}, out.data()));
    CHECK(says(gpu.launch("unset", Shape{{1}, {64}}, out.data()), "depends on the order"));
    const auto values = buffer<float>(gpu, 64);
    fill_with_floats(values, 9);
    CHECK(says(gpu.launch("inexact", Shape{{1}, {64}}, values.data(), values.data()),
               "depends on the order"));
}

template <const CodeObject &code> void bounds() {
    Gpu gpu(code);
    const auto in = buffer<u32>(gpu, 100), out = buffer<u32>(gpu, 100);
    const auto outcome = gpu.launch("beyond", Shape{{1}, {128}}, in.data(), out.data(), u32{100});
    CHECK(says(outcome, "reads 4 bytes outside global memory"));
    CHECK(says(outcome, "lane 4") || says(outcome, "lane 36"));
    CHECK(says(outcome, "global_load"));
    CHECK_RUNS(gpu.launch("beyond", Shape{{1}, {128}}, in.data(), out.data(), u32{99}));
    CHECK(says(gpu.launch("beyond", Shape{{1}, {128}}, in.data(), in.data() + 1, u32{99}),
               "writes 4 bytes"));
    CHECK_RUNS(gpu.launch("beyond_shared", Shape{{1}, {64}, 256}, out.data(), u32{0}));
    CHECK(says(gpu.launch("beyond_shared", Shape{{1}, {64}, 256}, out.data(), u32{1}),
               "outside local memory"));
}

template <const CodeObject &code> void refusals() {
    Gpu gpu(code);
    const auto out = buffer<u32>(gpu, 1);
    CHECK(says(gpu.launch("nowhere", Shape{}, out.data()), "there is no kernel nowhere"));
    CHECK(says(gpu.launch("unset", Shape{}), "argument 0 should have 8 bytes"));
    CHECK(says(gpu.launch("unset", Shape{}, out.data(), u32{1}), "too many arguments"));
    out[0] = 0;
    CHECK(says(gpu.launch("endless", Shape{{1}, {1}}, out.data()), "does not come to an end"));
}

template <const CodeObject &code> void known() {
    for (const char *name : code.refused) throw qtest::Failure{std::string("not known: ") + name};
}
template <const CodeObject &code> void unknown() {
    CHECK_EQ(code.refused.size(), 1U);
    CHECK_EQ(std::string(code.refused[0]), std::string("v_sin_f32_e32"));
    Gpu gpu(code);
    const auto out = buffer<float>(gpu, 1);
    CHECK(says(gpu.launch("waved", Shape{}, out.data()), "v_sin_f32_e32"));
}

} // namespace

#define BOTH(body)                                                                                 \
    qtest::unit<body<probe_gfx1100>>(#body "_gfx1100"),                                            \
        qtest::unit<body<probe_gfx942>>(#body "_gfx942")

int main() {
    const CMUnitTest tests[] = {
        BOTH(known),
        BOTH(floats),
        BOTH(doubles),
        BOTH(integers),
        BOTH(divergence),
        BOTH(random_numbers),
        BOTH(blocks),
        BOTH(ballots),
        BOTH(atomics),
        BOTH(bytes),
        BOTH(batches),
        BOTH(calls),
        BOTH(grids),
        BOTH(patterns),
        BOTH(races),
        BOTH(bounds),
        BOTH(refusals),
        qtest::unit<unknown<refused_gfx1100>>("unknown_gfx1100"),
        qtest::unit<unknown<refused_gfx942>>("unknown_gfx942"),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
