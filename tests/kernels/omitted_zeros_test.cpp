// Tests packed segments that leave their zeros out: when they do, on every tier, and what readers
// refuse of them.
#include "kernel_operands.hpp"
#include "packing_calls.hpp"
#include "tests/kit/qtest.hpp"

#include "kernels/codec/packing.hpp"

#include <algorithm>
#include <numeric>
#include <random>

using namespace qccl;
using namespace operands;
using namespace packing;

namespace {

constexpr DataType types[] = {DataType::float16, DataType::bfloat16, DataType::float32,
                              DataType::float64};

// How many values are +0, -0, and the smallest subnormal number, which has symbol 0, too. The
// others are near 1.
struct Mixture {
    uint64_t count, zeros, negative_zeros, subnormals;
};

std::vector<std::byte> mixed_values(const Mixture &mixture, DataType type, bool is_sorted) {
    std::mt19937 random(19);
    std::vector<uint64_t> place(mixture.count);
    std::iota(place.begin(), place.end(), 0);
    if (!is_sorted) std::ranges::shuffle(place, random);
    const size_t bytes = type_bytes(type);
    const golden::Fields fields = golden::fields_of(type);
    std::vector<std::byte> values(mixture.count * bytes);
    for (uint64_t i = 0; i < mixture.count; i++) {
        uint64_t bits =
            golden::pattern_of(fields, golden::Kind::spread, golden::splitmix64(random()), i);
        if (i < mixture.zeros)
            bits = 0;
        else if (i < mixture.zeros + mixture.negative_zeros)
            bits = fields.sign();
        else if (i < mixture.zeros + mixture.negative_zeros + mixture.subnormals)
            bits = 1;
        std::memcpy(values.data() + place[i] * bytes, &bits, bytes);
    }
    return values;
}

// The index lies first.
bool first_segment_omits_zeros(std::span<const std::byte> chunk) {
    return (std::to_integer<unsigned>(chunk[header_bytes + 3]) & 0x80) != 0;
}

// A packed chunk of `lossless` values of fp32, of one segment that omits zeros.
struct SparseChunk {
    static constexpr Mixture mixture{8000, 4000, 0, 0};
    static constexpr size_t head = header_bytes + 4, raw = head + 4,
                            stream = raw + 3 * (mixture.count - mixture.zeros);
    Codec codec = *parse_codec("lossless");
    std::vector<std::byte> unpacked_bytes, packed_bytes;

    SparseChunk()
        : unpacked_bytes(unpacked_chunk(codec, DataType::float32, mixture.count,
                                        mixed_values(mixture, DataType::float32, false).data())),
          packed_bytes(
              packed(scalar_kernels(), codec, DataType::float32, mixture.count, unpacked_bytes)) {}

    bool is_refused(const std::vector<std::byte> &chunk) const {
        std::vector<std::byte> back;
        return !unpacked(scalar_kernels(), codec, DataType::float32, mixture.count, chunk, back);
    }
    bool is_refused_with(size_t at, unsigned flips) const {
        std::vector<std::byte> damaged = packed_bytes;
        damaged[at] ^= static_cast<std::byte>(flips);
        return is_refused(damaged);
    }
};

} // namespace

static void zeros_are_left_out_where_they_are_many() {
    const struct {
        Mixture mixture;
        bool omits;
    } cases[] = {
        {{70003, 70003, 0, 0}, true},  {{70003, 70002, 0, 0}, true}, {{131073, 60000, 0, 1}, true},
        {{65536, 4096, 0, 0}, true},   {{65536, 4095, 0, 0}, false}, {{5001, 313, 0, 0}, true},
        {{5001, 312, 0, 0}, false},    {{5001, 2000, 250, 0}, true}, {{5001, 2000, 251, 0}, false},
        {{5001, 2000, 100, 99}, true}, {{5001, 4500, 0, 501}, true}, {{2003, 1000, 1, 1}, true},
    };
    for (const auto &c : cases)
        for (const DataType type : types)
            for (const bool is_sorted : {false, true}) {
                const Codec codec = *parse_codec("lossless");
                const auto unpacked_bytes = unpacked_chunk(
                    codec, type, c.mixture.count, mixed_values(c.mixture, type, is_sorted).data());
                check_tiers("lossless", type, c.mixture.count, unpacked_bytes, "with zeros");
                if (is_sorted && c.mixture.count > segment_symbols) continue;
                const auto chunk =
                    packed(scalar_kernels(), codec, type, c.mixture.count, unpacked_bytes);
                CHECK_EQ(first_segment_omits_zeros(chunk), c.omits);
            }
}

// Raw bits of zeros do not travel: 24 of 32, 8 of 16, 48 of 64.
static void zeros_take_no_raw_bits() {
    constexpr uint64_t count = 65536;
    for (const DataType type : types) {
        const Codec codec = *parse_codec("lossless");
        const auto size_with = [&](uint64_t zeros) {
            const auto values = mixed_values({count, zeros, 0, 0}, type, false);
            return packed(scalar_kernels(), codec, type, count,
                          unpacked_chunk(codec, type, count, values.data()))
                .size();
        };
        const size_t symbols = type == DataType::float64 ? 2 : 1;
        const size_t raw = (type_bytes(type) - symbols) * (count / 4);
        CHECK(size_with(count / 4) + raw < size_with(0) + 8 * symbols * (count / 16));
        CHECK(size_with(count) < header_bytes + 64);
    }
}

// Where all 256 symbols are those of other values, none is left for the zeros.
static void zeros_need_a_symbol() {
    constexpr uint64_t count = 8000;
    std::vector<uint16_t> values(count);
    const auto size_without = [&](uint16_t left_out) {
        std::mt19937 random(3);
        for (uint64_t i = 0; i < count; i++) {
            const auto symbol = static_cast<uint16_t>(i % 512 < 256 ? i % 256 : 0);
            const bool is_other = i % 512 < 256 && symbol != left_out && (symbol != 0 || i < 512);
            values[i] = is_other ? static_cast<uint16_t>(symbol << 7 | 1) : uint16_t{0};
        }
        const Codec codec = *parse_codec("lossless");
        const auto unpacked_bytes = unpacked_chunk(
            codec, DataType::bfloat16, count, reinterpret_cast<const std::byte *>(values.data()));
        check_tiers("lossless", DataType::bfloat16, count, unpacked_bytes, "all symbols");
        return packed(scalar_kernels(), codec, DataType::bfloat16, count, unpacked_bytes);
    };
    CHECK(!first_segment_omits_zeros(size_without(256)));
    CHECK(first_segment_omits_zeros(size_without(255)));
    CHECK(first_segment_omits_zeros(size_without(7)));
}

static void what_no_writer_writes_is_refused() {
    const SparseChunk chunk;
    CHECK(first_segment_omits_zeros(chunk.packed_bytes));
    CHECK(!chunk.is_refused(chunk.packed_bytes));
    CHECK(chunk.is_refused_with(header_bytes + 3, 0x80)); // as if nothing were left out
    for (const unsigned flip : {1U, 2U, 0x10U, 0x80U}) {
        CHECK(chunk.is_refused_with(chunk.head, flip));     // another number of other values
        CHECK(chunk.is_refused_with(chunk.head + 1, flip)); // and one above all values
        CHECK(chunk.is_refused_with(chunk.head + 2, flip));
        CHECK(chunk.is_refused_with(chunk.head + 3, flip)); // another symbol
    }
    CHECK(!chunk.is_refused_with(chunk.raw, 1)); // bits of a value
    CHECK(chunk.is_refused_with(chunk.stream, 1));
    // Codes have no zeros to leave out.
    const Codec codec = *parse_codec("minmax:bucket=all,entropy=1");
    constexpr uint64_t count = SparseChunk::mixture.count;
    auto codes =
        packed(scalar_kernels(), codec, DataType::float32, count,
               unpacked_chunk(codec, DataType::float32, count,
                              mixed_values(SparseChunk::mixture, DataType::float32, false).data()));
    std::vector<std::byte> back;
    CHECK_OK(unpacked(scalar_kernels(), codec, DataType::float32, count, codes, back));
    codes[header_bytes + 3] |= std::byte{0x80};
    CHECK(!unpacked(scalar_kernels(), codec, DataType::float32, count, codes, back));
}

// Any change is refused, or harmless: nobody reads or writes beside the chunk.
static void damage_stays_inside_the_chunk() {
    const SparseChunk chunk;
    Values random(23);
    for (size_t length = 0; length < chunk.packed_bytes.size(); length += 211)
        CHECK(chunk.is_refused({chunk.packed_bytes.begin(),
                                chunk.packed_bytes.begin() + static_cast<ptrdiff_t>(length)}));
    for (int round = 0; round < 400; round++) {
        std::vector<std::byte> damaged = chunk.packed_bytes;
        const bool in_head = random.pick(2) == 0;
        const size_t at = in_head ? header_bytes + random.pick(8)
                                  : header_bytes + random.pick(damaged.size() - header_bytes);
        damaged[at] ^= static_cast<std::byte>(1U << random.pick(8));
        check_harmless(chunk.codec, DataType::float32, SparseChunk::mixture.count, damaged,
                       chunk.unpacked_bytes.size());
    }
}

int main() {
    const CMUnitTest tests[] = {QTEST(zeros_are_left_out_where_they_are_many),
                                QTEST(zeros_take_no_raw_bits), QTEST(zeros_need_a_symbol),
                                QTEST(what_no_writer_writes_is_refused),
                                QTEST(damage_stays_inside_the_chunk)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
