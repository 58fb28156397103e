// Tests noise_key() of lib/codec/codec: keys are mixed as WIRE.md specifies, and no two encodes
// share a key.
#include "tests/kit/qtest.hpp"

#include "codec/codec.hpp"

#include <set>

using namespace qccl;

static void keys_are_mixed_as_written() {
    // SplitMix64's published first outputs from state 0.
    CHECK_EQ(splitmix64(0), 0xE220A8397B1DCDAFULL);
    CHECK_EQ(splitmix64(0x9E3779B97F4A7C15ULL), 0x6E789E6AA1B965F4ULL);
    CHECK_EQ(noise_key(5, 0, 0), splitmix64(splitmix64(5)));
    CHECK_EQ(noise_key(5, 2, 3), splitmix64(splitmix64(5) ^ 0x0000000200000003ULL));
    std::set<uint64_t> keys;
    for (uint32_t rank = 0; rank < 64; rank++)
        for (uint32_t ordinal = 0; ordinal < 64; ordinal++)
            keys.insert(noise_key(9, rank, ordinal));
    CHECK_EQ(keys.size(), 64U * 64U);
}

int main() {
    const CMUnitTest tests[] = {QTEST(keys_are_mixed_as_written)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
