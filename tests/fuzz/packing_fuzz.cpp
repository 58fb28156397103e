// Fuzzes the unpacking of chunks, by the scalar reference and by the best tier: whatever came, both
// accept the same bytes, restore the same chunk, and stay within their bounds. The mutator makes
// inputs that are packed chunks with a few changes, so that the deep checks are reached.
#include "device/packed_chunk.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

using namespace qccl;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

namespace {

constexpr const char *specs[] = {"lossless",
                                 "fp8e4m3:entropy=1",
                                 "bf16:entropy=1",
                                 "int12:block=512,entropy=1",
                                 "int8:block=512,entropy=1",
                                 "int6:block=512,entropy=1",
                                 "int3:block=512,entropy=1",
                                 "minmax:bits=7,bucket=all,entropy=1",
                                 "minmax:bits=4,bucket=64,skip_incomplete=1,entropy=1",
                                 "nvfp4:entropy=1",
                                 "terngrad:entropy=1",
                                 "norm:bits=2,entropy=1",
                                 "onebit:entropy=1",
                                 "bound",
                                 "bound:abs=0.01",
                                 "bound:rel=0.02,entropy=1",
                                 "bound:pw=0.01",
                                 "bound:pw=0.5",
                                 "bound:pw=0.2,entropy=1"};
constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float64};
constexpr uint64_t counts[] = {0, 1, 40, 333, 2100};

PackScratch &scratch() {
    static const auto memory = std::make_unique<PackScratch>();
    return *memory;
}

// What the first byte of an input selects.
struct Case {
    Codec codec;
    DataType type;
    uint64_t count;

    explicit Case(uint8_t number)
        : codec(*parse_codec(specs[number % std::size(specs)])),
          type(types[number / std::size(specs) % std::size(types)]),
          count(counts[number / std::size(specs) / std::size(types) % std::size(counts)]) {}
    size_t most_bytes() const { return most_packed_bytes(codec, type, count); }
};

bool restores(const Case &of, const Kernels &kernels, std::span<const std::byte> packed,
              std::vector<std::byte> &unpacked) {
    unpacked.assign(of.most_bytes(), std::byte{0});
    return unpack_chunk(kernels, of.codec, of.type, of.count, packed, unpacked.data(), scratch())
        .is_ok();
}

void give_up(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

// Few distinct sizes, so that chunks become shorter. A third of the values of every other chunk are
// zero.
std::vector<std::byte> packed_chunk(const Case &of, unsigned seed) {
    std::vector<double> values(of.count);
    const bool is_sparse = (seed & 1) != 0;
    for (double &value : values) {
        seed = seed * 1664525 + 1013904223;
        const int size = static_cast<int>(seed >> 24 & 7);
        value = (seed >> 31 != 0 ? 1 : -1) * std::ldexp(1.0 + (seed >> 20 & 3), -size * size);
        if (is_sparse && (seed >> 8) % 3 == 0) value = 0;
    }
    std::vector<std::byte> typed(of.count * sizeof(double)), unpacked(of.most_bytes()),
        packed(of.most_bytes());
    const Kernels &kernels = scalar_kernels();
    kernels.copy(of.type, typed.data(), DataType::float64, values.data(), of.count, false);
    write_header(of.codec, {.type = of.type, .count = of.count, .noise_key = 7}, unpacked.data());
    const PayloadLayout layout = payload_layout(of.codec, of.type, of.count);
    kernels.encode({&of.codec, &layout, of.type, of.count, 0, of.count}, {.key = 7}, of.type,
                   typed.data(), unpacked.data() + header_bytes);
    packed.resize(pack_chunk(kernels, of.codec, of.type, of.count, unpacked.data(), packed.data(),
                             scratch()));
    return packed;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) return 0;
    const Case of(data[0]);
    // A block of its own shows reads behind its end.
    const auto packed_bytes = std::as_bytes(std::span(data + 1, bytes - 1));
    const std::vector<std::byte> packed(packed_bytes.begin(), packed_bytes.end());
    std::vector<std::byte> unpacked, same, again(of.most_bytes());
    const bool is_accepted = restores(of, scalar_kernels(), packed, unpacked);
    if (restores(of, best_kernels(), packed, same) != is_accepted)
        give_up("tiers disagree whether a chunk is damaged");
    if (!is_accepted) return 0;
    if (unpacked != same) give_up("tiers restore different chunks");
    again.resize(pack_chunk(best_kernels(), of.codec, of.type, of.count, unpacked.data(),
                            again.data(), scratch()));
    if (!restores(of, scalar_kernels(), again, same) || same != unpacked)
        give_up("a restored chunk does not come back");
    return 0;
}

// Mutates every third input as libFuzzer does. The others become packed chunks of which a few bytes
// are changed; the length in the header is made right.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    if (seed % 3 == 0 || most < 2) return LLVMFuzzerMutate(data, bytes, most);
    const auto number = static_cast<uint8_t>(seed >> 4);
    const std::vector<std::byte> packed = packed_chunk(Case(number), seed);
    if (packed.size() + 1 > most) return LLVMFuzzerMutate(data, bytes, most);
    data[0] = number;
    std::memcpy(data + 1, packed.data(), packed.size());
    size_t size = packed.size();
    if (seed % 7 == 0 && size > header_bytes)
        size = header_bytes + LLVMFuzzerMutate(data + 1 + header_bytes, size - header_bytes,
                                               most - 1 - header_bytes);
    set_payload_bytes(reinterpret_cast<std::byte *>(data + 1), size - header_bytes);
    for (unsigned i = 0; i < seed % 5 && size > header_bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        // The first bytes are those of index, head and frequencies.
        const size_t room = size - header_bytes, reach = (seed >> 30) == 0 ? room : room / 4 + 1;
        data[1 + header_bytes + (seed >> 8) % reach] ^= static_cast<uint8_t>(1U << (seed & 7));
    }
    return size + 1;
}
