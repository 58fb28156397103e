// Fuzzes codec/chunk: whatever open_chunk accepts, the reference decodes within its bounds, in
// whole and in part, into every format that may be asked for. The mutator below makes inputs that
// are nearly chunks: it writes a header that fits the bytes behind it, so that the deep checks are
// reached. With --codec=NAME it makes chunks of that codec alone; --codecs prints all names.
#include "codec/chunk.hpp"
#include "codec/codec_names.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace qccl;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

namespace {

constexpr size_t largest_input = 4096;

constexpr uint64_t most_values = 1 << 20; // a few bytes may stand for many values

void decode_all(const OpenChunk &open) {
    if (open.chunk.count > most_values) return;
    const PayloadLayout layout = payload_layout(open.codec, open.chunk.type, open.chunk.count);
    const ChunkRange whole{&open.codec, &layout,          open.chunk.type,   open.chunk.count,
                           0,           open.chunk.count, open.chunk.noise()};
    const DataType sum_type = accumulator_of(open.chunk.type);
    std::vector<std::byte> values(open.chunk.count * type_bytes(open.chunk.type)),
        sums(open.chunk.count * type_bytes(sum_type));
    scalar_kernels().decode(whole, open.payload.data(), open.chunk.type, values.data(), false);
    scalar_kernels().decode(whole, open.payload.data(), sum_type, sums.data(), false);
    scalar_kernels().decode_add(whole, RedOp::sum, open.payload.data(), sums.data());
    if (const size_t step = grain(open.codec); step < open.chunk.count) {
        ChunkRange end = whole;
        end.begin = step;
        end.count -= step;
        scalar_kernels().decode_add(end, RedOp::sum, open.payload.data(), sums.data());
    }
}

// The fields of an accepted chunk must make the same header again.
void check_header(const OpenChunk &open, const uint8_t *data) {
    std::byte again[header_bytes];
    write_header(open.codec, open.chunk, again);
    constexpr size_t flags = 9, crc = 56;
    again[flags] |=
        static_cast<std::byte>(data[flags] & 2); // write_header does not write the checksum's flag
    std::memcpy(again + crc, data + crc, sizeof(uint32_t));
    if (std::memcmp(again, data, header_bytes) == 0) return;
    fputs("an accepted header is not what write_header writes\n", stderr);
    abort();
}

// The mutator's random numbers: a few bits at a time from its seed.
struct Dice {
    uint64_t state;
    uint32_t roll(uint32_t sides) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<uint32_t>(state >> 33) % sides;
    }
};

// The names of the codecs whose chunks the mutator makes.
std::vector<std::string_view> &made_codecs() {
    static std::vector<std::string_view> names(codec_words.begin(), codec_words.end());
    return names;
}

Codec random_codec(Dice &dice) {
    const auto &names = made_codecs();
    Codec codec = *parse_codec(names[dice.roll(static_cast<uint32_t>(names.size()))]);
    const CodecRow &row = codec.row();
    if (row.takes(SpecKey::round))
        codec.rounding = static_cast<Rounding>(dice.roll(row.takes_dither ? 3 : 2));
    if (row.takes(SpecKey::scale)) codec.scaling = static_cast<Scaling>(dice.roll(2));
    if (row.takes(SpecKey::norm)) codec.norm = static_cast<BucketNorm>(dice.roll(2));
    if (row.takes(SpecKey::levels)) codec.levels = static_cast<Levels>(dice.roll(2));
    if (row.takes(SpecKey::entropy))
        (codec.has_grid() ? codec.codes_entropy : codec.packs) = dice.roll(4) == 0;
    if (row.takes(SpecKey::bits)) {
        const uint32_t least = row.least_bits;
        codec.bits = static_cast<uint8_t>(least + dice.roll(most_code_bits - least + 1));
    }
    if (row.takes(SpecKey::ratio))
        codec.share = 1 + dice.roll(dice.roll(2) == 0 ? whole_share / 10 : whole_share);
    if (row.takes(SpecKey::bucket) || row.takes(SpecKey::block)) {
        const uint32_t most = dice.roll(2) == 0 ? 40 : 700;
        codec.bucket = row.bucket_step * (1 + dice.roll(most / row.bucket_step));
        if (row.cast) codec.bucket = dice.roll(2) == 0 ? 0 : least_rotation << dice.roll(5);
        if (row.cast) codec.bits = codec.row().usual.bits;
    }
    if (row.takes_whole_chunk && dice.roll(4) == 0)
        codec.bucket = Codec::whole_chunk;
    else if (row.takes(SpecKey::skip_incomplete))
        codec.skips_incomplete = dice.roll(3) == 0;
    if (row.takes(SpecKey::threshold))
        codec.threshold = std::bit_cast<float>((1 + dice.roll(254)) << 23 | dice.roll(1U << 23));
    if (row.takes(SpecKey::rotate) && dice.roll(4) == 0) {
        codec.bucket = least_rotation << dice.roll(5);
        codec.rotation = least_rotation << dice.roll(5);
    }
    if (codec.has_grid()) {
        codec.is_relative = dice.roll(2) == 0;
        codec.is_pointwise = !codec.is_relative && dice.roll(2) == 0;
        codec.bound =
            static_cast<float>(1 + dice.roll(8)) / static_cast<float>(8U << dice.roll(28));
        if (codec.is_pointwise) codec.bound = static_cast<float>(1 + dice.roll(500000)) * 1e-6F;
    }
    return codec;
}

// Writes valid indices and counts of a chunk of one page or none.
void write_indices(Dice &dice, const PayloadLayout &layout, uint64_t count, uint8_t *payload) {
    if (count == 0) return;
    const auto kept = static_cast<uint32_t>(layout.kept);
    std::memcpy(payload + layout.page_counts, &kept, sizeof kept);
    const auto skipped = static_cast<uint16_t>(dice.roll(static_cast<uint32_t>(count - kept) + 1));
    for (uint16_t i = 0; i < kept; i++) {
        const auto index = static_cast<uint16_t>(skipped + i);
        std::memcpy(payload + layout.indices + i * sizeof index, &index, sizeof index);
    }
}

// Writes a valid step: a number of 8 significant bits between 2^-120 and 2^120.
void write_step(Dice &dice, const PayloadLayout &layout, uint8_t *payload) {
    if (layout.scale_count == 0) return;
    const uint32_t step = (0x0400 + dice.roll(0x7800)) << 16;
    std::memcpy(payload + layout.scales, &step, sizeof step);
}

} // namespace

// libFuzzer leaves arguments with two dashes to the program.
extern "C" int LLVMFuzzerInitialize(int *count, char ***arguments) {
    constexpr std::string_view one = "--codec=";
    auto &names = made_codecs();
    for (const std::string_view argument : std::span(*arguments, static_cast<size_t>(*count))) {
        if (argument == "--codecs") {
            for (const std::string_view name : names) puts(std::string(name).c_str());
            exit(0);
        }
        if (!argument.starts_with(one)) continue;
        const std::string_view wanted = argument.substr(one.size());
        if (std::find(names.begin(), names.end(), wanted) == names.end()) {
            fprintf(stderr, "--codec: no codec is named %s; --codecs prints the names\n",
                    std::string(wanted).c_str());
            exit(2);
        }
        names = {wanted};
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto open = open_chunk(std::as_bytes(std::span(data, bytes)));
    if (!open) return 0;
    check_header(*open, data);
    decode_all(*open);
    return 0;
}

// Keeps every third input as libFuzzer mutates it. The others get the header that fits them and,
// now and then, zeros, which padding and scales consist of.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    Dice dice{seed};
    bytes = LLVMFuzzerMutate(data, bytes, most);
    if (dice.roll(3) == 0) return bytes;
    const Codec codec = random_codec(dice);
    const uint32_t type = codec.is_lossless() ? dice.roll(12) : 6 + dice.roll(6);
    const ChunkInfo chunk{static_cast<DataType>(type), dice.roll(300), dice.roll(1000),
                          dice.roll(100), dice.roll(100)};
    const size_t wanted = encoded_bytes(codec, chunk.type, chunk.count);
    if (wanted > std::min(most, largest_input)) return bytes;
    if (wanted > bytes) std::memset(data + bytes, 0, wanted - bytes);
    write_header(codec, chunk, reinterpret_cast<std::byte *>(data));
    const PayloadLayout layout = payload_layout(codec, chunk.type, chunk.count);
    const size_t zeros_from =
        dice.roll(2) == 0 ? layout.scales
                          : layout.bytes - dice.roll(static_cast<uint32_t>(layout.bytes) + 1);
    if (dice.roll(4) != 0)
        std::memset(data + header_bytes + zeros_from, 0, wanted - header_bytes - zeros_from);
    if (codec.row().is_sparse && dice.roll(4) != 0)
        write_indices(dice, layout, chunk.count, data + header_bytes);
    if (codec.has_grid() && dice.roll(4) != 0) write_step(dice, layout, data + header_bytes);
    return wanted;
}
