// Writes and reads packed payloads segment by segment: their index, the bytes that travel as they
// are, and the streams of symbols with their frequencies. The steps of a tier do the rest.
#include "kernels/codec/packing.hpp"

#include "kernels/codec/frequencies.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/number.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

// ---- What is a symbol

SymbolSource symbols_of(const ChunkRange &whole) {
    const Codec &codec = *whole.codec;
    const PayloadLayout &layout = *whole.layout;
    SymbolSource source;
    source.end = layout.bytes;
    if (codec.is_plain()) {
        source.symbols = whole.whole;
        if (codec.has_grid()) {
            source.form = SymbolForm::grid;
            source.end = whole.whole * type_bytes(codec.plain_type(whole.type));
            return source;
        }
        switch (type_bytes(codec.plain_type(whole.type))) {
        case 1: break;
        case 2: source.form = SymbolForm::halves; break;
        case 4: source.form = SymbolForm::floats; break;
        default:
            source.form = SymbolForm::doubles;
            source.streams = 2;
            break;
        }
        return source;
    }
    const PayloadSections sections(codec, layout.coded);
    size_t next = 0; // planes, or digits, come first
    for (const PayloadSection &section : sections) {
        if (section.start == &PayloadLayout::scales) break;
        source.start = layout.*section.start;
        next = source.start + section.bytes(layout.coded);
    }
    source.end = next;
    const uint64_t groups = (layout.coded + group_values - 1) / group_values;
    switch (codec.bits) {
    case 3:
        source.form = SymbolForm::pairs;
        source.bits = 6;
        source.symbols = groups * (group_values / 2);
        break;
    case 5:
    case 6:
    case 7:
        source.form = SymbolForm::codes;
        source.bits = codec.bits;
        source.symbols = groups * group_values;
        break;
    case 10:
    case 12:
        source.form = SymbolForm::high;
        source.low_bits = codec.bits - 8U;
        source.symbols = groups * group_values;
        break;
    default: source.symbols = next - source.start; break; // one plane, or digits
    }
    return source;
}

size_t SymbolSource::raw_bytes(size_t count) const {
    switch (form) {
    case SymbolForm::high: return count / 8 * low_bits;
    case SymbolForm::halves: return count;
    case SymbolForm::floats: return 3 * count;
    case SymbolForm::doubles: return 6 * count;
    case SymbolForm::bytes:
    case SymbolForm::pairs:
    case SymbolForm::codes:
    case SymbolForm::grid: break;
    }
    return 0;
}

static_assert(sizeof(States) >= packing_slack * sizeof(uint16_t));
static_assert(sizeof(PackScratch::words) >= (segment_symbols + packing_slack) * sizeof(uint16_t));

size_t SymbolSource::stored_bytes(size_t count) const { return (count * bits + 7) / 8; }

namespace {

enum class StreamMode : uint8_t { stored = 0, constant = 1, coded = 2 };
struct StreamHead {
    StreamMode mode;
    uint8_t symbol; // constant
    uint16_t words; // coded
};
static_assert(sizeof(StreamHead) == part_alignment);

// ---- Stored streams

// Calls copy(plane's bytes of the segment in the payload, their number) for each plane.
template <class Copy>
void for_each_plane(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                    Copy &&copy) {
    const size_t of_group = source.form == SymbolForm::pairs ? group_values / 2 : group_values;
    for (const PlanePart &part : plane_parts)
        if ((whole.codec->bits & part.bits) != 0)
            copy(whole.layout->*part.start + span.first / of_group * part.group_bytes(),
                 span.count / of_group * part.group_bytes());
}

bool has_planes(const SymbolSource &source) {
    return source.form == SymbolForm::pairs || source.form == SymbolForm::codes;
}

// ---- Values on a grid

bool has_doubles(const ChunkRange &whole) {
    return whole.codec->plain_type(whole.type) == DataType::float64;
}

// A relative bound's step lies behind the values.
float step_of(const ChunkRange &whole, const std::byte *payload) {
    if (!whole.codec->is_relative) return grid_step(whole.codec->bound);
    float step;
    std::memcpy(&step, payload + whole.layout->scales, sizeof step);
    return step;
}

size_t blocks_of(SymbolSpan span) { return (span.count + grid_block - 1) / grid_block; }

// Payloads lie at multiples of 16.
template <class T, class Payload> T *values_at(Payload *payload, SymbolSpan span) {
    return reinterpret_cast<T *>(payload) + span.first;
}

// ---- Zeros that are left out

// In the index, beside the length of a segment that leaves its zeros out.
constexpr uint32_t omits_zeros_flag = 1U << 31;

// What such a segment begins with.
constexpr unsigned symbol_place = 24;
static_assert(segment_symbols < 1U << symbol_place);
constexpr uint32_t omitting_head(OmittedZeros zeros) {
    return static_cast<uint32_t>(zeros.others) | uint32_t{zeros.symbol} << symbol_place;
}
constexpr OmittedZeros omitted_zeros(uint32_t head) {
    return {static_cast<uint8_t>(head >> symbol_place), head % (1U << symbol_place)};
}

template <class Bits> size_t count_zeros(const std::byte *payload, SymbolSpan span) {
    const auto *const values = values_at<const Bits>(payload, span);
    return static_cast<size_t>(std::count(values, values + span.count, Bits{0}));
}

size_t count_zeros(SymbolForm form, const std::byte *payload, SymbolSpan span) {
    if (form == SymbolForm::halves) return count_zeros<uint16_t>(payload, span);
    if (form == SymbolForm::floats) return count_zeros<uint32_t>(payload, span);
    return count_zeros<uint64_t>(payload, span);
}

// Zeros are left out if they are at least this share of a segment, and if at most this share of
// them is the number of other values that have their symbol, 0.
constexpr size_t least_zeros_share = 16, most_others_share = 8;

// ---- Segments

// Where a segment's bytes go, and how many of them there are.
struct SegmentRoom {
    std::byte *at;
    size_t room;

    // Returns where so many bytes go, or nullptr if there is no room. The bytes of the padding are
    // zero.
    std::byte *take(size_t bytes) {
        const size_t taken = aligned(bytes);
        if (taken > room) return nullptr;
        std::fill(at + bytes, at + taken, std::byte{0});
        std::byte *const start = at;
        at += taken;
        room -= taken;
        return start;
    }
};

// Bytes of a segment that have not been read yet.
struct SegmentBytes {
    std::span<const std::byte> rest;

    // Returns the next bytes, or nullptr if there are not so many, or their padding is not zero.
    const std::byte *take(size_t bytes) {
        const size_t taken = aligned(bytes);
        if (taken > rest.size()) return nullptr;
        for (size_t i = bytes; i < taken; i++)
            if (rest[i] != std::byte{0}) return nullptr;
        const std::byte *const start = rest.data();
        rest = rest.subspan(taken);
        return start;
    }
};

class SegmentPacker {
public:
    SegmentPacker(const PackSteps &steps, const ChunkRange &whole, const SymbolSource &source,
                  const std::byte *payload, PackScratch &scratch)
        : steps_(steps), whole_(whole), source_(source), payload_(payload), scratch_(scratch) {}

    bool write(SymbolSpan span, SegmentRoom &sink) {
        omits_zeros_ = false;
        if (source_.form == SymbolForm::grid) return write_blocks(span, sink);
        if (source_.has_values()) {
            const size_t zeros = count_zeros(source_.form, payload_, span);
            if (zeros * least_zeros_share >= span.count) {
                const SegmentRoom before = sink;
                if (!write_omitting({0, span.count - zeros}, span, sink)) return false;
                if (omits_zeros_) return true;
                sink = before;
            }
        }
        std::byte *const raw = sink.take(source_.raw_bytes(span.count));
        if (!raw) return false;
        uint8_t *const streams[2] = {scratch_.streams[0], scratch_.streams[1]};
        if (source_.form == SymbolForm::bytes)
            return write_stream(reinterpret_cast<const uint8_t *>(payload_) + source_.start +
                                    span.first,
                                span, sink);
        steps_.split(whole_, source_, span, payload_, streams, raw);
        for (unsigned i = 0; i < source_.streams; i++)
            if (!write_stream(streams[i], span, sink)) return false;
        return true;
    }

    // Whether the last segment leaves its zeros out.
    bool omits_zeros() const { return omits_zeros_; }

private:
    // Leaves `omits_zeros_` false if too many other values have the zeros' symbol, or no symbol is
    // left for the zeros. What it has taken of `sink` then means nothing.
    bool write_omitting(OmittedZeros zeros, SymbolSpan span, SegmentRoom &sink) {
        std::byte *const head = sink.take(sizeof(uint32_t));
        std::byte *const raw = sink.take(source_.raw_bytes(zeros.others));
        if (!head || !raw) return false;
        uint8_t *const streams[2] = {scratch_.streams[0], scratch_.streams[1]};
        steps_.split_omitting(source_, span, zeros, payload_, streams, raw);
        const auto zero_count = static_cast<uint32_t>(span.count - zeros.others);
        SymbolCounts counts = count_symbols(streams[0], span.count);
        counts[0] -= zero_count; // those of the other values are left
        if (counts[0] * most_others_share > zero_count) return true;
        if (counts[0] != 0) {
            const auto unused = std::ranges::find(counts, 0U);
            if (unused == counts.end()) return true;
            zeros.symbol = static_cast<uint8_t>(unused - counts.begin());
            steps_.split_omitting(source_, span, zeros, payload_, streams, raw);
        }
        counts[zeros.symbol] = zero_count;
        omits_zeros_ = true;
        store_bits(head, 0, omitting_head(zeros));
        if (zeros.others == 0) return write_head({StreamMode::constant, zeros.symbol, 0}, sink);
        return write_coded(streams[0], counts, span, sink) &&
               (source_.streams == 1 || write_stream(streams[1], {0, zeros.others}, sink));
    }

    bool write_blocks(SymbolSpan span, SegmentRoom &sink) {
        std::byte *const size = sink.take(sizeof(uint32_t));
        if (!size) return false;
        PackedBlocks blocks{.step = step_of(whole_, payload_),
                            .kept = kept_fraction_bits(whole_.codec->bound),
                            .is_pointwise = whole_.codec->is_pointwise,
                            .codes_entropy = whole_.codec->codes_entropy,
                            .widths = scratch_.streams[1],
                            .symbols = scratch_.streams[0],
                            .bodies = sink.at,
                            .room = sink.room};
        if (!(has_doubles(whole_)
                  ? steps_.pack_doubles(values_at<const double>(payload_, span), span.count, blocks)
                  : steps_.pack_floats(values_at<const float>(payload_, span), span.count, blocks)))
            return false;
        (void)sink.take(blocks.body_bytes);
        const auto bytes = static_cast<uint32_t>(blocks.body_bytes);
        std::memcpy(size, &bytes, sizeof bytes);
        const size_t widths = blocks_of(span);
        if (!blocks.codes_entropy) return write_bytes(blocks.widths, widths, sink);
        return write_stream(blocks.widths, {0, widths}, sink) &&
               (blocks.symbol_count == 0 ||
                write_stream(blocks.symbols, {0, blocks.symbol_count}, sink));
    }

    bool write_stream(const uint8_t *symbols, SymbolSpan span, SegmentRoom &sink) {
        if (std::memcmp(symbols, symbols + 1, span.count - 1) == 0) // each equals the next one
            return write_head({StreamMode::constant, symbols[0], 0}, sink);
        return write_coded(symbols, count_symbols(symbols, span.count), span, sink);
    }

    // At least two symbols occur.
    bool write_coded(const uint8_t *symbols, const SymbolCounts &counts, SymbolSpan span,
                     SegmentRoom &sink) {
        const Frequencies frequencies = rounded_frequencies(counts, span.count);
        std::byte table[most_frequency_bytes + part_alignment];
        const size_t table_bytes = write_frequencies(frequencies, source_.bits, table);
        make_encoder_table(frequencies, scratch_.table);
        States states;
        const size_t word_count =
            steps_.encode(symbols, span.count, scratch_.table, states, scratch_.words);
        const size_t word_bytes = word_count * sizeof(uint16_t);
        if (table_bytes + sizeof states + aligned(word_bytes) >=
            aligned(source_.stored_bytes(span.count)))
            return write_stored(symbols, span, sink);
        return write_head({StreamMode::coded, 0, static_cast<uint16_t>(word_count)}, sink) &&
               write_bytes(table, table_bytes, sink) &&
               write_bytes(scratch_.words, word_bytes, sink) &&
               write_bytes(states.data(), sizeof states, sink);
    }

    bool write_stored(const uint8_t *symbols, SymbolSpan span, SegmentRoom &sink) {
        if (!write_head({StreamMode::stored, 0, 0}, sink)) return false;
        const size_t bytes = source_.stored_bytes(span.count);
        if (!has_planes(source_)) return write_bytes(symbols, bytes, sink);
        std::byte *at = sink.take(bytes);
        if (!at) return false;
        for_each_plane(whole_, source_, span, [&](size_t start, size_t size) {
            std::memcpy(at, payload_ + start, size);
            at += size;
        });
        return true;
    }

    static bool write_head(StreamHead head, SegmentRoom &sink) {
        return write_bytes(&head, sizeof head, sink);
    }

    static bool write_bytes(const void *bytes, size_t count, SegmentRoom &sink) {
        std::byte *const at = sink.take(count);
        if (at && count != 0) std::memcpy(at, bytes, count);
        return at != nullptr;
    }

    const PackSteps &steps_;
    const ChunkRange &whole_;
    const SymbolSource &source_;
    const std::byte *const payload_;
    PackScratch &scratch_;
    bool omits_zeros_ = false;
};

class SegmentUnpacker {
public:
    SegmentUnpacker(const PackSteps &steps, const ChunkRange &whole, const SymbolSource &source,
                    std::byte *payload, PackScratch &scratch)
        : steps_(steps), whole_(whole), source_(source), payload_(payload), scratch_(scratch) {}

    bool read(SymbolSpan span, std::span<const std::byte> bytes, bool omits_zeros) {
        SegmentBytes from{bytes};
        if (omits_zeros) return read_omitting(span, from);
        if (source_.form == SymbolForm::grid) return read_blocks(span, from);
        const std::byte *const raw = from.take(source_.raw_bytes(span.count));
        if (!raw) return false;
        if (source_.form == SymbolForm::bytes)
            return read_stream(reinterpret_cast<uint8_t *>(payload_) + source_.start + span.first,
                               span, from) &&
                   from.rest.empty();
        uint8_t *const streams[2] = {scratch_.streams[0], scratch_.streams[1]};
        are_planes_read_ = false;
        for (unsigned i = 0; i < source_.streams; i++)
            if (!read_stream(streams[i], span, from)) return false;
        if (!are_planes_read_) steps_.join(whole_, source_, span, streams, raw, payload_);
        return from.rest.empty();
    }

private:
    bool read_omitting(SymbolSpan span, SegmentBytes &from) {
        if (!source_.has_values()) return false;
        const std::byte *const at = from.take(sizeof(uint32_t));
        if (!at) return false;
        const OmittedZeros zeros = omitted_zeros(load_bits<uint32_t>(at, 0));
        if (zeros.others > span.count) return false;
        const std::byte *const raw = from.take(source_.raw_bytes(zeros.others));
        if (!raw) return false;
        uint8_t *const streams[2] = {scratch_.streams[0], scratch_.streams[1]};
        if (!read_stream(streams[0], span, from)) return false;
        const auto found = std::count(streams[0], streams[0] + span.count, zeros.symbol);
        if (static_cast<size_t>(found) != span.count - zeros.others) return false;
        if (source_.streams == 2 && zeros.others != 0 &&
            !read_stream(streams[1], {0, zeros.others}, from))
            return false;
        steps_.join_omitting(source_, span, zeros, streams, raw, payload_);
        return from.rest.empty();
    }

    bool read_blocks(SymbolSpan span, SegmentBytes &from) {
        const std::byte *const size = from.take(sizeof(uint32_t));
        if (!size) return false;
        uint32_t bytes;
        std::memcpy(&bytes, size, sizeof bytes);
        const std::byte *const bodies = from.take(bytes);
        if (!bodies) return false;
        PackedBlocks blocks{.step = step_of(whole_, payload_),
                            .kept = kept_fraction_bits(whole_.codec->bound),
                            .is_pointwise = whole_.codec->is_pointwise,
                            .codes_entropy = whole_.codec->codes_entropy,
                            .widths = scratch_.streams[1],
                            .symbols = scratch_.streams[0],
                            .bodies = const_cast<std::byte *>(bodies)}; // it is only read
        const size_t widths = blocks_of(span);
        if (!read_widths(widths, blocks, from) || blocks.body_bytes != bytes) return false;
        if (blocks.symbol_count != 0 &&
            !read_stream(blocks.symbols, {0, blocks.symbol_count}, from))
            return false;
        const bool is_zero_behind =
            has_doubles(whole_)
                ? steps_.unpack_doubles(blocks, values_at<double>(payload_, span), span.count)
                : steps_.unpack_floats(blocks, values_at<float>(payload_, span), span.count);
        return is_zero_behind && from.rest.empty();
    }

    // Reads the widths of a segment's blocks, and adds up what they need.
    bool read_widths(size_t count, PackedBlocks &blocks, SegmentBytes &from) {
        if (blocks.codes_entropy) {
            if (!read_stream(blocks.widths, {0, count}, from)) return false;
        } else {
            const std::byte *const at = from.take(count);
            if (!at) return false;
            std::memcpy(blocks.widths, at, count);
        }
        const size_t value_bytes = has_doubles(whole_) ? sizeof(double) : sizeof(float);
        for (size_t i = 0; i < count; i++) {
            const uint8_t width = blocks.widths[i];
            if (width > most_grid_width && width != raw_width) return false;
            if (blocks.codes_entropy && width == 0) blocks.symbol_count += grid_block;
            if (blocks.codes_entropy && width != 0 && width <= most_symbol_width) return false;
            blocks.body_bytes += body_bytes(width, value_bytes, blocks.is_pointwise);
        }
        return true;
    }

    bool read_stream(uint8_t *symbols, SymbolSpan span, SegmentBytes &from) {
        const std::byte *const at = from.take(sizeof(StreamHead));
        if (!at) return false;
        StreamHead head;
        std::memcpy(&head, at, sizeof head);
        if (head.mode != StreamMode::constant && head.symbol != 0) return false;
        if (head.mode != StreamMode::coded && head.words != 0) return false;
        switch (head.mode) {
        case StreamMode::stored: return read_stored(symbols, span, from);
        case StreamMode::constant:
            if (head.symbol >> source_.bits != 0) return false;
            std::fill_n(symbols, span.count, head.symbol);
            return true;
        case StreamMode::coded: return read_coded(head.words, symbols, span, from);
        }
        return false;
    }

    bool read_stored(uint8_t *symbols, SymbolSpan span, SegmentBytes &from) {
        const size_t bytes = source_.stored_bytes(span.count);
        const std::byte *at = from.take(bytes);
        if (!at) return false;
        if (!has_planes(source_)) {
            std::memcpy(symbols, at, bytes);
            return true;
        }
        for_each_plane(whole_, source_, span, [&](size_t start, size_t size) {
            std::memcpy(payload_ + start, at, size);
            at += size;
        });
        are_planes_read_ = true;
        return true;
    }

    bool read_coded(uint16_t word_count, uint8_t *symbols, SymbolSpan span, SegmentBytes &from) {
        Frequencies frequencies{};
        const size_t table_bytes = read_frequencies(from.rest, source_.bits, frequencies);
        if (table_bytes == 0 || !from.take(table_bytes)) return false;
        States states;
        const std::byte *const words = from.take(word_count * sizeof(uint16_t));
        const std::byte *const at = from.take(sizeof states); // and slack for the words
        if (!at || !words) return false;
        std::memcpy(states.data(), at, sizeof states);
        for (const uint32_t state : states)
            if (state < least_state || state >= state_limit) return false;
        make_decoder_table(frequencies, source_.bits, scratch_.table);
        return steps_.decode({words, word_count * sizeof(uint16_t)}, states, scratch_.table,
                             symbols, span.count);
    }

    const PackSteps &steps_;
    const ChunkRange &whole_;
    const SymbolSource &source_;
    std::byte *const payload_;
    PackScratch &scratch_;
    bool are_planes_read_ = false;
};

SymbolSpan segment_of(const SymbolSource &source, uint64_t segment) {
    const uint64_t first = segment * segment_symbols;
    return {first, std::min<uint64_t>(segment_symbols, source.symbols - first)};
}

} // namespace

size_t pack_with(const PackSteps &steps, const ChunkRange &whole, const std::byte *payload,
                 std::byte *packed, PackScratch &scratch) {
    const SymbolSource source = symbols_of(whole);
    const size_t unpacked_bytes = whole.layout->bytes;
    if (unpacked_bytes == 0) return 0;
    SegmentRoom sink{packed, unpacked_bytes};
    std::byte *const index = sink.take(source.segments() * sizeof(uint32_t));
    std::byte *const rest = sink.take(unpacked_bytes - source.end);
    if (!index || !rest) return 0;
    std::memcpy(rest, payload + source.end, unpacked_bytes - source.end);
    SegmentPacker packer(steps, whole, source, payload, scratch);
    for (uint64_t i = 0; i < source.segments(); i++) {
        const size_t room = sink.room;
        if (!packer.write(segment_of(source, i), sink)) return 0;
        auto entry = static_cast<uint32_t>(room - sink.room);
        if (packer.omits_zeros()) entry |= omits_zeros_flag;
        store_bits(index, i, entry);
    }
    return sink.room == 0 ? 0 : unpacked_bytes - sink.room;
}

bool unpack_with(const PackSteps &steps, const ChunkRange &whole, std::span<const std::byte> packed,
                 std::byte *payload, PackScratch &scratch) {
    const SymbolSource source = symbols_of(whole);
    const size_t unpacked_bytes = whole.layout->bytes, rest_bytes = unpacked_bytes - source.end;
    SegmentBytes from{packed};
    const std::byte *const index = from.take(source.segments() * sizeof(uint32_t));
    const std::byte *const rest = from.take(rest_bytes);
    if (!index || !rest) return false;
    std::memcpy(payload + source.end, rest, rest_bytes);
    SegmentUnpacker unpacker(steps, whole, source, payload, scratch);
    for (uint64_t i = 0; i < source.segments(); i++) {
        const auto entry = load_bits<uint32_t>(index, i);
        const bool omits_zeros = (entry & omits_zeros_flag) != 0;
        const size_t bytes = entry & ~omits_zeros_flag;
        if (bytes > from.rest.size() ||
            !unpacker.read(segment_of(source, i), from.rest.first(bytes), omits_zeros))
            return false;
        from.rest = from.rest.subspan(bytes);
    }
    for (const Gap &gap : gaps(*whole.codec, *whole.layout)) // between planes
        if (gap.start < source.end) std::fill_n(payload + gap.start, gap.bytes, std::byte{0});
    return from.rest.empty();
}

} // namespace qccl
