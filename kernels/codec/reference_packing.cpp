// The reference of packed payloads: the steps of packing.hpp, one symbol at a time.
#include "kernels/codec/grid.hpp"
#include "kernels/codec/packing.hpp"
#include "kernels/codec/reference.hpp"

namespace qccl {

namespace {

// ---- Values, symbols and raw bits

// A value of `Bits` divided into one or two symbols below its sign, and the other bits.
template <class Bits, unsigned streams> struct DividedValue {
    static constexpr unsigned width = 8 * sizeof(Bits), low = width - 1 - 8 * streams;
    static constexpr Bits low_mask = (Bits{1} << low) - 1;

    static uint8_t symbol(Bits bits, unsigned stream) {
        return static_cast<uint8_t>(bits >> (width - 9 - 8 * stream));
    }
    // The sign above the low bits.
    static Bits raw(Bits bits) {
        return static_cast<Bits>((bits & low_mask) | bits >> (width - 1) << low);
    }
    static Bits value(Bits raw, const uint8_t *symbols) {
        Bits bits = static_cast<Bits>((raw & low_mask) | raw >> low << (width - 1));
        for (unsigned i = 0; i < streams; i++)
            bits = static_cast<Bits>(bits | Bits{symbols[i]} << (width - 9 - 8 * i));
        return bits;
    }
};

// Raw bits lie in two planes, the lower `Low` of them first.
template <class Bits, unsigned streams, class Low, class High, class Byte> struct RawPlanes {
    static constexpr bool has_high = sizeof(Bits) > sizeof(Low) + streams;
    Byte *low, *high;

    RawPlanes(Byte *raw, size_t count) : low(raw), high(raw + count * sizeof(Low)) {}
    void write(size_t i, Bits raw) const {
        store_bits(low, i, static_cast<Low>(raw));
        if constexpr (has_high) store_bits(high, i, static_cast<High>(raw >> 8 * sizeof(Low)));
    }
    Bits read(size_t i) const {
        Bits raw = load_bits<Low>(low, i);
        if constexpr (has_high)
            raw |= static_cast<Bits>(Bits{load_bits<High>(high, i)} << 8 * sizeof(Low));
        return raw;
    }
};

template <class Bits, unsigned streams, class Low, class High> struct ValueSteps {
    using Divided = DividedValue<Bits, streams>;
    template <class Byte> using Planes = RawPlanes<Bits, streams, Low, High, Byte>;

    static void split(SymbolSpan span, const std::byte *payload, uint8_t *const symbols[2],
                      std::byte *raw) {
        const Planes<std::byte> planes(raw, span.count);
        for (size_t i = 0; i < span.count; i++) {
            const auto bits = load_bits<Bits>(payload, span.first + i);
            for (unsigned s = 0; s < streams; s++) symbols[s][i] = Divided::symbol(bits, s);
            planes.write(i, Divided::raw(bits));
        }
    }

    static void join(SymbolSpan span, const uint8_t *const symbols[2], const std::byte *raw,
                     std::byte *payload) {
        const Planes<const std::byte> planes(raw, span.count);
        for (size_t i = 0; i < span.count; i++) {
            const uint8_t of_value[2] = {symbols[0][i], symbols[streams - 1][i]};
            store_bits(payload, span.first + i, Divided::value(planes.read(i), of_value));
        }
    }

    static void split_omitting(SymbolSpan span, OmittedZeros zeros, const std::byte *payload,
                               uint8_t *const symbols[2], std::byte *raw) {
        const Planes<std::byte> planes(raw, zeros.others);
        size_t other = 0;
        for (size_t i = 0; i < span.count; i++) {
            const auto bits = load_bits<Bits>(payload, span.first + i);
            symbols[0][i] = bits == 0 ? zeros.symbol : Divided::symbol(bits, 0);
            if (bits == 0) continue;
            if constexpr (streams == 2) symbols[1][other] = Divided::symbol(bits, 1);
            planes.write(other++, Divided::raw(bits));
        }
    }

    static void join_omitting(SymbolSpan span, OmittedZeros zeros, const uint8_t *const symbols[2],
                              const std::byte *raw, std::byte *payload) {
        const Planes<const std::byte> planes(raw, zeros.others);
        size_t other = 0;
        for (size_t i = 0; i < span.count; i++) {
            Bits bits = 0;
            if (symbols[0][i] != zeros.symbol) {
                const uint8_t of_value[2] = {symbols[0][i],
                                             streams == 2 ? symbols[1][other] : uint8_t{0}};
                bits = Divided::value(planes.read(other++), of_value);
            }
            store_bits(payload, span.first + i, bits);
        }
    }
};

// Calls step(steps of the values' type).
template <class Step> void with_value_steps(SymbolForm form, Step &&step) {
    if (form == SymbolForm::halves) return step(ValueSteps<uint16_t, 1, uint8_t, uint8_t>());
    if (form == SymbolForm::floats) return step(ValueSteps<uint32_t, 1, uint16_t, uint8_t>());
    step(ValueSteps<uint64_t, 2, uint32_t, uint16_t>());
}

// ---- Codes

// A range whose codes have so many bits and lie in one plane, behind `raw`.
struct LowCodes {
    Codec codec;
    PayloadLayout layout;
    ChunkRange range;

    explicit LowCodes(unsigned bits) {
        codec.bits = static_cast<uint8_t>(bits);
        range.codec = &codec;
        range.layout = &layout;
    }
    LowCodes(const LowCodes &) = delete;
    LowCodes &operator=(const LowCodes &) = delete;
};

void split_codes(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                 const std::byte *payload, uint8_t *symbols, std::byte *raw) {
    LowCodes low(source.low_bits);
    GroupCodes low_codes{};
    for (size_t i = 0; i < span.count; i++) {
        const uint64_t value = span.first + i;
        if (source.form == SymbolForm::pairs) {
            const uint64_t first = value / 16 * group_values + value % 16;
            symbols[i] = static_cast<uint8_t>(read_code(whole, payload, first) |
                                              read_code(whole, payload, first + 16) << 3);
            continue;
        }
        const uint32_t code = read_code(whole, payload, value);
        symbols[i] = static_cast<uint8_t>(code >> source.low_bits);
        if (source.low_bits == 0) continue;
        low_codes[i % group_values] = code & ((1U << source.low_bits) - 1);
        if (i % group_values == group_values - 1)
            write_group(low.range, raw, i / group_values, low_codes);
    }
}

void join_codes(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                const uint8_t *symbols, const std::byte *raw, std::byte *payload) {
    const size_t of_group = source.form == SymbolForm::pairs ? group_values / 2 : group_values;
    LowCodes low(source.low_bits);
    GroupCodes codes{};
    for (size_t i = 0; i < span.count; i++) {
        const size_t place = i % of_group;
        if (source.form == SymbolForm::pairs) {
            codes[place] = symbols[i] & 7U;
            codes[place + 16] = symbols[i] >> 3U;
        } else {
            codes[place] = uint32_t{symbols[i]} << source.low_bits;
            if (source.low_bits != 0) codes[place] |= read_code(low.range, raw, i);
        }
        if (place == of_group - 1) write_group(whole, payload, (span.first + i) / of_group, codes);
    }
}

void split(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
           const std::byte *payload, uint8_t *const streams[2], std::byte *raw) {
    if (!source.has_values()) return split_codes(whole, source, span, payload, streams[0], raw);
    with_value_steps(source.form, [&](auto steps) { steps.split(span, payload, streams, raw); });
}

void join(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
          const uint8_t *const streams[2], const std::byte *raw, std::byte *payload) {
    if (!source.has_values()) return join_codes(whole, source, span, streams[0], raw, payload);
    with_value_steps(source.form, [&](auto steps) { steps.join(span, streams, raw, payload); });
}

void split_omitting(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                    const std::byte *payload, uint8_t *const streams[2], std::byte *raw) {
    with_value_steps(source.form,
                     [&](auto steps) { steps.split_omitting(span, zeros, payload, streams, raw); });
}

void join_omitting(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                   const uint8_t *const streams[2], const std::byte *raw, std::byte *payload) {
    with_value_steps(source.form,
                     [&](auto steps) { steps.join_omitting(span, zeros, streams, raw, payload); });
}

// ---- Blocks of values on a grid

// The codes of a block, and their width; raw_width if a value is no multiple of the step.
template <class T> struct BlockCodes {
    uint32_t codes[grid_block] = {};
    uint8_t width = 0;

    BlockCodes(const ValueGrid<T> &grid, const T *values, size_t count) {
        uint32_t all = 0;
        for (size_t i = 0; i < count; i++) {
            const T x = load_bits<T>(values, i), q = grid.multiple(x), y = q * grid.step;
            const bool has_code = q <= T(largest_multiple) && q >= T(-largest_multiple) &&
                                  std::memcmp(&x, &y, sizeof x) == 0; // -0 is none
            if (!has_code) {
                width = raw_width;
                return;
            }
            codes[i] = code_of_multiple(static_cast<int32_t>(q));
            all |= codes[i];
        }
        width = static_cast<uint8_t>(std::bit_width(all));
    }

    // The same of a pointwise bound, and the least place of the block's numbers.
    uint32_t base = 0;
    BlockCodes(const PointGrid<T> &grid, const T *values, size_t count) {
        using Bits = typename PointGrid<T>::Bits;
        const Bits none = grid.last_place() + 1;
        const auto place_of = [&](size_t i) {
            const Bits number = load_bits<Bits>(values, i) & PointGrid<T>::magnitude;
            return number >> grid.shift << grid.shift == number ? number >> grid.shift : none;
        };
        Bits lowest = none;
        for (size_t i = 0; i < count; i++)
            if (const Bits place = place_of(i); place != 0) lowest = std::min(lowest, place);
        base = lowest == none ? 0 : static_cast<uint32_t>(lowest);
        uint32_t all = 0;
        for (size_t i = 0; i < count; i++) {
            const Bits place = place_of(i), distance = place == 0 ? 0 : place - base + 1;
            const bool has_code =
                place == 0 || (place >= grid.least_place() && place <= grid.last_place() &&
                               distance <= largest_multiple);
            if (!has_code) {
                width = raw_width;
                return;
            }
            const Bits sign = load_bits<Bits>(values, i) >> (8 * sizeof(Bits) - 1);
            codes[i] = static_cast<uint32_t>(distance << 1 | sign);
            all |= codes[i];
        }
        width = static_cast<uint8_t>(std::bit_width(all));
    }
};

template <class T>
BlockCodes<T> codes_of(const PackedBlocks &blocks, const T *values, size_t count) {
    if (blocks.is_pointwise) return BlockCodes<T>(PointGrid<T>(blocks.kept), values, count);
    return BlockCodes<T>(ValueGrid<T>(blocks.step), values, count);
}

// Restores the values of a block. Returns false if a code stands for no number.
template <class T>
bool restore(const PackedBlocks &blocks, uint32_t base, const uint32_t (&codes)[grid_block],
             T *values) {
    const ValueGrid<T> grid(blocks.step);
    const PointGrid<T> points(blocks.kept);
    for (uint32_t i = 0; i < grid_block; i++) {
        if (!blocks.is_pointwise) {
            values[i] = static_cast<T>(multiple_of_code(codes[i])) * grid.step;
            continue;
        }
        using Bits = typename PointGrid<T>::Bits;
        const Bits distance = codes[i] >> 1, sign = codes[i] & 1;
        const Bits place = distance == 0 ? 0 : Bits{base} + distance - 1;
        if (distance != 0 && (place < points.least_place() || place > points.last_place()))
            return false;
        store_bits(values, i, place << points.shift | sign << (8 * sizeof(Bits) - 1));
    }
    return true;
}

// Bit k of the block's codes is word k: that of code i is bit i of the word.
void write_planes(const uint32_t (&codes)[grid_block], uint32_t width, std::byte *dst) {
    for (uint32_t k = 0; k < width; k++) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < grid_block; i++) word |= (codes[i] >> k & 1) << i;
        store_bits(dst, k, word);
    }
}

template <class T> bool pack_blocks(const T *values, size_t count, PackedBlocks &blocks) {
    for (size_t at = 0; at < count; at += grid_block) {
        const size_t there = std::min<size_t>(grid_block, count - at);
        const BlockCodes<T> coded = codes_of(blocks, values + at, there);
        const bool is_symbols = blocks.codes_entropy && coded.width <= most_symbol_width;
        const uint8_t width = is_symbols ? uint8_t{0} : coded.width;
        const size_t bytes = body_bytes(width, sizeof(T), blocks.is_pointwise);
        if (bytes > blocks.room - blocks.body_bytes) return false;
        std::byte *body = blocks.bodies + blocks.body_bytes;
        blocks.widths[at / grid_block] = width;
        blocks.body_bytes += bytes;
        if (blocks.is_pointwise && width != raw_width) {
            store_bits(body, 0, coded.base);
            body += sizeof coded.base;
        }
        if (is_symbols) {
            for (const uint32_t code : coded.codes)
                blocks.symbols[blocks.symbol_count++] = static_cast<uint8_t>(code);
        } else if (width == raw_width) {
            std::fill_n(body, bytes, std::byte{0});
            std::memcpy(body, values + at, there * sizeof(T));
        } else {
            write_planes(coded.codes, width, body);
        }
    }
    return true;
}

template <class T> bool unpack_blocks(const PackedBlocks &blocks, T *values, size_t count) {
    const std::byte *body = blocks.bodies;
    const uint8_t *symbols = blocks.symbols;
    for (size_t at = 0; at < count; at += grid_block) {
        const size_t there = std::min<size_t>(grid_block, count - at);
        const uint8_t width = blocks.widths[at / grid_block];
        const size_t bytes = body_bytes(width, sizeof(T), blocks.is_pointwise);
        const bool has_base = blocks.is_pointwise && width != raw_width;
        const uint32_t base = has_base ? load_bits<uint32_t>(body, 0) : 0;
        const std::byte *const planes = body + (has_base ? sizeof base : 0);
        T restored[grid_block] = {};
        uint32_t codes[grid_block] = {};
        if (width == raw_width)
            std::memcpy(restored, body, bytes);
        else if (blocks.codes_entropy && width == 0)
            std::copy_n(std::exchange(symbols, symbols + grid_block), grid_block, codes);
        else
            for (uint32_t k = 0; k < width; k++)
                for (uint32_t i = 0; i < grid_block; i++)
                    codes[i] |= (load_bits<uint32_t>(planes, k) >> i & 1) << k;
        if (width != raw_width && !restore(blocks, base, codes, restored)) return false;
        body += bytes;
        std::memcpy(values + at, restored, there * sizeof(T));
        constexpr T zeros[grid_block] = {};
        if (std::memcmp(restored + there, zeros, (grid_block - there) * sizeof(T)) != 0)
            return false;
    }
    return true;
}

// ---- rANS

size_t encode_symbols(const uint8_t *symbols, size_t count, const uint32_t *table, States &states,
                      uint16_t *words) {
    states.fill(least_state);
    size_t next = 0;
    for (size_t row = round_up(count, pack_lanes); row > 0; row -= pack_lanes)
        for (size_t i = row - pack_lanes; i < std::min<size_t>(row, count); i++)
            if (encode_symbol(table[symbols[i]], states[i % pack_lanes], words[next])) next++;
    return next;
}

bool decode_symbols(std::span<const std::byte> words, States &states, const uint32_t *table,
                    uint8_t *symbols, size_t count) {
    size_t left = words.size() / sizeof(uint16_t);
    for (size_t row = 0; row < count; row += pack_lanes)
        for (size_t i = std::min<size_t>(row + pack_lanes, count); i-- > row;) {
            uint32_t &state = states[i % pack_lanes];
            symbols[i] = decode_symbol(table, state);
            if (state >= least_state) continue;
            if (left == 0) return false;
            state = state << 16 | load_bits<uint16_t>(words.data(), --left);
        }
    return left == 0 && are_least(states);
}

} // namespace

const PackSteps scalar_pack_steps{.split = split,
                                  .join = join,
                                  .split_omitting = split_omitting,
                                  .join_omitting = join_omitting,
                                  .encode = encode_symbols,
                                  .decode = decode_symbols,
                                  .pack_floats = pack_blocks<float>,
                                  .pack_doubles = pack_blocks<double>,
                                  .unpack_floats = unpack_blocks<float>,
                                  .unpack_doubles = unpack_blocks<double>};

} // namespace qccl
