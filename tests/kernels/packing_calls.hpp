// Packs and unpacks chunks for tests, with one tier or with all of them beside the reference.
#pragma once

#include "golden_cases.hpp"
#include "kernel_operands.hpp"
#include "tested_kernels.hpp"
#include "tests/kit/qtest.hpp"

#include "device/packed_chunk.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace packing {

using namespace qccl;

inline PackScratch &scratch() {
    static const auto memory = std::make_unique<PackScratch>();
    return *memory;
}

inline std::vector<std::byte> packed(const Kernels &kernels, const Codec &codec, DataType type,
                                     uint64_t count, const std::vector<std::byte> &unpacked_bytes) {
    std::vector<std::byte> chunk(most_packed_bytes(codec, type, count), std::byte{0x3C});
    chunk.resize(
        pack_chunk(kernels, codec, type, count, unpacked_bytes.data(), chunk.data(), scratch()));
    return chunk;
}

inline Done unpacked(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                     std::span<const std::byte> chunk, std::vector<std::byte> &unpacked_bytes) {
    unpacked_bytes.assign(most_packed_bytes(codec, type, count), std::byte{0xC3});
    return unpack_chunk(kernels, codec, type, count, chunk, unpacked_bytes.data(), scratch());
}

inline std::vector<std::byte> unpacked_chunk(const Codec &codec, DataType type, uint64_t count,
                                             const std::byte *values) {
    return golden::encode_chunk(scalar_kernels(), codec, golden::chunk_info(type, count), type,
                                values);
}

// Every tier packs to the bytes of the reference, and restores what was packed.
inline void check_tiers(const std::string &text, DataType type, uint64_t count,
                        const std::vector<std::byte> &unpacked_bytes, const std::string &what) {
    const Codec codec = *parse_codec(text);
    const auto wanted = packed(scalar_kernels(), codec, type, count, unpacked_bytes);
    CHECK(wanted.size() <= unpacked_bytes.size());
    for (const TestedKernels &tier : tested_kernels()) {
        std::vector<std::byte> back;
        const auto got = packed(*tier.kernels, codec, type, count, unpacked_bytes);
        const Done done = unpacked(*tier.kernels, codec, type, count, wanted, back);
        if (got != wanted || !done || back != unpacked_bytes)
            throw qtest::Failure{tier.name + " differs: " + text + " " + name(type) + " count " +
                                 std::to_string(count) + " " + what};
    }
}

// No tier writes beside the place of the unpacked chunk, whatever it makes of the damaged one.
inline void check_harmless(const Codec &codec, DataType type, uint64_t count,
                           std::span<const std::byte> damaged, size_t unpacked_bytes) {
    for (const TestedKernels &tier : tested_kernels()) {
        operands::Buffer back(unpacked_bytes), untouched(unpacked_bytes);
        (void)unpack_chunk(*tier.kernels, codec, type, count, damaged, back.data(), scratch());
        const auto guards = back.all(), before = untouched.all();
        CHECK(std::ranges::equal(guards.first(64), before.first(64)));
        CHECK(std::ranges::equal(guards.last(64), before.last(64)));
    }
}

} // namespace packing
