// Tests the golden chunks of the wire format, which every tier writes and reads: hashes of chunks
// for every codec, type, rounding, bucket and input, and small chunks in full. `golden_chunks_test
// --print hashes|bytes` prints what tests/data/chunk_hashes.txt and chunk_bytes.txt hold; lines are
// added there, never changed.
#include "golden_cases.hpp"
#include "codec/codec_names.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/qtest.hpp"
#include "tested_kernels.hpp"
#include "tests/kit/spec_lists.hpp"
#include "tests/kit/sample.hpp"

#include <cstdio>
#include <fstream>

using namespace qccl;

namespace {

// FNV-1a over 64 bits.
struct Hash {
    uint64_t value = 0xCBF29CE484222325ULL;
    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes)
            value = (value ^ std::to_integer<uint64_t>(b)) * 0x100000001B3ULL;
    }
};

std::vector<DataType> inputs_of(DataType type) {
    if (accumulator_of(type) == type) return {type};
    return {type, accumulator_of(type)};
}

// Returns one line: hashes over the chunks of all kinds and counts, and over the values that they
// decode to.
std::string hash_line(const Kernels &kernels, const std::string &text, DataType type, DataType in) {
    const Codec codec = *parse_codec(text);
    Hash chunks, values;
    for (const golden::Kind kind : golden::kinds)
        for (const uint64_t count : golden::counts) {
            const auto input = golden::make_input(in, kind, count);
            const auto bytes = golden::encode_chunk(kernels, codec, golden::chunk_info(type, count),
                                                    in, input.data());
            const auto open = open_chunk(bytes, codec, type, count);
            CHECK_OK(open);
            chunks.add(bytes);
            values.add(golden::decode_chunk(kernels, *open, type));
        }
    char line[160];
    snprintf(line, sizeof line, "%s %s %s %016llx %016llx", text.c_str(), name(type), name(in),
             static_cast<unsigned long long>(chunks.value),
             static_cast<unsigned long long>(values.value));
    return line;
}

// Lines that are not chosen, or whose codec the tier does not know, are empty.
std::vector<std::string> hash_lines(const TestedKernels &tested) {
    std::vector<std::string> lines;
    const auto add = [&](const std::string &text, DataType type, DataType in) {
        const bool is_matched = is_chosen(lines.size()) && tested.knows(*parse_codec(text));
        lines.push_back(is_matched ? hash_line(*tested.kernels, text, type, in) : "");
    };
    for (const std::string &text : golden::specs())
        for (const DataType type : golden::float_types)
            for (const DataType in : inputs_of(type)) add(text, type, in);
    for (const TypeInfo &row : type_table)
        if (!row.is_float) add("none", row.type, row.type);
    return lines;
}

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte b : bytes) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
        text += digits;
    }
    return text;
}

// Returns lines of spec, kind and chunk, for fp32 values. Their odd count fills two groups and a
// part of one.
std::vector<std::string> byte_lines(const TestedKernels &tested) {
    constexpr uint64_t count = 70;
    constexpr DataType type = DataType::float32;
    std::vector<std::string> lines;
    for (const std::string &text : golden::specs())
        for (const auto &[kind, kind_name] :
             {std::pair{golden::Kind::spread, "spread"}, {golden::Kind::ties, "ties"}}) {
            const Codec codec = *parse_codec(text);
            lines.emplace_back();
            if (!tested.knows(codec)) continue;
            const auto input = golden::make_input(type, kind, count);
            const auto bytes = golden::encode_chunk(
                *tested.kernels, codec, golden::chunk_info(type, count), type, input.data());
            lines.back() = text + " " + kind_name + " " + hex(bytes);
        }
    return lines;
}

// Every stored line must be the computed one at its place, and every computed line must be stored.
void check_against(const char *file, const std::vector<std::string> &lines) {
    std::ifstream stored(std::string(QCCL_TEST_DATA "/") + file);
    CHECK(stored.is_open());
    std::string line;
    size_t at = 0;
    while (std::getline(stored, line)) {
        CHECK(at < lines.size());
        if (!lines[at].empty()) CHECK_EQ(lines[at], line);
        at++;
    }
    CHECK_EQ(at, lines.size());
}

} // namespace

static void every_codec_has_goldens() {
    const std::vector<std::string> specs = golden::specs();
    for (const std::string_view word : codec_words)
        if (!qtest::has_spec_of(specs, word))
            throw qtest::Failure{std::string(word) + " has no golden chunks"};
}

static void hashes_are_golden() {
    CHECK(!tested_kernels().empty());
    for (const TestedKernels &tier : tested_kernels())
        check_against("chunk_hashes.txt", hash_lines(tier));
}
static void bytes_are_golden() {
    for (const TestedKernels &tier : tested_kernels())
        check_against("chunk_bytes.txt", byte_lines(tier));
}

int main(int argc, char **argv) {
    if (argc == 3 && std::string(argv[1]) == "--print") {
        const bool is_bytes = std::string(argv[2]) == "bytes";
        const TestedKernels scalar{"scalar", &scalar_kernels(), [](const Codec &) { return true; }};
        for (const std::string &line : is_bytes ? byte_lines(scalar) : hash_lines(scalar))
            puts(line.c_str());
        return 0;
    }
    const CMUnitTest tests[] = {QTEST(every_codec_has_goldens), QTEST(hashes_are_golden),
                                QTEST(bytes_are_golden)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
