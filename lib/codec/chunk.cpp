// Reads, writes and checks chunk headers. A header is one struct of fixed fields. The cheapest
// checks run first, and every length is compared with the bytes at hand before it is used. The
// checksum is made by slicing by eight: eight independent table look-ups process eight bytes.
#include "codec/chunk.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

static_assert(std::endian::native == std::endian::little);

namespace qccl {

// ---- Checksum

namespace {

constexpr uint32_t castagnoli = 0x82F63B78; // the polynomial, lowest power in the highest bit
constexpr size_t slices = 8;

using SliceTables = std::array<std::array<uint32_t, 256>, slices>;

// tables[k][b]: the contribution of byte b if k more bytes of the slice follow it.
constexpr SliceTables make_tables() {
    SliceTables tables{};
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? castagnoli : 0);
        tables[0][b] = crc;
    }
    for (size_t k = 1; k < slices; k++)
        for (size_t b = 0; b < 256; b++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xFF];
    return tables;
}

constexpr SliceTables tables = make_tables();

uint32_t octet(std::byte b) { return std::to_integer<uint32_t>(b); }

} // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
    crc = ~crc;
    size_t at = 0;
    for (; at + slices <= bytes.size(); at += slices) {
        uint64_t slice; // its first byte lowest, as in the header and everywhere on the wire
        std::memcpy(&slice, bytes.data() + at, sizeof slice);
        slice ^= crc;
        crc = 0;
        for (size_t i = 0; i < slices; i++) crc ^= tables[slices - 1 - i][slice >> 8 * i & 0xFF];
    }
    for (; at < bytes.size(); at++) crc = crc >> 8 ^ tables[0][(crc ^ octet(bytes[at])) & 0xFF];
    return ~crc;
}

// ---- Chunks

namespace {

constexpr uint32_t chunk_magic = 0x4C434351; // "QCCL"
constexpr uint8_t chunk_version = 1;
constexpr uint8_t flag_skips_incomplete = 1, flag_checksum = 2, flag_ocp_scale = 4,
                  flag_linf_norm = 8, flag_exponential_levels = 16, flag_packs = 32,
                  flag_relative = 64, flag_codes_entropy = 128;
constexpr uint16_t largest_nmse_word = 0x7F80; // infinity
constexpr Code damaged = Code::damaged_data;

// A code has at least one bit; a sparse codec has one number for each page. dummy keeps one value
// of a million.
uint64_t most_values_per_byte(const Codec &codec) {
    if (codec.row().kind == CodecKind::dummy) return whole_share;
    return codec.row().is_sparse ? topk_page_values / sizeof(uint32_t) : 8;
}

struct Header {
    uint32_t magic;
    uint8_t version, codec, type, rounding;
    uint8_t bits, flags;
    uint16_t sampled_nmse;
    uint32_t bucket;
    uint64_t count, first_index, payload_bytes, noise_key, call;
    uint32_t crc;
    uint32_t rotation;
};
static_assert(sizeof(Header) == header_bytes && offsetof(Header, crc) == 56);

Header read_header(std::span<const std::byte> bytes) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header;
}

// Returns the codec that the header describes, or damaged_data if no encoder writes such keys.
Result<Codec> read_codec(const Header &header) {
    Codec codec;
    codec.id = static_cast<CodecId>(header.codec);
    codec.bits = header.bits;
    codec.bucket = header.bucket;
    codec.rounding = static_cast<Rounding>(header.rounding);
    codec.skips_incomplete = (header.flags & flag_skips_incomplete) != 0;
    codec.scaling = (header.flags & flag_ocp_scale) != 0 ? Scaling::ocp : Scaling::ceil;
    codec.norm = (header.flags & flag_linf_norm) != 0 ? BucketNorm::linf : BucketNorm::l2;
    codec.levels =
        (header.flags & flag_exponential_levels) != 0 ? Levels::exponential : Levels::uniform;
    codec.packs = (header.flags & flag_packs) != 0;
    codec.rotation = header.rotation;
    const CodecRow &row = codec.row();
    if (row.takes(SpecKey::ratio)) std::swap(codec.share, codec.bucket); // it has no bucket
    if (row.takes(SpecKey::threshold))
        codec.threshold = std::bit_cast<float>(std::exchange(codec.bucket, 0));
    if (row.takes(SpecKey::abs)) {
        codec.is_pointwise = (codec.bucket & pointwise_bit) != 0;
        codec.bound = std::bit_cast<float>(std::exchange(codec.bucket, 0) & ~pointwise_bit);
    }
    codec.is_relative = (header.flags & flag_relative) != 0;
    codec.codes_entropy = (header.flags & flag_codes_entropy) != 0;
    codec.clip = row.usual.clip; // no decoder needs it, nor the momentum
    codec.momentum = row.usual.momentum;
    if (!is_possible(codec))
        return Error::make(damaged,
                           "chunk: codec %u with %u bits, bucket %" PRIu32
                           ", rounding %u, flags %u, rotation %" PRIu32 " is none that QCCL writes",
                           header.codec, header.bits, header.bucket, header.rounding, header.flags,
                           header.rotation);
    return codec;
}

Done check_fixed_fields(const Header &header) {
    if (header.magic != chunk_magic)
        return Error::make(damaged, "chunk: starts with 0x%08" PRIX32 " instead of \"QCCL\"",
                           header.magic);
    if (header.version != chunk_version)
        return Error::make(damaged, "chunk: version %u, this library reads %u", header.version,
                           chunk_version);
    if (header.sampled_nmse > largest_nmse_word)
        return Error::make(damaged, "chunk: reserved bits are set");
    if ((header.flags & flag_checksum) == 0 && header.crc != 0)
        return Error::make(damaged, "chunk: a checksum without its flag");
    return {};
}

Done check_last_index(const Header &header) {
    if (header.first_index > std::numeric_limits<uint64_t>::max() - header.count)
        return Error::make(damaged, "chunk: the index of its last value exceeds 64 bits");
    return {};
}

// Checks the count and the lengths. The count is bounded first, so that no product below can
// overflow.
Done check_lengths(const Header &header, const Codec &codec, DataType type,
                   uint64_t payload_bytes) {
    if (header.count > most_layout_values ||
        header.count / most_values_per_byte(codec) > payload_bytes)
        return Error::make(damaged, "chunk: %" PRIu64 " values cannot lie in %" PRIu64 " bytes",
                           header.count, payload_bytes);
    const uint64_t expected = payload_layout(codec, type, header.count).bytes;
    if (header.payload_bytes != expected || payload_bytes != expected)
        return Error::make(damaged,
                           "chunk: %" PRIu64 " values need a payload of %" PRIu64
                           " bytes; the header says %" PRIu64 ", %" PRIu64 " came",
                           header.count, expected, header.payload_bytes, payload_bytes)
            .compared(static_cast<int64_t>(expected), static_cast<int64_t>(payload_bytes));
    return check_last_index(header);
}

// Checks the lengths of a chunk that may be packed. Its count must be the expected one.
Done check_packed_lengths(const Header &header, uint64_t unpacked_bytes, uint64_t payload_bytes) {
    if (header.payload_bytes != payload_bytes || payload_bytes > unpacked_bytes)
        return Error::make(damaged,
                           "chunk: packed, its payload has at most %" PRIu64
                           " bytes; the header says %" PRIu64 ", %" PRIu64 " came",
                           unpacked_bytes, header.payload_bytes, payload_bytes)
            .compared(static_cast<int64_t>(unpacked_bytes), static_cast<int64_t>(payload_bytes));
    return check_last_index(header);
}

} // namespace

size_t encoded_bytes(const Codec &codec, DataType type, uint64_t count) {
    return header_bytes + payload_layout(codec, type, count).bytes;
}

size_t most_encoded_bytes(const Codec &codec, DataType type, uint64_t count) {
    const uint64_t bucket = codec.bucket;
    const size_t most = encoded_bytes(codec, type, count);
    if (!codec.skips_incomplete || count < bucket) return most;
    // The largest shorter chunk has one value less than whole buckets: all but one value of its
    // last bucket travel as values.
    return std::max(most, encoded_bytes(codec, type, count / bucket * bucket - 1));
}

Encoding encoding_of(const Codec &codec, DataType type) {
    return {.type_bytes = type_bytes(type),
            .needs_whole_chunks = codec.has_whole_buckets(),
            .most_bytes = [codec, type](uint64_t count) {
                return most_encoded_bytes(codec, type, count);
            }};
}

Encoding encoding_of(const Codec &codec, const Codec &other, DataType type) {
    return {.type_bytes = type_bytes(type),
            .needs_whole_chunks = codec.has_whole_buckets() || other.has_whole_buckets(),
            .most_bytes = [codec, other, type](uint64_t count) {
                return std::max(most_encoded_bytes(codec, type, count),
                                most_encoded_bytes(other, type, count));
            }};
}

uint16_t nmse_word(double nmse) {
    constexpr double largest = std::numeric_limits<float>::max();
    if (!(nmse > 0)) return nmse == 0 ? 0 : largest_nmse_word;
    if (nmse > largest) return largest_nmse_word;
    auto narrow = static_cast<float>(nmse);
    if (narrow < nmse) narrow = std::nextafter(narrow, std::numeric_limits<float>::infinity());
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(narrow) + 0xFFFF) >> 16);
}

double nmse_of(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

std::optional<uint64_t> stated_count(std::span<const std::byte> bytes) {
    if (bytes.size() < header_bytes) return std::nullopt;
    return read_header(bytes).count;
}

uint16_t sampled_nmse(std::span<const std::byte> header) {
    return read_header(header).sampled_nmse;
}

Noise stated_noise(std::span<const std::byte> header) {
    const Header taken = read_header(header);
    return {.key = taken.noise_key, .call = taken.call, .first_index = taken.first_index};
}

// Returns the header's field for the bucket, which codecs without one have for another number.
static uint32_t bucket_field(const Codec &codec) {
    if (codec.row().takes(SpecKey::ratio)) return codec.share;
    if (codec.row().takes(SpecKey::threshold)) return std::bit_cast<uint32_t>(codec.threshold);
    return codec.has_grid() ? bound_bits(codec) : codec.bucket;
}

static uint8_t flags_of(const Codec &codec) {
    const unsigned skips = codec.skips_incomplete ? flag_skips_incomplete : 0,
                   ocp = codec.scaling == Scaling::ocp ? flag_ocp_scale : 0,
                   linf = codec.norm == BucketNorm::linf ? flag_linf_norm : 0,
                   exponential = codec.levels == Levels::exponential ? flag_exponential_levels : 0,
                   packs = codec.packs ? flag_packs : 0,
                   relative = codec.is_relative ? flag_relative : 0,
                   entropy = codec.codes_entropy ? flag_codes_entropy : 0;
    return static_cast<uint8_t>(skips | ocp | linf | exponential | packs | relative | entropy);
}

void write_header(const Codec &codec, const ChunkInfo &chunk, std::byte *dst) {
    const bool draws = codec.draws_noise();
    const Header header{
        .magic = chunk_magic,
        .version = chunk_version,
        .codec = static_cast<uint8_t>(codec.id),
        .type = static_cast<uint8_t>(chunk.type),
        .rounding = static_cast<uint8_t>(codec.rounding),
        .bits = codec.bits,
        .flags = flags_of(codec),
        .sampled_nmse = chunk.sampled_nmse,
        .bucket = bucket_field(codec),
        .count = chunk.count,
        .first_index = chunk.first_index,
        .payload_bytes = payload_layout(codec, chunk.type, chunk.count).bytes,
        .noise_key = draws ? chunk.noise_key : 0,
        .call = draws ? chunk.call : 0,
        .crc = 0,
        .rotation = codec.rotation,
    };
    std::memcpy(dst, &header, sizeof header);
}

static Result<Header> take_header(std::span<const std::byte> bytes) {
    if (bytes.size() < header_bytes)
        return Error::make(damaged, "chunk: %zu bytes are less than its header of %zu",
                           bytes.size(), header_bytes);
    const Header header = read_header(bytes);
    QCCL_TRY(check_fixed_fields(header));
    return header;
}

// Reads what the header says, without its lengths.
static Result<OpenChunk> read_fields(const Header &header) {
    QCCL_TRY(const Codec codec, read_codec(header));
    const auto type = to_type(header.type);
    if (!type || (!codec.is_lossless() && !info(*type).is_float))
        return Error::make(damaged, "chunk: type %u cannot be in it", header.type);
    if (!codec.draws_noise() && (header.noise_key != 0 || header.call != 0))
        return Error::make(damaged, "chunk: noise without stochastic rounding");
    return OpenChunk{codec,
                     {*type, header.count, header.first_index, header.noise_key, header.call,
                      header.sampled_nmse},
                     {}};
}

static Result<OpenChunk> open_header(const Header &header, uint64_t payload_bytes) {
    QCCL_TRY(const OpenChunk open, read_fields(header));
    QCCL_TRY(check_lengths(header, open.codec, open.chunk.type, payload_bytes));
    return open;
}

static Result<OpenChunk> open_chunk(const Header &header, std::span<const std::byte> payload) {
    QCCL_TRY(OpenChunk open, open_header(header, payload.size()));
    QCCL_TRY(check_payload(open.codec,
                           payload_layout(open.codec, open.chunk.type, open.chunk.count), payload));
    open.payload = payload;
    return open;
}

static Done check_kind(const OpenChunk &open, const Codec &codec, DataType type, uint64_t count) {
    Codec expected = codec.without_use();
    expected.seed = 0;
    expected.clip = open.codec.clip;
    expected.momentum = open.codec.momentum;
    expected.warm_up = open.codec.warm_up;
    if (open.codec != expected || open.chunk.type != type)
        return Error::make(damaged, "chunk: %s of %s came where %s of %s was expected",
                           spec(open.codec).c_str(), name(open.chunk.type), spec(expected).c_str(),
                           name(type));
    if (open.chunk.count != count)
        return Error::make(damaged,
                           "chunk: %" PRIu64 " values came where %" PRIu64 " were expected",
                           open.chunk.count, count)
            .compared(static_cast<int64_t>(count), static_cast<int64_t>(open.chunk.count));
    return {};
}

Result<OpenChunk> open_chunk(std::span<const std::byte> bytes) {
    QCCL_TRY(const Header header, take_header(bytes));
    return open_chunk(header, bytes.subspan(header_bytes));
}

Result<OpenChunk> open_chunk(std::span<const std::byte> bytes, const Codec &codec, DataType type,
                             uint64_t count) {
    QCCL_TRY(const OpenChunk open, open_chunk(bytes));
    QCCL_TRY(check_kind(open, codec, type, count));
    return open;
}

Result<OpenChunk> open_chunk(std::span<const std::byte> header, std::span<const std::byte> payload,
                             const Codec &codec, DataType type, uint64_t count) {
    QCCL_TRY(const Header taken, take_header(header));
    QCCL_TRY(const OpenChunk open, open_chunk(taken, payload));
    QCCL_TRY(check_kind(open, codec, type, count));
    return open;
}

Result<OpenChunk> open_header(std::span<const std::byte> header, uint64_t payload_bytes,
                              const Codec &codec, DataType type, uint64_t count) {
    QCCL_TRY(const Header taken, take_header(header));
    QCCL_TRY(const OpenChunk open, open_header(taken, payload_bytes));
    QCCL_TRY(check_kind(open, codec, type, count));
    return open;
}

// ---- Packed chunks

void set_payload_bytes(std::byte *header, uint64_t bytes) {
    std::memcpy(header + offsetof(Header, payload_bytes), &bytes, sizeof bytes);
}

Result<PackedChunk> open_packed(std::span<const std::byte> header, uint64_t payload_bytes,
                                const Codec &codec, DataType type, uint64_t count) {
    QCCL_TRY(const Header taken, take_header(header));
    QCCL_TRY(const OpenChunk open, read_fields(taken));
    QCCL_TRY(check_kind(open, codec, type, count));
    const uint64_t unpacked_bytes = payload_layout(open.codec, type, count).bytes;
    if (open.codec.packs)
        QCCL_TRY(check_packed_lengths(taken, unpacked_bytes, payload_bytes));
    else
        QCCL_TRY(check_lengths(taken, open.codec, type, payload_bytes));
    return PackedChunk{open.codec, open.chunk, payload_bytes < unpacked_bytes};
}

// ---- Seals

namespace {

// The checksum field itself counts as zero.
uint32_t checksum_of(std::span<const std::byte> chunk) {
    Header header = read_header(chunk);
    header.crc = 0;
    return crc32c(chunk.subspan(header_bytes), crc32c(std::as_bytes(std::span(&header, 1))));
}

} // namespace

void add_checksum(std::span<std::byte> chunk) {
    Header header = read_header(chunk);
    header.flags |= flag_checksum;
    std::memcpy(chunk.data(), &header, sizeof header);
    header.crc = checksum_of(chunk);
    std::memcpy(chunk.data(), &header, sizeof header);
}

void drop_checksum(std::byte *header) {
    Header read = read_header({header, header_bytes});
    read.flags &= static_cast<uint8_t>(~flag_checksum);
    read.crc = 0;
    std::memcpy(header, &read, sizeof read);
}

Done verify_checksum(std::span<const std::byte> chunk) {
    if (chunk.size() < header_bytes)
        return Error::make(damaged, "chunk: %zu bytes are less than its header of %zu",
                           chunk.size(), header_bytes);
    const Header header = read_header(chunk);
    if ((header.flags & flag_checksum) == 0)
        return Error::make(damaged, "chunk: it has no checksum");
    if (const uint32_t crc = checksum_of(chunk); crc != header.crc)
        return Error::make(damaged,
                           "chunk: its checksum is 0x%08" PRIX32 ", its bytes give 0x%08" PRIX32,
                           header.crc, crc);
    return {};
}

} // namespace qccl
