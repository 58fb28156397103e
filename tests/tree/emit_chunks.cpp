// Writes a pair sample of the golden chunks, or all of them with QTEST_FULL=1, to standard output
// for wire_decoder_test.py, with the values that were encoded and those that the reference decodes:
// records of (input type and clip, input, chunk, decoded values), each part after its length.
#include "tests/kernels/golden_cases.hpp"
#include "tests/kernels/packing_calls.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/sample.hpp"

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
    write_part(codec.packs ? packing::packed(scalar_kernels(), codec, type, count, bytes) : bytes);
    write_part(golden::decode_chunk(scalar_kernels(), *open, type));
    return true;
}

// Calls visit(codec, type, input type, kind, count) for every chunk of the table.
template <class Visitor> static void each_chunk(Visitor visit) {
    for (const std::string &text : golden::specs()) {
        const Codec codec = *parse_codec(text);
        for (const DataType type : golden::float_types)
            for (const golden::Kind kind : golden::kinds)
                for (const uint64_t count : golden::counts) {
                    visit(codec, type, type, kind, count);
                    if (accumulator_of(type) != type && count > 64)
                        visit(codec, type, accumulator_of(type), kind, count);
                }
    }
}

int main() {
    bool fine = true;
    using Sample = qtest::PairSample<4>;
    Sample sample;
    each_chunk(
        [&](const Codec &codec, DataType type, DataType in, golden::Kind kind, uint64_t count) {
            const auto types = static_cast<uint64_t>(type) * 100 + static_cast<uint64_t>(in);
            sample.offer(false,
                         {Sample::value(spec(codec)), types, static_cast<uint64_t>(kind), count});
        });
    qtest::ChosenCases cases = sample.choose();
    each_chunk(
        [&](const Codec &codec, DataType type, DataType in, golden::Kind kind, uint64_t count) {
            if (cases.takes()) fine = emit(codec, type, in, kind, count) && fine;
        });
    // topk needs several pages, the last of them short.
    for (const golden::Kind kind :
         {golden::Kind::spread, golden::Kind::ties, golden::Kind::constant})
        for (const char *text : {"topk", "topk:ratio=0.4", "dgc:ratio=0.01"})
            fine = emit(*parse_codec(text), DataType::float16, DataType::float32, kind, 140001) &&
                   fine;
    for (const char *text : {"lossless",
                             "fp8e4m3:entropy=1",
                             "bf16:entropy=1",
                             "int12:block=512,entropy=1",
                             "int10:block=512,entropy=1",
                             "int8:block=512,entropy=1",
                             "int6:block=512,entropy=1",
                             "int5:block=512,entropy=1",
                             "int3:block=512,entropy=1",
                             "int2:entropy=1",
                             "minmax:bits=7,bucket=all,entropy=1",
                             "minmax:bits=1,entropy=1",
                             "nvfp4:entropy=1",
                             "minmax:bits=4,bucket=64,skip_incomplete=1,entropy=1",
                             "terngrad:entropy=1",
                             "bound",
                             "bound:rel=0.0001,entropy=1",
                             "bound:abs=0.01,entropy=1",
                             "bound:abs=0.5",
                             "norm:bits=2,entropy=1",
                             "onebit:bucket=33,entropy=1",
                             "mxfp6e2m3:entropy=1"})
        for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64})
            for (const golden::Kind kind :
                 {golden::Kind::spread, golden::Kind::any_bits, golden::Kind::zeros})
                for (const uint64_t count : {1, 33, 2048, 70001})
                    if (count < 3000 || kind == golden::Kind::spread)
                        fine = emit(*parse_codec(text), type, type, kind, count) && fine;
    for (const char *text : {"lossless", "fp16:entropy=1", "bf16:entropy=1"})
        for (const DataType type :
             {DataType::float16, DataType::float32, DataType::bfloat16, DataType::float64})
            for (const uint64_t count : {1, 2048, 70001})
                fine = emit(*parse_codec(text), type, type, golden::Kind::sparse, count) && fine;
    return fine ? 0 : 1;
}
