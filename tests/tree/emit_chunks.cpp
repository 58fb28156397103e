// Writes chunks to standard output for wire_decoder_test.py, with the values that were encoded and
// those that the reference decodes: records of (input type and clip, input, chunk, decoded values),
// each part after its length.
#include "tests/kernels/golden_cases.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <cstdio>

using namespace qccl;

static void write_part(std::span<const std::byte> bytes) {
    const uint64_t length = bytes.size();
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(bytes.data(), 1, bytes.size(), stdout);
}

static bool emit(const Codec &codec, DataType type, DataType in, golden::Kind kind,
                 uint64_t count) {
    const auto input = golden::make_input(in, kind, count);
    const auto bytes = golden::encode_chunk(scalar_kernels(), codec,
                                            golden::chunk_info(type, count), in, input.data());
    const auto open = open_chunk(bytes);
    if (!open) {
        fprintf(stderr, "%s: %s\n", spec(codec).c_str(), open.error().text);
        return false;
    }
    const uint32_t numbers[] = {static_cast<uint32_t>(in), codec.clip};
    write_part(std::as_bytes(std::span(numbers)));
    write_part(input);
    write_part(bytes);
    write_part(golden::decode_chunk(scalar_kernels(), *open, type));
    return true;
}

int main() {
    bool fine = true;
    for (const std::string &text : golden::specs()) {
        const auto codec = parse_codec(text);
        if (!codec) {
            fprintf(stderr, "%s: %s\n", text.c_str(), codec.error().text);
            return 1;
        }
        for (const DataType type : golden::float_types)
            for (const golden::Kind kind : golden::kinds)
                for (const uint64_t count : golden::counts) {
                    fine = emit(*codec, type, type, kind, count) && fine;
                    if (accumulator_of(type) != type && count > 64)
                        fine = emit(*codec, type, accumulator_of(type), kind, count) && fine;
                }
    }
    // topk needs several pages, the last of them short.
    for (const golden::Kind kind :
         {golden::Kind::spread, golden::Kind::ties, golden::Kind::constant})
        for (const char *text : {"topk", "topk:ratio=0.4"})
            fine = emit(*parse_codec(text), DataType::float16, DataType::float32, kind, 140001) &&
                   fine;
    return fine ? 0 : 1;
}
