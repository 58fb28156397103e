// Tests lib/codec/payload: the sections of codecs that have more than codes and ordinary scales,
// and the refusal of contents that no encoder writes.
#include "chunk_kit.hpp"

#include <tuple>

using namespace qccl;
using namespace chunks;

static void strange_scales_of_small_floats_are_refused() {
    const auto accepts_byte = [](const char *text, int scale) {
        return accepts(text, static_cast<uint8_t>(scale));
    };
    for (const int scale : {0, 1, 127, 246, 255}) CHECK(accepts_byte("mxfp8e4m3", scale));
    for (const int scale : {247, 254}) CHECK(!accepts_byte("mxfp8e4m3", scale));
    for (const char *text : {"mxfp6e2m3", "mxfp4"}) {
        for (const int scale : {0, 247, 252, 255}) CHECK(accepts_byte(text, scale));
        for (const int scale : {253, 254}) CHECK(!accepts_byte(text, scale));
    }
    for (const auto &[text, largest] :
         {std::pair("fp8e4m3:block=32", 0x7B12), std::pair("fp8e5m2:block=64", 0x7792)}) {
        const auto accepts_scale = [&text = text](int scale) {
            return accepts(text, static_cast<uint16_t>(scale));
        };
        for (const int scale : {0, 0x80, 0x81, 0x3F80, largest, 0x7FC0})
            CHECK(accepts_scale(scale));
        for (const int scale : {1, 0x7F, largest + 1, 0x7F80, 0x7FC1, 0x8000, 0xBF80, 0xFFC0})
            CHECK(!accepts_scale(scale));
    }
    for (const int scale : {0, 1, 0x7E, 0x7F}) CHECK(accepts_byte("nvfp4", scale));
    for (const int scale : {0x80, 0xFF}) CHECK(!accepts_byte("nvfp4", scale));
    const auto accepts_base = [](uint32_t base) {
        Bytes chunk = make_chunk("nvfp4:bucket=64", DataType::float32, 70);
        put(chunk, header_bytes + layout_of("nvfp4:bucket=64", 70).bases + 4, base);
        return open_chunk(chunk).is_ok();
    };
    for (const uint32_t base : {zero, 0x05000000U, one, 0x79C00000U}) CHECK(accepts_base(base));
    for (const uint32_t base :
         {1U, 0x04FFFFFFU, 0x79C00001U, infinity, nan_bits, minus, minus | one})
        CHECK(!accepts_base(base));
}

static void strange_means_and_maxima_are_refused() {
    const auto accepts_means = [&](uint32_t mean, uint32_t negative) {
        return accepts("onebit", mean, negative);
    };
    CHECK(accepts_means(nan_bits, nan_bits) && accepts_means(zero, zero) &&
          accepts_means(one, minus | one) && accepts_means(1, minus | 1) &&
          accepts_means(most, minus | most));
    for (const uint32_t mean : {nan_bits, infinity, minus, minus | one, nan_bits | 1})
        CHECK(!accepts_means(mean, minus | one));
    for (const uint32_t mean :
         {nan_bits, infinity, minus, one, minus | infinity, nan_bits | minus, 1U})
        CHECK(!accepts_means(one, mean));
    for (const uint32_t scale : {nan_bits, zero, one, 1U, most}) CHECK(accepts("terngrad", scale));
    for (const uint32_t scale : {nan_bits | 1, infinity, minus, minus | one, minus | nan_bits})
        CHECK(!accepts("terngrad", scale));
}

static void strange_norms_are_refused() {
    for (const char *text : {"norm", "norm:levels=exponential", "norm:bits=2"}) {
        const bool is_wide = parsed(text).bits == 8 && parsed(text).levels == Levels::uniform;
        const uint32_t least = is_wide ? 0x03FE0000 : 0x00800000; // 127 * 2^-126, 2^-126
        for (const uint32_t norm : {nan_bits, zero, one, least, most - 1})
            CHECK(accepts(text, norm));
        for (const uint32_t norm :
             {nan_bits | 1, infinity, minus, minus | one, minus | nan_bits, least - 1, 1U, most})
            CHECK(!accepts(text, norm));
    }
}

// Tries all values of every byte; those that no encoder writes are refused.
static void digits_of_no_value_are_refused() {
    for (const uint64_t count : {1U, 3U, 20U, 21U, 70U, 133U}) {
        const Bytes chunk = make_chunk("terngrad:bucket=64", DataType::float32, count);
        const PayloadLayout layout = layout_of("terngrad:bucket=64", count);
        size_t at = header_bytes;
        for (uint64_t start = 0; start < count; start += 64) {
            const uint64_t values = std::min<uint64_t>(64, count - start),
                           bytes = ternary_bytes(values);
            for (uint64_t i = 0; i < bytes; i++, at++) {
                int limit = 1;
                for (uint64_t value = i; value < values; value += bytes) limit *= 3;
                for (int value = 0; value < 256; value++) {
                    Bytes copy = chunk;
                    copy[at] = std::byte(value);
                    CHECK_EQ(open_chunk(copy).is_ok(), value < limit);
                }
            }
        }
        CHECK_EQ(layout.scales, (at - header_bytes + 15) / 16 * 16);
    }
}

static void strange_indices_are_refused() {
    constexpr uint64_t count = 70000; // two pages
    const PayloadLayout layout = layout_of("topk:ratio=0.01", count);
    CHECK_EQ(layout.kept, 700U);
    CHECK_EQ(layout.indices, 16U);
    CHECK_EQ(layout.kept_values, 16U + 1408U);
    CHECK_EQ(layout.bytes, layout.kept_values + 700 * sizeof(float));
    const Bytes chunk =
        make_chunk("topk:ratio=0.01", DataType::float32, count, golden::Kind::constant);
    CHECK_OK(open_chunk(chunk)); // keeps values 0 to 699
    const auto accepts_with = [&](size_t at, auto value) {
        Bytes copy = chunk;
        put(copy, header_bytes + at, value);
        return open_chunk(copy).is_ok();
    };
    for (const uint32_t number : {0U, 699U, 701U, ~0U}) CHECK(!accepts_with(0, number));
    CHECK(!accepts_with(4, 1U));
    CHECK(accepts_with(layout.indices + 699 * 2, uint16_t{65535}));
    for (const int index : {0, 698}) // must exceed the index before
        CHECK(!accepts_with(layout.indices + 699 * 2, static_cast<uint16_t>(index)));
    CHECK(accepts_with(layout.kept_values, ~0U));
    // Moves the last kept value to the second page, which has 4464 values.
    Bytes parted = chunk;
    put(parted, header_bytes, 699U);
    put(parted, header_bytes + 4, 1U);
    for (const int index : {0, 4463, 4464, 65535}) {
        put(parted, header_bytes + layout.indices + 699 * 2, static_cast<uint16_t>(index));
        CHECK_EQ(open_chunk(parted).is_ok(), index < 4464);
    }
    for (const auto &[text, values, kept] : {std::tuple("topk", uint64_t{1}, 1U),
                                             {"topk", 1000, 1U},
                                             {"topk", 1001, 2U},
                                             {"topk", 0, 0U},
                                             {"topk:ratio=1", 12345, 12345U},
                                             {"topk:ratio=0.333333", 3, 1U},
                                             {"topk:ratio=0.333334", 3, 2U}})
        CHECK_EQ(layout_of(text, values).kept, kept);
    CHECK_EQ(layout_of("topk:ratio=0.999999", uint64_t{1} << 56).kept,
             (uint64_t{1} << 56) - 72057594037);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(strange_scales_of_small_floats_are_refused),
        QTEST(strange_means_and_maxima_are_refused),
        QTEST(strange_norms_are_refused),
        QTEST(digits_of_no_value_are_refused),
        QTEST(strange_indices_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
