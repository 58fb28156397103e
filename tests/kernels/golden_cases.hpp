// The inputs and codecs of the golden chunks, for every codec, type and rounding. Inputs are made
// from integers alone, so every machine makes the same ones. Golden cases never change; cases may
// be added.
#pragma once

#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "device/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace golden {

using namespace qccl;

// A floating-point format as bit fields, so that inputs are drawn field by field and never rounded.
struct Fields {
    unsigned exponent_bits, fraction_bits;
    uint64_t infinity() const { return ((1ULL << exponent_bits) - 1) << fraction_bits; }
    uint64_t sign() const { return 1ULL << (exponent_bits + fraction_bits); }
    uint64_t fraction_mask() const { return (1ULL << fraction_bits) - 1; }
    uint64_t bias() const { return (1ULL << (exponent_bits - 1)) - 1; }
};

inline Fields fields_of(DataType type) {
    switch (type) {
    case DataType::float16: return {5, 10};
    case DataType::bfloat16: return {8, 7};
    case DataType::float8e4m3: return {4, 3};
    case DataType::float8e5m2: return {5, 2};
    case DataType::float64: return {11, 52};
    default: return {8, 23};
    }
}

enum class Kind {
    spread,
    any_bits,
    finite,
    tiny,
    huge,
    constant,
    ties,
    few_specials,
    zeros,
    sparse
};
// Without `sparse`, which is newer than their chunks.
inline constexpr Kind kinds[] = {Kind::spread, Kind::any_bits,     Kind::finite,
                                 Kind::tiny,   Kind::huge,         Kind::constant,
                                 Kind::ties,   Kind::few_specials, Kind::zeros};

// Returns the bits of j / 2 for a small integer j: values halfway between codes if the unit is a
// power of two.
inline uint64_t half_integer(const Fields &f, uint64_t j) {
    if (j == 0) return 0;
    const auto top = static_cast<unsigned>(63 - __builtin_clzll(j));
    const uint64_t fraction = (j ^ 1ULL << top) << (f.fraction_bits - top);
    return (f.bias() + top - 1) << f.fraction_bits | fraction;
}

// Returns the bits of element i; `draw` are its 64 random bits.
inline uint64_t pattern_of(const Fields &f, Kind kind, uint64_t draw, uint64_t i) {
    const uint64_t sign = (draw >> 63) != 0 ? f.sign() : 0;
    const uint64_t fraction = draw & f.fraction_mask();
    const auto with_exponent = [&](uint64_t exponent) {
        return sign | exponent << f.fraction_bits | fraction;
    };
    switch (kind) {
    case Kind::spread: return with_exponent(f.bias() - (draw >> 56 & 3));
    case Kind::any_bits: return draw & (f.sign() | (f.sign() - 1));
    case Kind::finite: return with_exponent((draw >> 52) % ((1ULL << f.exponent_bits) - 1));
    case Kind::tiny: return with_exponent(draw >> 56 & 1);
    case Kind::huge: return with_exponent((1ULL << f.exponent_bits) - 2 - (draw >> 56 & 1));
    case Kind::constant: return (f.bias() << f.fraction_bits) + 3;
    case Kind::ties: return sign | half_integer(f, f.fraction_bits >= 3 ? draw % 16 : draw % 8);
    case Kind::few_specials: {
        const uint64_t specials[] = {f.infinity(), f.infinity() | 1, f.infinity() | f.sign(),
                                     f.infinity() | f.fraction_mask()};
        return i % 97 == 50 ? specials[i / 97 % 4] : with_exponent(f.bias() - (draw >> 56 & 7) % 4);
    }
    case Kind::sparse: return draw >> 48 & 1 ? with_exponent(f.bias() - (draw >> 56 & 3)) : 0;
    case Kind::zeros: return (draw >> 60 & 7) != 0 ? sign : f.sign() | 1;
    }
    return 0;
}

// Returns the bytes of element i of a type that holds more than a number, in words of 64 bits:
// parts of complex numbers, bytes of which one of four is false, and pairs of few values and few
// indices, with anything in the padding.
inline std::array<uint64_t, 2> words_of(const TypeInfo &row, Kind kind, uint64_t draw, uint64_t i) {
    const uint64_t more = splitmix64(draw);
    const auto real = [&](DataType type, uint64_t bits) {
        return pattern_of(fields_of(type), kind, bits, i);
    };
    const uint64_t index = more % 5;
    constexpr uint32_t floats[] = {0x3F800000, 0xBF800000, 0, 0x80000000, 0x7F812345, 0xFFC00001};
    constexpr uint64_t doubles[] = {0x3FF0000000000000, 0xBFF0000000000000, 0,
                                    0x8000000000000000, 0x7FF0000012345678, 0xFFF8000000000001};
    const uint64_t whole = draw % 3 - 1; // -1, 0 or 1 in the low bits of any length
    switch (row.type) {
    case DataType::complex64:
        return {real(DataType::float32, draw) | real(DataType::float32, more) << 32, 0};
    case DataType::complex128:
        return {real(DataType::float64, draw), real(DataType::float64, more)};
    case DataType::boolean: return {draw % 4 == 0 ? 0 : draw >> 56 | 1, 0};
    case DataType::float_int: return {floats[draw % 6] | index << 32, 0};
    case DataType::double_int: return {doubles[draw % 6], index | draw << 32};
    case DataType::long_int: return {whole, index | draw << 32};
    case DataType::int_int: return {(whole & 0xFFFFFFFF) | index << 32, 0};
    case DataType::short_int: return {(whole & 0xFFFF) | (draw & 0xFFFF0000) | index << 32, 0};
    default: return {draw, more};
    }
}

inline std::vector<std::byte> make_input(DataType type, Kind kind, uint64_t count) {
    const size_t bytes = type_bytes(type);
    std::vector<std::byte> input(count * bytes);
    const uint64_t seed = splitmix64(
        splitmix64(static_cast<uint64_t>(kind) * 1000 + static_cast<uint64_t>(type)) + count);
    const Fields fields = fields_of(type);
    const bool is_float = info(type).is_float;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t draw = splitmix64(seed + i);
        const std::array words = is_float
                                     ? std::array{pattern_of(fields, kind, draw, i), uint64_t{0}}
                                     : words_of(info(type), kind, draw, i);
        std::memcpy(input.data() + i * bytes, words.data(), bytes);
    }
    return input;
}

inline constexpr uint64_t counts[] = {0, 1, 31, 33, 70, 1001, 2048};

// Continues specs().
inline void add_newer_specs(std::vector<std::string> &list) {
    list.insert(list.end(), {"lossless", "int8:entropy=1"});
    list.insert(list.end(),
                {"int4:rotate=128", "int8:rotate=32", "int2:block=512,rotate=64",
                 "int6:rotate=512,round=stochastic", "int12:block=64,rotate=256,round=dither",
                 "int5:rotate=128,entropy=1", "minmax:bits=4,bucket=128,rotate=128",
                 "minmax:bits=8,rotate=64,round=stochastic",
                 "minmax:bits=3,bucket=64,skip_incomplete=1,rotate=256,round=dither"});
    list.insert(list.end(), {"tbq", "tbq:threshold=0.75,entropy=0"});
    list.insert(list.end(), {"bound", "bound:rel=0.1,entropy=1", "bound:abs=0.004",
                             "bound:abs=0.05,entropy=1", "bound:abs=1e-36", "bound:abs=1e36"});
    for (const char *name : {"fp8e4m3", "fp8e5m2"})
        for (const char *keys : {"32", "32,round=stochastic", "64,entropy=1", "512"})
            list.push_back(std::string(name) + ":block=" + keys);
    list.insert(list.end(),
                {"bound:pw=0.001", "bound:pw=0.1,entropy=1", "bound:pw=0.5", "bound:pw=1e-6"});
}

inline std::vector<std::string> specs() {
    std::vector<std::string> list{"none", "fp16", "bf16"};
    for (const char *round : {"nearest", "stochastic"}) {
        const std::string key = std::string("round=") + round;
        for (const char *name : {"int8", "int6", "int5", "int4", "int3", "int2"})
            list.push_back(std::string(name) + ":" + key);
        for (const char *more : {"int8:block=1,", "int5:block=7,", "int4:block=100,",
                                 "int2:block=512,", "int3:block=4096,"})
            list.push_back(more + key);
        for (int bits = 1; bits <= 8; bits++)
            list.push_back("minmax:bits=" + std::to_string(bits) + "," + key);
        for (const char *more :
             {"bits=4,bucket=1,", "bits=7,bucket=33,", "bits=2,bucket=all,",
              "bits=4,bucket=64,skip_incomplete=1,", "bits=3,bucket=100,skip_incomplete=1,"})
            list.push_back(std::string("minmax:") + more + key);
    }
    list.insert(list.end(), {"fp8e4m3", "fp8e5m2"});
    for (const char *name : {"mxfp8e4m3", "mxfp6e2m3", "mxfp4"})
        for (const char *keys : {"", ":round=stochastic", ":scale=ocp"})
            list.push_back(std::string(name) + keys);
    for (const char *keys : {"", ":round=stochastic", ":scale=ceil", ":bucket=32", ":bucket=all"})
        list.push_back(std::string("nvfp4") + keys);
    list.insert(list.end(), {"onebit", "onebit:bucket=33", "onebit:bucket=1"});
    list.insert(list.end(), {"terngrad", "terngrad:bucket=33,clip=1", "terngrad:bucket=1"});
    list.insert(list.end(), {"topk", "topk:ratio=0.1", "topk:ratio=1"});
    for (const char *name : {"int12", "int10"})
        for (const char *keys : {"", ":round=stochastic", ":block=1", ":block=8",
                                 ":block=16,round=stochastic", ":block=100", ":block=512"})
            list.push_back(std::string(name) + keys);
    for (const char *round : {"stochastic", "nearest"}) {
        const std::string key = std::string("round=") + round;
        for (const char *levels : {"uniform", "exponential"})
            for (const char *norm : {"l2", "linf"})
                for (const char *bits : {"2", "4", "8"})
                    list.push_back(std::string("norm:bits=") + bits + ",norm=" + norm +
                                   ",levels=" + levels + "," + key);
        for (const char *more : {"bucket=1,", "bits=4,bucket=33,", "bits=6,bucket=1,norm=linf,",
                                 "bits=5,bucket=100,levels=exponential,", "bits=3,bucket=64,",
                                 "bits=7,bucket=1024,norm=linf,levels=exponential,"})
            list.push_back(std::string("norm:") + more + key);
    }
    for (const char *bits : {"3", "5", "6", "7"})
        for (const char *more : {"", ",norm=linf,levels=exponential"})
            list.push_back(std::string("norm:bits=") + bits + more);
    for (const char *name : {"fp16", "bf16", "fp8e4m3", "fp8e5m2"})
        list.push_back(std::string(name) + ":round=stochastic");
    list.insert(list.end(), {"dgc", "dgc:ratio=0.1"});
    list.insert(list.end(), {"dummy", "dummy:ratio=0.01", "dummy:ratio=1"});
    for (const char *text :
         {"int12:", "int10:block=16,", "int8:", "int6:", "int5:block=7,", "int4:", "int4:block=8,",
          "int3:block=4096,", "int2:", "minmax:bits=8,", "minmax:bits=7,bucket=33,",
          "minmax:bits=4,", "minmax:bits=2,bucket=all,", "minmax:bits=1,bucket=1,",
          "minmax:bits=3,bucket=100,skip_incomplete=1,"})
        list.push_back(std::string(text) + "round=dither");
    add_newer_specs(list);
    return list;
}

// Returns the first operation that the type takes.
inline RedOp first_op(DataType type) {
    return *std::ranges::find_if(all_ops, [=](RedOp op) { return takes(type, op); });
}

inline constexpr DataType float_types[] = {DataType::float16,    DataType::bfloat16,
                                           DataType::float32,    DataType::float64,
                                           DataType::float8e4m3, DataType::float8e5m2};

// Returns the description of a chunk in the middle of a tensor larger than 2^32 elements, with an
// odd first index, and a key and a call number of 64 bits.
inline ChunkInfo chunk_info(DataType type, uint64_t count) {
    return {type, count, (uint64_t{5} << 32) + 13, noise_key(7, 3, 2), (uint64_t{1} << 32) + 9};
}

inline std::vector<std::byte> encode_chunk(const Kernels &kernels, const Codec &codec,
                                           const ChunkInfo &chunk, DataType in, const void *src) {
    const PayloadLayout layout = payload_layout(codec, chunk.type, chunk.count);
    // The buffer starts with bytes that differ from the final ones, so a byte that the encoder does
    // not write shows.
    std::vector<std::byte> bytes(encoded_bytes(codec, chunk.type, chunk.count), std::byte{0xA5});
    write_header(codec, chunk, bytes.data());
    kernels.encode({&codec, &layout, chunk.type, chunk.count, 0, chunk.count},
                   {chunk.noise_key, chunk.call, chunk.first_index}, in, src,
                   bytes.data() + header_bytes);
    return bytes;
}

inline std::vector<std::byte> decode_chunk(const Kernels &kernels, const OpenChunk &open,
                                           DataType out) {
    const PayloadLayout layout = payload_layout(open.codec, open.chunk.type, open.chunk.count);
    std::vector<std::byte> values(open.chunk.count * type_bytes(out), std::byte{0x5A});
    kernels.decode({&open.codec, &layout, open.chunk.type, open.chunk.count, 0, open.chunk.count,
                    open.chunk.noise()},
                   open.payload.data(), out, values.data(), false);
    return values;
}

} // namespace golden
