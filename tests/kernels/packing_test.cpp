// Tests packed chunks: every tier packs to the reference's bytes and restores each unpacked chunk
// byte for byte, for every codec that packs; sizes come close to the entropy of the symbols;
// damaged chunks are refused or harmless. `packing_test --print` prints what
// tests/data/packed_hashes.txt holds; lines are added there, never changed.
#include "golden_cases.hpp"
#include "kernel_operands.hpp"
#include "packing_calls.hpp"
#include "tests/kit/qtest.hpp"
#include "tests/kit/sample.hpp"

#include "kernels/codec/frequencies.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <cmath>
#include <fstream>
#include <memory>
#include <set>
#include <string>

using namespace qccl;
using namespace operands;
using namespace packing;

namespace {

const std::string specs[] = {"lossless",
                             "fp16:entropy=1",
                             "bf16:entropy=1",
                             "fp8e4m3:entropy=1",
                             "fp8e5m2:entropy=1",
                             "fp8e4m3:block=128,entropy=1",
                             "fp8e5m2:block=32,entropy=1",
                             "int12:entropy=1",
                             "int10:block=64,entropy=1",
                             "int8:entropy=1",
                             "int6:entropy=1",
                             "int5:block=7,entropy=1",
                             "int4:entropy=1",
                             "int3:entropy=1",
                             "int2:entropy=1",
                             "minmax:bucket=all,entropy=1",
                             "minmax:bits=7,entropy=1",
                             "minmax:bits=3,bucket=100,skip_incomplete=1,entropy=1",
                             "mxfp8e4m3:entropy=1",
                             "mxfp6e2m3:entropy=1",
                             "mxfp4:entropy=1",
                             "nvfp4:entropy=1",
                             "onebit:entropy=1",
                             "terngrad:bucket=96,entropy=1",
                             "norm:bits=2,entropy=1",
                             "tbq:threshold=0.5",
                             "bound",
                             "bound:rel=0.1",
                             "bound:abs=0.01",
                             "bound:abs=1e-36",
                             "bound:rel=0.01,entropy=1",
                             "bound:rel=0.0001,entropy=1",
                             "bound:abs=0.01,entropy=1",
                             "bound:pw=0.001",
                             "bound:pw=0.1,entropy=1",
                             "bound:pw=1e-6",
                             "bound:pw=0.5"};

// A chunk of fp32 values of a normal distribution.
struct Gaussian {
    Codec codec;
    uint64_t count;
    std::vector<std::byte> unpacked_bytes, packed_bytes;

    Gaussian(const std::string &text, uint64_t values) : codec(*parse_codec(text)), count(values) {
        Values random(9);
        std::vector<float> input(count);
        for (size_t i = 0; i < count; i++)
            input[i] = static_cast<float>(random.next(Pattern::gauss, i));
        unpacked_bytes = unpacked_chunk(codec, DataType::float32, count,
                                        reinterpret_cast<const std::byte *>(input.data()));
        packed_bytes = packed(scalar_kernels(), codec, DataType::float32, count, unpacked_bytes);
    }
    double bits() const {
        return 8 * static_cast<double>(packed_bytes.size()) / static_cast<double>(count);
    }
    bool is_refused(std::span<const std::byte> chunk) const {
        std::vector<std::byte> back;
        return !unpacked(scalar_kernels(), codec, DataType::float32, count, chunk, back);
    }
};

double entropy_of(std::span<const std::byte> symbols) {
    double counts[256] = {}, bits = 0;
    for (const std::byte symbol : symbols) counts[std::to_integer<size_t>(symbol)]++;
    const auto all = static_cast<double>(symbols.size());
    for (const double count : counts)
        if (count != 0) bits -= count / all * std::log2(count / all);
    return bits;
}

} // namespace

static void every_tier_packs_and_restores() {
    Values values(5);
    size_t at = 0;
    std::set<CodecId> seen;
    for (const std::string &text : specs) {
        const Codec codec = *parse_codec(text);
        seen.insert(codec.id);
        for (const DataType type : golden::float_types)
            for (const Pattern pattern : patterns)
                for (const size_t count : {0, 1, 31, 1001, 2048, 70003, 131073}) {
                    if (!is_chosen(at++) || (count > 3000 && values.pick(9) != 0)) continue;
                    Buffer src(count * type_bytes(type));
                    fill(values, pattern, type, src.data(), count);
                    check_tiers(text, type, count, unpacked_chunk(codec, type, count, src.data()),
                                "pattern " + std::to_string(static_cast<int>(pattern)));
                }
    }
    for (const CodecRow &row : codec_table) // none is forgotten
        CHECK_EQ(row.usual.packs || row.takes(SpecKey::entropy), seen.contains(row.id));
}

static void nothing_and_noise_stay_unpacked() {
    for (const std::string &text : specs) {
        const Codec codec = *parse_codec(text);
        const auto unpacked_bytes = unpacked_chunk(codec, DataType::float32, 0, nullptr);
        CHECK(packed(scalar_kernels(), codec, DataType::float32, 0, unpacked_bytes) ==
              unpacked_bytes);
    }
    constexpr uint64_t count = 100000;
    Values random(11);
    Buffer noise(count * sizeof(float));
    for (size_t i = 0; i < count; i++) store_bits(noise.data(), i, random.word());
    const Codec codec = *parse_codec("lossless");
    const auto unpacked_bytes = unpacked_chunk(codec, DataType::float32, count, noise.data());
    CHECK(packed(scalar_kernels(), codec, DataType::float32, count, unpacked_bytes) ==
          unpacked_bytes);
}

static void constants_take_almost_nothing() {
    constexpr uint64_t count = 200000;
    const std::vector<float> values(count, 1.5F);
    for (const char *text : {"fp8e4m3:entropy=1", "int4:entropy=1", "int5:block=4096,entropy=1",
                             "minmax:bucket=all,entropy=1"}) {
        const Codec codec = *parse_codec(text);
        const auto unpacked_bytes = unpacked_chunk(
            codec, DataType::float32, count, reinterpret_cast<const std::byte *>(values.data()));
        const PayloadLayout layout = payload_layout(codec, DataType::float32, count);
        const size_t scales = codec.is_plain() ? 0 : layout.bytes - layout.scales;
        const auto chunk =
            packed(scalar_kernels(), codec, DataType::float32, count, unpacked_bytes);
        CHECK(chunk.size() < header_bytes + scales + 200);
    }
}

// Payloads take at most 2 % more than the entropy of their codes, plus what travels as it is.
static void sizes_are_near_the_entropy() {
    for (const char *text : {"minmax:bucket=all,entropy=1", "int8:block=4096,entropy=1",
                             "fp8e5m2:entropy=1", "norm:bucket=4096,entropy=1"}) {
        const Gaussian chunk(text, 200000);
        const PayloadLayout layout = payload_layout(chunk.codec, DataType::float32, chunk.count);
        const std::span<const std::byte> payload(chunk.unpacked_bytes.data() + header_bytes,
                                                 layout.bytes);
        const double entropy = entropy_of(payload.first(chunk.count)),
                     others = 8 * static_cast<double>(layout.bytes - chunk.count) /
                              static_cast<double>(chunk.count);
        CHECK(chunk.bits() < 1.02 * entropy + others);
        CHECK(chunk.bits() > 0.98 * entropy);
    }
    CHECK(Gaussian("lossless", 200000).bits() < 27);
    CHECK(Gaussian("bf16:entropy=1", 200000).bits() < 11);
}

static void frequencies_add_up() {
    Values random(13);
    for (int round = 0; round < 2000; round++) {
        SymbolCounts counts{};
        size_t total = 0;
        const size_t symbols = 2 + random.pick(255);
        for (size_t s = 0; s < symbols; s++) {
            counts[s] = round % 3 == 0 ? 1 : random.pick(6) == 0 ? random.word() % 9000 : 1;
            total += counts[s];
        }
        uint32_t sum = 0;
        const Frequencies frequencies = rounded_frequencies(counts, total);
        for (size_t s = 0; s < counts.size(); s++) {
            CHECK_EQ(frequencies[s] != 0, counts[s] != 0);
            CHECK(frequencies[s] < probability_sum);
            sum += frequencies[s];
        }
        CHECK_EQ(sum, probability_sum);
    }
}

// A change in a coded part is refused, or gives a chunk of the right size: nobody reads or writes
// beside it. Guards stand behind both.
static void damaged_chunks_are_refused_or_harmless() {
    Values random(17);
    for (const char *text : {"lossless", "int8:block=4096,entropy=1", "int3:block=4096,entropy=1",
                             "int12:block=4096,entropy=1", "terngrad:entropy=1", "bound:abs=0.01",
                             "bound:rel=0.01", "bound:pw=0.01", "bound:pw=0.2,entropy=1",
                             "bound:rel=0.01,entropy=1", "minmax:bits=6,bucket=all,entropy=1"}) {
        const Gaussian chunk(text, 8000);
        const size_t bytes = chunk.packed_bytes.size();
        CHECK(bytes < chunk.unpacked_bytes.size());
        for (const size_t length : {size_t{0}, size_t{63}, size_t{64}, size_t{65}, bytes - 1})
            CHECK(chunk.is_refused(std::span(chunk.packed_bytes).first(length)));
        std::vector<std::byte> longer = chunk.packed_bytes;
        longer.push_back(std::byte{0});
        CHECK(chunk.is_refused(longer));
        for (int round = 0; round < 80; round++) {
            std::vector<std::byte> damaged = chunk.packed_bytes;
            damaged[header_bytes + random.pick(bytes - header_bytes)] ^=
                static_cast<std::byte>(1U << random.pick(8));
            check_harmless(chunk.codec, DataType::float32, chunk.count, damaged,
                           chunk.unpacked_bytes.size());
        }
    }
}

// The fields of the index, of a stream's head, of its frequencies and states.
static void fields_that_no_encoder_writes_are_refused() {
    const Gaussian chunk("minmax:bucket=all,entropy=1", 20000);
    CHECK(!chunk.is_refused(chunk.packed_bytes));
    const auto is_refused_with = [&](size_t at, unsigned value) {
        std::vector<std::byte> damaged = chunk.packed_bytes;
        damaged[at] = static_cast<std::byte>(value);
        return chunk.is_refused(damaged);
    };
    const auto at = [&](size_t i) { return std::to_integer<unsigned>(chunk.packed_bytes[i]); };
    // The index has one number, and minimum and unit travel as they are.
    constexpr size_t index = header_bytes, head = index + 4 + 8, set = head + 4, table = set + 32;
    CHECK_EQ(at(head), 2U);
    for (const unsigned mode : {0, 1, 3, 255}) CHECK(is_refused_with(head, mode));
    CHECK(is_refused_with(index, at(index) - 4));
    CHECK(is_refused_with(index, at(index) + 4));
    CHECK(is_refused_with(head + 1, 1));
    CHECK(is_refused_with(head + 2, at(head + 2) - 2));
    CHECK(is_refused_with(head + 2, at(head + 2) + 2));
    CHECK(is_refused_with(set + 16, at(set + 16) ^ 1)); // a symbol more or less
    CHECK(is_refused_with(table, at(table) ^ 1));       // a frequency more or less
    const size_t state = chunk.packed_bytes.size() - 4;
    CHECK(is_refused_with(state + 3, at(state + 3) | 0x80));
    std::vector<std::byte> low = chunk.packed_bytes;
    std::fill_n(low.begin() + static_cast<ptrdiff_t>(state), 4, std::byte{0});
    CHECK(chunk.is_refused(low));
}

static void other_chunks_are_refused() {
    const Gaussian chunk("int8:block=4096,entropy=1", 8000);
    std::vector<std::byte> back;
    const auto is_refused = [&](const char *text, DataType type, uint64_t count) {
        return !unpacked(scalar_kernels(), *parse_codec(text), type, count, chunk.packed_bytes,
                         back);
    };
    CHECK(!is_refused("int8:block=4096,entropy=1", DataType::float32, 8000));
    CHECK(is_refused("int8:block=4096", DataType::float32, 8000));
    CHECK(is_refused("int6:block=4096,entropy=1", DataType::float32, 8000));
    CHECK(is_refused("int8:block=4096,entropy=1", DataType::float16, 8000));
    CHECK(is_refused("int8:block=4096,entropy=1", DataType::float32, 8001));
    // What is packed is not opened as if it were not.
    CHECK(!open_chunk(chunk.packed_bytes, chunk.codec, DataType::float32, 8000));
    CHECK(open_chunk(chunk.unpacked_bytes, chunk.codec, DataType::float32, 8000).is_ok());
}

static void checksums_are_of_what_travels() {
    Gaussian chunk("int8:block=4096,entropy=1", 8000);
    std::vector<std::byte> with_checksum = chunk.packed_bytes, back;
    add_checksum(with_checksum);
    CHECK_OK(verify_checksum(with_checksum));
    CHECK_OK(unpacked(scalar_kernels(), chunk.codec, DataType::float32, 8000, with_checksum, back));
    CHECK(back == chunk.unpacked_bytes);
}

// ---- Goldens

namespace {

std::string hash_line(const Kernels &kernels, const std::string &text, DataType type,
                      std::span<const golden::Kind> kinds, const char *remark) {
    uint64_t hash = 0xCBF29CE484222325ULL; // FNV-1a over 64 bits
    const Codec codec = *parse_codec(text);
    for (const golden::Kind kind : kinds)
        for (const uint64_t count : {33, 1001, 2048, 70001}) {
            const auto input = golden::make_input(type, kind, count);
            for (const std::byte b :
                 packed(kernels, codec, type, count,
                        golden::encode_chunk(kernels, codec, golden::chunk_info(type, count), type,
                                             input.data())))
                hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001B3ULL;
        }
    char line[160];
    snprintf(line, sizeof line, "%s %s%s %016llx", text.c_str(), name(type), remark,
             static_cast<unsigned long long>(hash));
    return line;
}

std::vector<std::string> hash_lines(const Kernels &kernels) {
    constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float64};
    constexpr golden::Kind sparse[] = {golden::Kind::sparse};
    std::vector<std::string> lines;
    for (const std::string &text : specs)
        for (const DataType type : types)
            lines.push_back(hash_line(kernels, text, type, golden::kinds, ""));
    for (const char *text : {"lossless", "fp16:entropy=1", "bf16:entropy=1"})
        for (const DataType type : types)
            lines.push_back(hash_line(kernels, text, type, sparse, " sparse"));
    return lines;
}

} // namespace

static void golden_chunks_are_what_they_were() {
    std::ifstream stored(QCCL_TEST_DATA "/packed_hashes.txt");
    CHECK(stored.is_open());
    std::vector<std::string> wanted;
    for (std::string line; std::getline(stored, line);) wanted.push_back(line);
    const TestedKernels &best = tested_kernels().back();
    const auto lines = hash_lines(*best.kernels);
    CHECK_EQ(lines.size(), wanted.size());
    for (size_t i = 0; i < lines.size(); i++) CHECK_EQ(lines[i], wanted[i]);
}

int main(int argc, char **argv) {
    if (argc > 1 && std::string(argv[1]) == "--print") {
        for (const std::string &line : hash_lines(scalar_kernels())) puts(line.c_str());
        return 0;
    }
    const CMUnitTest tests[] = {QTEST(every_tier_packs_and_restores),
                                QTEST(nothing_and_noise_stay_unpacked),
                                QTEST(constants_take_almost_nothing),
                                QTEST(sizes_are_near_the_entropy),
                                QTEST(frequencies_add_up),
                                QTEST(damaged_chunks_are_refused_or_harmless),
                                QTEST(fields_that_no_encoder_writes_are_refused),
                                QTEST(other_chunks_are_refused),
                                QTEST(checksums_are_of_what_travels),
                                QTEST(golden_chunks_are_what_they_were)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
