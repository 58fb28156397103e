// Tests codec/chunk: sizes and sections are those of WIRE.md; every damaged field, every wrong
// length, and padding and scales that no encoder writes are refused; the checksum covers every bit.
#include "chunk_kit.hpp"

#include "codec/chunk.hpp"

#include <limits>

using namespace qccl;
using namespace chunks;

namespace {

void check_damaged(std::span<const std::byte> bytes) {
    const auto open = open_chunk(bytes);
    CHECK(!open);
    CHECK(open.error().code == Code::damaged_data);
    CHECK(open.error().text[0] != 0);
}

void check_byte_refused(const Bytes &chunk, size_t at, uint8_t value) {
    Bytes copy = chunk;
    copy[at] = std::byte{value};
    check_damaged(copy);
}

} // namespace

static void sections_lie_where_the_page_says() {
    const PayloadLayout five = layout_of("int5", 70);
    CHECK_EQ(five.plane4, 0U);
    CHECK_EQ(five.plane1, 48U);
    CHECK_EQ(five.scales, 64U);
    CHECK_EQ(five.bytes, 70U);
    CHECK_EQ(five.scale_count, 3U);
    const PayloadLayout ten = layout_of("int10", 70), twelve = layout_of("int12", 70);
    CHECK_EQ(ten.plane8, 0U);
    CHECK_EQ(ten.plane2, 96U);
    CHECK_EQ(ten.scales, 128U);
    CHECK_EQ(ten.bytes, 134U);
    CHECK_EQ(twelve.plane4, 96U);
    CHECK_EQ(twelve.scales, 144U);
    CHECK_EQ(twelve.bytes, 150U);
    const PayloadLayout seven = layout_of("minmax:bits=7,bucket=64,skip_incomplete=1", 197);
    CHECK_EQ(seven.coded, 192U);
    CHECK_EQ(seven.plane2, 96U);
    CHECK_EQ(seven.plane1, 144U);
    CHECK_EQ(seven.scales, 176U);
    CHECK_EQ(seven.raw, 208U);
    CHECK_EQ(seven.bytes, 208U + 5 * 4);
    CHECK_EQ(layout_of("minmax:bits=1,bucket=all", 1000000).scale_count, 1U);
    const PayloadLayout four = layout_of("nvfp4:bucket=64", 70);
    CHECK_EQ(four.scales, 48U);
    CHECK_EQ(four.scale_count, 5U);
    CHECK_EQ(four.bases, 64U);
    CHECK_EQ(four.bytes, 72U);
    CHECK_EQ(layout_of("none", 3).bytes, 12U);
    CHECK_EQ(layout_of("bf16", 3).bytes, 6U);
    CHECK_EQ(encoded_bytes(parsed("int8"), DataType::float64, 32), 64U + 32 + 2);
    for (const std::string &text : golden::specs()) CHECK_EQ(layout_of(text, 0).bytes, 0U);
}

// Counts beyond 4 GiB are computed; nothing is allocated.
static void large_counts_are_exact() {
    const uint64_t count = (uint64_t{1} << 40) + 1;
    CHECK_EQ(layout_of("int4", count).bytes,
             ((uint64_t{1} << 35) + 1) * 16 + ((uint64_t{1} << 35) + 1) * 2);
    CHECK_EQ(layout_of("none", count).bytes, count * 4);
    CHECK_EQ(payload_layout(parsed("minmax:bucket=1"), DataType::float64, uint64_t{1} << 56).bytes,
             (uint64_t{9} << 56));
}

static void what_is_written_is_read() {
    for (const std::string &text : golden::specs())
        for (const uint64_t count : {0U, 1U, 33U, 1001U}) {
            const Bytes bytes = make_chunk(text, DataType::bfloat16, count);
            const auto open = open_chunk(bytes, parsed(text), DataType::bfloat16, count);
            CHECK_OK(open);
            ChunkInfo expected = golden::chunk_info(DataType::bfloat16, count);
            if (parsed(text).rounding == Rounding::nearest) expected.noise_key = expected.call = 0;
            CHECK(open->chunk == expected);
            CHECK_EQ(open->payload.size(), bytes.size() - header_bytes);
        }
}

static void every_length_but_one_is_refused() {
    for (const char *text :
         {"none", "fp16", "int5", "mxfp6e2m3", "minmax:bits=7,bucket=32,skip_incomplete=1"}) {
        const Bytes bytes = make_chunk(text, DataType::float32, 70);
        for (size_t length = 0; length < bytes.size(); length++) {
            const Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(
                                                               length)); // sanitizers see its end
            check_damaged(cut);
        }
        Bytes longer = bytes;
        longer.push_back(std::byte{0});
        check_damaged(longer);
    }
}

// Tries every value of every byte of the header that describes the structure. The free bytes may
// have any value.
static void damaged_headers_are_refused() {
    const Bytes chunk = make_chunk("int5", DataType::float32, 70);
    constexpr size_t free_begin = 24, free_end = 32; // first index
    for (size_t at = 0; at < header_bytes; at++) {
        if (at >= free_begin && at < free_end) continue;
        for (int value = 0; value < 256; value++) {
            if (std::byte(value) == chunk[at]) continue;
            const bool is_other_type = at == 6 && (value >= 6 && value <= 11);
            const bool is_other_rounding = at == 7 && (value == 1 || value == 2);
            // verify_checksum looks at the checksum; a chunk with `packs` may be plain.
            const bool is_flag = at == 9 && (value == 2 || value == 32 || value == 34);
            const bool is_nmse = at == 10 || (at == 11 && value <= 0x7F); // up to infinity
            // With any block size from 24 to 34, the 70 values have three scales.
            const bool is_other_block = at == 12 && value >= 24 && value <= 34;
            // The scales take as many bytes for up to 96 values.
            const bool is_other_count = at == 16 && value > 70 && value <= 96;
            // Blocks of 32 may be rotated by 32, 64, 128, 256 and 512 values.
            const bool is_rotation = (at == 60 && (value == 32 || value == 64 || value == 128)) ||
                                     (at == 61 && (value == 1 || value == 2));
            if (is_other_type || is_other_rounding || is_flag || is_other_block || is_other_count ||
                is_nmse || is_rotation)
                continue;
            check_byte_refused(chunk, at, static_cast<uint8_t>(value));
        }
    }
}

// Words are rounded up, so that an error above a budget stays above it.
static void errors_travel_as_words() {
    CHECK_EQ(nmse_word(0), 0);
    CHECK_EQ(nmse_of(nmse_word(0.5)), 0.5);
    CHECK_EQ(nmse_of(nmse_word(1)), 1.0);
    double before = 0;
    for (double nmse = 1e-40; nmse < 1e40; nmse *= 1.7) {
        const double read = nmse_of(nmse_word(nmse));
        CHECK(read >= nmse && read >= before);
        if (nmse > 1e-30 && nmse < 1e38) CHECK(read <= nmse * (1 + 1.0 / 128));
        before = read;
    }
    for (const double nmse :
         {1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
        CHECK_EQ(nmse_word(nmse), 0x7F80);

    std::byte header[header_bytes];
    write_header({}, {.sampled_nmse = nmse_word(0.25)}, header);
    const auto open = open_chunk(header);
    CHECK_OK(open);
    CHECK_EQ(nmse_of(open->chunk.sampled_nmse), 0.25);
    CHECK_EQ(sampled_nmse(header), nmse_word(0.25));
    header[10] = std::byte{0x81}; // not a number
    header[11] = std::byte{0x7F};
    check_damaged({header, header + sizeof header});
}

static void hostile_counts_are_refused() {
    for (const char *text : {"none", "int2", "minmax:bits=1,bucket=all"})
        for (const uint64_t count :
             {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 61, uint64_t{1} << 32, uint64_t{0}}) {
            Bytes chunk = make_chunk(text, DataType::float32, 70);
            put(chunk, 16, count);
            check_damaged(chunk);
        }
    Bytes wrapping = make_chunk("int4", DataType::float32, 70);
    put(wrapping, 24, ~uint64_t{0} - 69);
    check_damaged(wrapping);
    put(wrapping, 24, ~uint64_t{0} - 70);
    CHECK_OK(open_chunk(wrapping));
}

static void impossible_keys_are_refused() {
    Bytes chunk = make_chunk("minmax:bucket=all", DataType::float32, 70);
    put(chunk, 9, uint8_t{1});
    check_damaged(chunk);
    chunk = make_chunk("none", DataType::int32, 70);
    CHECK_OK(open_chunk(chunk));
    chunk = make_chunk("fp16", DataType::float32, 70);
    check_byte_refused(chunk, 6, 2); // int32
    check_byte_refused(chunk, 7, 2); // a rounding that casts do not have
    chunk = make_chunk("mxfp4", DataType::float32, 70);
    check_byte_refused(chunk, 8, 8);   // bits
    check_byte_refused(chunk, 12, 33); // block
    check_byte_refused(chunk, 9, 64);  // an unknown flag
    for (const uint8_t flag : {uint8_t{8}, uint8_t{16}})
        check_byte_refused(chunk, 9, flag); // of norm
    put(chunk, 9, uint8_t{4});              // OCP's scale
    CHECK_OK(open_chunk(chunk));
    chunk = make_chunk("lossless", DataType::float32, 70);
    check_byte_refused(chunk, 9, 0); // it always packs
    check_byte_refused(chunk, 6, 2); // int32
    for (const char *text : {"none", "topk"})
        check_byte_refused(make_chunk(text, DataType::float32, 70), 9, 32); // they never do
    chunk = make_chunk("topk", DataType::float32, 70);
    check_byte_refused(chunk, 7, 1); // stochastic
    put(chunk, 12, uint32_t{0});     // ratio
    check_damaged(chunk);
    put(chunk, 12, uint32_t{1000001});
    check_damaged(chunk);
    chunk = make_chunk("terngrad", DataType::float32, 70);
    check_byte_refused(chunk, 7, 0); // nearest
    check_byte_refused(chunk, 8, 2);
    CHECK_OK(open_chunk(chunk, parsed("terngrad:clip=7"), DataType::float32, 70));
    chunk = make_chunk("norm:round=nearest", DataType::float32, 70);
    check_byte_refused(chunk, 9, 4);
    put(chunk, 9, uint8_t{24}); // linf and exponential
    CHECK_OK(open_chunk(chunk, parsed("norm:norm=linf,levels=exponential,round=nearest"),
                        DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("norm:norm=linf,round=nearest"), DataType::float32, 70));
    chunk = make_chunk("norm:bits=2", DataType::float32, 70);
    check_byte_refused(chunk, 8, 1);
    chunk = make_chunk("nvfp4:bucket=64", DataType::float32, 70);
    check_byte_refused(chunk, 12, 65);
    check_byte_refused(chunk, 8, 8);
    chunk = make_chunk("int4", DataType::float32, 70);
    check_byte_refused(chunk, 9, 4);
    chunk = make_chunk("int4:block=1", DataType::float32, 1);
    put(chunk, 12, uint32_t{0x40000001}); // a block beyond the largest
    check_damaged(chunk);
}

static void impossible_bounds_are_refused() {
    for (const char *text : {"bound", "bound:abs=0.5,entropy=1"}) {
        Bytes chunk = make_chunk(text, DataType::float32, 70);
        CHECK_OK(open_chunk(chunk, parsed(text), DataType::float32, 70));
        CHECK(!open_chunk(chunk, parsed("bound:rel=0.002"), DataType::float32, 70));
        check_byte_refused(chunk, 9, 64); // it always packs
        check_byte_refused(chunk, 7, 1);  // stochastic
        check_byte_refused(chunk, 6, 2);  // int32
        for (const float bound : {0.0F, -1.0F, 1e37F, std::numeric_limits<float>::quiet_NaN()}) {
            put(chunk, 12, bound);
            check_damaged(chunk);
        }
    }
    for (const uint8_t flag : {uint8_t{32 + 64}, uint8_t{32 + 128}})
        check_byte_refused(make_chunk("int4:entropy=1", DataType::float32, 70), 9, flag);
}

static void noise_belongs_to_stochastic_rounding() {
    Bytes chunk = make_chunk("int4", DataType::float32, 70);
    check_byte_refused(chunk, 40, 1);
    check_byte_refused(chunk, 55, 1);
    chunk = make_chunk("int4:round=stochastic", DataType::float32, 70);
    put(chunk, 40, ~uint64_t{0});
    CHECK_OK(open_chunk(chunk));
}

// Tries every byte of every gap, and every bit of the last group that belongs to no value.
static void padding_is_zero() {
    for (const std::string &text : golden::specs()) {
        const Codec codec = parsed(text);
        if (codec.is_plain()) continue;
        for (const uint64_t count : {1U, 31U, 70U}) {
            Bytes chunk = make_chunk(text, DataType::float32, count);
            const PayloadLayout layout = payload_layout(codec, DataType::float32, count);
            for (const Gap &gap : gaps(codec, layout))
                for (size_t i = 0; i < gap.bytes; i++)
                    check_byte_refused(chunk, header_bytes + gap.start + i, 0x40);
        }
    }
    // 70 values leave 26 unused places in the last group. In every plane, the bits of these places
    // and no others are refused.
    for (const auto &[text, padding_bits] : {std::pair{"int5", 26 * 5},
                                             {"int6", 26 * 6},
                                             {"int8", 26 * 8},
                                             {"int10", 26 * 10},
                                             {"int12:block=16", 26 * 12},
                                             {"minmax:bits=7", 26 * 7},
                                             {"mxfp6e2m3", 26 * 6}}) {
        const Bytes chunk = make_chunk(text, DataType::float32, 70);
        const PayloadLayout layout = layout_of(text, 70);
        size_t refused = 0, gap_bits = 0;
        for (const Gap &gap : gaps(parsed(text), layout)) gap_bits += 8 * gap.bytes;
        for (size_t bit = 0; bit < 8 * layout.scales; bit++) {
            Bytes copy = chunk;
            copy[header_bytes + bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
            refused += open_chunk(copy) ? 0 : 1;
        }
        CHECK_EQ(refused, static_cast<size_t>(padding_bits) + gap_bits);
    }
}

static void strange_scales_are_refused() {
    for (const int scale : {0x0000, 0x0001, 0x8001, 0x7FC0, 0x3F80, 0xBF80, 0x7BFF, 0xFBFF})
        CHECK(accepts("int8", static_cast<uint16_t>(scale)));
    for (const int scale : {0x8000, 0x7F80, 0xFF80, 0xFFC0, 0x7FC1, 0x7F81, 0x7C00, 0xFC00})
        CHECK(!accepts("int8", static_cast<uint16_t>(scale)));
    CHECK(accepts("int2", uint16_t{0x7EFF}) && !accepts("int2", uint16_t{0x7F00}));
    CHECK(accepts("int10", uint16_t{0x7AFF}) && !accepts("int10", uint16_t{0x7B00}));
    CHECK(accepts("int12", uint16_t{0x79FF}) && !accepts("int12", uint16_t{0x7A00}));

    const auto accepts_pair = [&](uint32_t minimum, uint32_t unit) {
        return accepts("minmax:bits=4", minimum, unit);
    };
    CHECK(accepts_pair(nan_bits, nan_bits) && accepts_pair(zero, zero) && accepts_pair(one, one) &&
          accepts_pair(minus | one, 0x00800000));
    CHECK(accepts_pair(1, most));
    for (const uint32_t unit :
         {nan_bits, infinity, minus, minus | one, uint32_t{1}, uint32_t{0x007FFFFF}, nan_bits | 1})
        CHECK(!accepts_pair(one, unit));
    for (const uint32_t minimum :
         {nan_bits, infinity, minus | infinity, minus, nan_bits | 1, nan_bits | minus})
        CHECK(!accepts_pair(minimum, one));
    CHECK(!accepts_pair(nan_bits | 1, nan_bits) && !accepts_pair(nan_bits, nan_bits | 1));
}

static void another_chunk_than_expected_is_refused() {
    const Bytes chunk = make_chunk("int4", DataType::float32, 70);
    CHECK_OK(open_chunk(chunk, parsed("int4:min=4K"), DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("int5"), DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("int4:block=64"), DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("int4:rotate=64"), DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("int4:round=stochastic"), DataType::float32, 70));
    CHECK(!open_chunk(chunk, parsed("int4"), DataType::float64, 70));
    const auto count = open_chunk(chunk, parsed("int4"), DataType::float32, 71);
    CHECK(!count);
    CHECK_EQ(count.error().expected, 71);
    CHECK_EQ(count.error().got, 70);
}

static void checksums_see_every_bit() {
    Bytes chunk = make_chunk("int5:round=stochastic", DataType::float32, 70);
    CHECK(!verify_checksum(chunk));
    add_checksum(chunk);
    CHECK_OK(verify_checksum(chunk));
    CHECK_OK(open_chunk(chunk));
    for (size_t bit = 0; bit < 8 * chunk.size(); bit++) {
        Bytes copy = chunk;
        copy[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
        CHECK(!verify_checksum(copy));
    }
    for (size_t length = 0; length < chunk.size(); length++)
        CHECK(!verify_checksum(std::span(chunk).first(length)));
    Bytes unchecked = make_chunk("none", DataType::float32, 3);
    put(unchecked, 56, uint32_t{1});
    check_damaged(unchecked); // a checksum without its flag
    add_checksum(chunk);      // a second checksum changes nothing
    CHECK_OK(verify_checksum(chunk));
}

static void checksums_are_castagnoli() {
    const char digits[] = "123456789";
    const auto bytes = std::as_bytes(std::span(digits, 9));
    CHECK_EQ(crc32c(bytes), 0xE3069283U); // the check value that WIRE.md names
    for (size_t cut = 0; cut <= bytes.size(); cut++)
        CHECK_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), 0xE3069283U);
    const Bytes zeros(32, std::byte{0}), ones(32, std::byte{0xFF});
    CHECK_EQ(crc32c(zeros), 0x8A9136AAU); // RFC 3720, B.4
    CHECK_EQ(crc32c(ones), 0x62A8AB43U);
    CHECK_EQ(crc32c({}), 0U);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(sections_lie_where_the_page_says),
        QTEST(large_counts_are_exact),
        QTEST(what_is_written_is_read),
        QTEST(every_length_but_one_is_refused),
        QTEST(damaged_headers_are_refused),
        QTEST(errors_travel_as_words),
        QTEST(hostile_counts_are_refused),
        QTEST(impossible_keys_are_refused),
        QTEST(impossible_bounds_are_refused),
        QTEST(noise_belongs_to_stochastic_rounding),
        QTEST(padding_is_zero),
        QTEST(strange_scales_are_refused),
        QTEST(another_chunk_than_expected_is_refused),
        QTEST(checksums_see_every_bit),
        QTEST(checksums_are_castagnoli),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
