// Tests Philox in kernels/codec/code_rounding: the published answers of Random123, and the position
// of each draw in its block.
#include "tests/kit/qtest.hpp"

#include "kernels/codec/code_rounding.hpp"

#include <set>

using namespace qccl;

using Words = std::array<uint32_t, 4>;

// From kat_vectors of Random123 (D. E. Shaw Research), philox4x32, 7 rounds.
static void known_answers() {
    constexpr uint32_t ones = ~0U;
    CHECK((philox4x32_7({0, 0, 0, 0}, {0, 0}) ==
           Words{0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48}));
    CHECK((philox4x32_7({ones, ones, ones, ones}, {ones, ones}) ==
           Words{0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662}));
    CHECK(
        (philox4x32_7({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
         Words{0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A}));
}

static void draws_take_halves_in_order() {
    // The counter and key of the third answer: block, call and key as 64-bit numbers.
    constexpr uint64_t block = 0x05A308D3243F6A88, call = 0x0370734413198A2E,
                       key = 0x299F31D0A4093822;
    const Words words = noise_block(key, call, block);
    CHECK((words == philox4x32_7({0x243F6A88, 0x05A308D3, 0x13198A2E, 0x03707344},
                                 {0xA4093822, 0x299F31D0})));
    for (uint32_t lane = 0; lane < 8; lane++) {
        const uint32_t word = words[lane / 2];
        CHECK_EQ(noise_draw(key, call, block * 8 + lane),
                 lane % 2 == 0 ? word & 0xFFFF : word >> 16);
    }
    CHECK_EQ(noise_draw(0, 0, 0), 0xB709U);
    CHECK_EQ(noise_draw(0, 0, 1), 0x5F6FU);
    CHECK_EQ(noise_draw(0, 0, 7), 0x4F73U);
}

static void every_part_of_the_position_matters() {
    const std::set<Words> blocks{noise_block(1, 2, 3),          noise_block(1ULL << 32, 2, 3),
                                 noise_block(1, 2ULL << 32, 3), noise_block(1, 2, 3ULL << 32),
                                 noise_block(2, 2, 3),          noise_block(1, 3, 3),
                                 noise_block(1, 2, 4)};
    CHECK_EQ(blocks.size(), 7U);
}

static void draws_are_uniform() {
    constexpr uint64_t count = 1 << 18;
    double sum = 0, neighbours = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double u = (noise_draw(77, 1, i) + 0.5) / 65536 - 0.5,
                     next = (noise_draw(77, 1, i + 1) + 0.5) / 65536 - 0.5;
        sum += u;
        neighbours += u * next;
    }
    // Limits of six standard deviations, for a mean of uniform numbers and of products of
    // independent ones.
    CHECK(sum * sum < 36 * static_cast<double>(count) / 12);
    CHECK(neighbours * neighbours < 36 * static_cast<double>(count) / 144);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(known_answers),
        QTEST(draws_take_halves_in_order),
        QTEST(every_part_of_the_position_matters),
        QTEST(draws_are_uniform),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
