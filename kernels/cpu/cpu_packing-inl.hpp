// Packs and unpacks payloads with vectors: divides codes into symbols and raw bits, and codes the
// 32 interleaved rANS states of a segment in the lanes of one to eight vectors. Doubles are divided
// by the reference, and so is everything coded where vectors have no fixed size. Compiled once per
// target.

#if defined(QCCL_CPU_PACKING_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_PACKING_INL
#undef QCCL_CPU_PACKING_INL
#else
#define QCCL_CPU_PACKING_INL
#endif

#include "kernels/codec/packing.hpp"
#include "kernels/cpu/cpu_grid-inl.hpp"
#include "kernels/cpu/cpu_group-inl.hpp"
#include "kernels/cpu/cpu_values_split-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Codes

// Joins the codes of values i and i + 16 of each group.
HWY_INLINE void join_pairs(const uint8_t *codes, size_t groups, uint8_t *symbols) {
    const HalfGroup d;
    for (size_t g = 0; g < groups; g++) {
        const auto low = hn::LoadU(d, codes + g * group_values),
                   high = hn::LoadU(d, codes + g * group_values + group_values / 2);
        hn::StoreU(hn::Or(low, hn::ShiftLeft<3>(high)), d, symbols + g * (group_values / 2));
    }
}
HWY_INLINE void split_pairs(const uint8_t *symbols, size_t groups, uint8_t *codes) {
    const HalfGroup d;
    for (size_t g = 0; g < groups; g++) {
        const auto pairs = hn::LoadU(d, symbols + g * (group_values / 2));
        hn::StoreU(field<0>(pairs, 7), d, codes + g * group_values);
        hn::StoreU(hn::ShiftRight<3>(pairs), d, codes + g * group_values + group_values / 2);
    }
}

// Codes of 8 + low_bits bits: `low` is their lower byte, and `high` has the bits above. The symbol
// is the upper byte.
template <int low_bits>
HWY_INLINE void split_high(const uint8_t *low, size_t count, uint8_t *high, uint8_t *symbols) {
    const HalfGroup d;
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto lower = hn::LoadU(d, low + i), upper = hn::LoadU(d, high + i);
        hn::StoreU(hn::Or(hn::ShiftRight<low_bits>(lower), hn::ShiftLeft<8 - low_bits>(upper)), d,
                   symbols + i);
        hn::StoreU(field<0>(lower, (1 << low_bits) - 1), d, high + i); // now the raw bits
    }
}
template <int low_bits>
HWY_INLINE void join_high(const uint8_t *symbols, size_t count, uint8_t *raw, uint8_t *low) {
    const HalfGroup d;
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto symbol = hn::LoadU(d, symbols + i), rest = hn::LoadU(d, raw + i);
        hn::StoreU(hn::Or(hn::ShiftLeft<low_bits>(symbol), rest), d, low + i);
        hn::StoreU(hn::ShiftRight<8 - low_bits>(symbol), d, raw + i); // now the upper bits
    }
}

// Codes of `form` in the planes of a segment, a tile at a time.
HWY_INLINE void split_planes(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                             const std::byte *payload, uint8_t *symbols, std::byte *raw) {
    const size_t of_group = source.form == SymbolForm::pairs ? group_values / 2 : group_values;
    const uint64_t first = span.first / of_group;
    const auto *const low = reinterpret_cast<const uint8_t *>(payload) + whole.layout->plane8;
    const int packed_bits = whole.codec->bits & 7;
    HWY_ALIGN uint8_t codes[tile_values];
    for (size_t g = 0; g < span.count / of_group; g += tile_groups) {
        const size_t groups = std::min(tile_groups, span.count / of_group - g);
        uint8_t *const to = symbols + g * of_group;
        unpack_groups(source.form == SymbolForm::codes ? to : codes, groups, packed_bits, 0,
                      *whole.layout, first + g, payload);
        if (source.form == SymbolForm::pairs) join_pairs(codes, groups, to);
        if (source.form != SymbolForm::high) continue;
        const uint8_t *const bytes = low + (first + g) * group_values;
        if (source.low_bits == 2)
            split_high<2>(bytes, groups * group_values, codes, to);
        else
            split_high<4>(bytes, groups * group_values, codes, to);
        pack_groups(codes, groups, static_cast<int>(source.low_bits), PayloadLayout(), g, raw);
    }
}

HWY_INLINE void join_planes(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                            const uint8_t *symbols, const std::byte *raw, std::byte *payload) {
    const size_t of_group = source.form == SymbolForm::pairs ? group_values / 2 : group_values;
    const uint64_t first = span.first / of_group;
    auto *const low = reinterpret_cast<uint8_t *>(payload) + whole.layout->plane8;
    const int packed_bits = whole.codec->bits & 7;
    HWY_ALIGN uint8_t codes[tile_values];
    for (size_t g = 0; g < span.count / of_group; g += tile_groups) {
        const size_t groups = std::min(tile_groups, span.count / of_group - g);
        const uint8_t *const from = symbols + g * of_group;
        if (source.form == SymbolForm::pairs) split_pairs(from, groups, codes);
        if (source.form == SymbolForm::high) {
            unpack_groups(codes, groups, static_cast<int>(source.low_bits), 0, PayloadLayout(), g,
                          raw);
            uint8_t *const bytes = low + (first + g) * group_values;
            if (source.low_bits == 2)
                join_high<2>(from, groups * group_values, codes, bytes);
            else
                join_high<4>(from, groups * group_values, codes, bytes);
        }
        pack_groups(source.form == SymbolForm::codes ? from : codes, groups, packed_bits,
                    *whole.layout, first + g, payload);
    }
}

// ---- Segments

inline void split_symbols(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                          const std::byte *payload, uint8_t *const streams[2], std::byte *raw) {
    if (source.form == SymbolForm::halves)
        split_values<HalfPlanes>(span, payload, streams[0], raw);
    else if (source.form == SymbolForm::floats)
        split_values<FloatPlanes>(span, payload, streams[0], raw);
    else if (source.form == SymbolForm::doubles)
        scalar_pack_steps.split(whole, source, span, payload, streams, raw);
    else
        split_planes(whole, source, span, payload, streams[0], raw);
}

inline void join_symbols(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                         const uint8_t *const streams[2], const std::byte *raw,
                         std::byte *payload) {
    if (source.form == SymbolForm::halves)
        join_values<HalfPlanes>(span, streams[0], raw, payload);
    else if (source.form == SymbolForm::floats)
        join_values<FloatPlanes>(span, streams[0], raw, payload);
    else if (source.form == SymbolForm::doubles)
        scalar_pack_steps.join(whole, source, span, streams, raw, payload);
    else
        join_planes(whole, source, span, streams[0], raw, payload);
}

inline void split_omitting(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                           const std::byte *payload, uint8_t *const streams[2], std::byte *raw) {
#if QCCL_HAS_SPREAD
    if (source.form == SymbolForm::halves)
        return split_others<HalfPlanes>(span, zeros, payload, streams[0], raw);
    if (source.form == SymbolForm::floats)
        return split_others<FloatPlanes>(span, zeros, payload, streams[0], raw);
#endif
    scalar_pack_steps.split_omitting(source, span, zeros, payload, streams, raw);
}

inline void join_omitting(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                          const uint8_t *const streams[2], const std::byte *raw,
                          std::byte *payload) {
#if QCCL_HAS_SPREAD
    if (source.form == SymbolForm::halves)
        return join_others<HalfPlanes>(span, zeros, streams[0], raw, payload);
    if (source.form == SymbolForm::floats)
        return join_others<FloatPlanes>(span, zeros, streams[0], raw, payload);
#endif
    scalar_pack_steps.join_omitting(source, span, zeros, streams, raw, payload);
}

// ---- rANS

#if !QCCL_HAS_SPREAD

// Vectors without a fixed size cannot be held in an array, and emulated ones are slower than the
// reference.
inline size_t encode_symbols(const uint8_t *symbols, size_t count, const uint32_t *table,
                             States &states, uint16_t *words) {
    return scalar_pack_steps.encode(symbols, count, table, states, words);
}
inline bool decode_symbols(std::span<const std::byte> words, States &states, const uint32_t *table,
                           uint8_t *symbols, size_t count) {
    return scalar_pack_steps.decode(words, states, table, symbols, count);
}

#else

// A row of states, one for each lane.
inline constexpr size_t row_vectors = pack_lanes / row_lanes;
struct StateRow {
    WordVector of[row_vectors];

    // g++ compiles an implicit constructor for the wrong target on NEON.
    HWY_INLINE StateRow() {} // NOLINT(modernize-use-equals-default)
    HWY_INLINE void load(const States &states) {
        for (size_t i = 0; i < row_vectors; i++)
            of[i] = hn::LoadU(Words(), states.data() + i * row_lanes);
    }
    HWY_INLINE void store(States &states) const {
        for (size_t i = 0; i < row_vectors; i++)
            hn::StoreU(of[i], Words(), states.data() + i * row_lanes);
    }
};

HWY_INLINE WordVector entries_at(const uint32_t *table, WordVector index) {
    return hn::GatherIndex(Words(), table, hn::BitCast(Ints(), index));
}

// The encoder's entries of all symbols. On AVX-512 they fill 16 of the 32 registers: to gather them
// from memory takes as long as all else that a row needs.
class EncoderEntries {
#if HWY_TARGET <= HWY_AVX3
public:
    HWY_INLINE explicit EncoderEntries(const uint32_t *table) {
        for (size_t i = 0; i < vectors; i++) of_[i] = hn::LoadU(Words(), table + i * row_lanes).raw;
    }
    HWY_INLINE WordVector at(WordVector symbols) const {
        const Words d;
        WordVector found[vectors / 2];
        for (size_t i = 0; i < vectors / 2; i++) // by the lower 5 bits
            found[i] =
                WordVector{_mm512_permutex2var_epi32(of_[2 * i], symbols.raw, of_[2 * i + 1])};
        uint32_t bit = 128;
        for (size_t left = vectors / 4; left > 0; left /= 2, bit /= 2) {
            const auto is_set = hn::TestBit(symbols, hn::Set(d, bit));
            for (size_t i = 0; i < left; i++)
                found[i] = hn::IfThenElse(is_set, found[i + left], found[i]);
        }
        return found[0];
    }

private:
    static constexpr size_t vectors = 256 / row_lanes;
    static_assert(vectors == 16);
    __m512i of_[vectors];
#else
public:
    HWY_INLINE explicit EncoderEntries(const uint32_t *table) : table_(table) {}
    HWY_INLINE WordVector at(WordVector symbols) const { return entries_at(table_, symbols); }

private:
    const uint32_t *table_;
#endif
};

// Codes whole rows, the last one first.
HWY_INLINE uint16_t *encode_rows(const uint8_t *symbols, size_t rows, const uint32_t *table,
                                 StateRow &row, uint16_t *words) {
    const Words d;
    const hn::Rebind<uint8_t, Words> bytes;
    const hn::Rebind<uint16_t, Words> halves;
    const Ints di;
    const Floats df;
    const EncoderEntries entries(table);
    while (rows-- > 0) {
        for (size_t i = 0; i < row_vectors; i++) {
            WordVector state = row.of[i];
            const auto symbol = hn::LoadU(bytes, symbols + rows * pack_lanes + i * row_lanes);
            const WordVector entry = entries.at(hn::PromoteTo(d, symbol));
            const WordVector frequency = hn::And(entry, hn::Set(d, 0xFFFFU)),
                             start = hn::ShiftRight<16>(entry);
            // All numbers are below 2^31, so signed comparisons work.
            const auto upper = hn::ShiftRight<static_cast<int>(state_shift)>(state);
            const auto puts_out = hn::Not(
                hn::RebindMask(d, hn::Lt(hn::BitCast(di, upper), hn::BitCast(di, frequency))));
            hn::StoreU(hn::TruncateTo(halves, hn::Compress(state, puts_out)), halves, words);
            words += hn::CountTrue(d, puts_out);
            state = hn::IfThenElse(puts_out, hn::ShiftRight<16>(state), state);
            // The quotient is below 2^19. The reciprocal is too small by 2^-22 of it, and three
            // roundings change the product by 3 * 2^-24 of it: so the product is below the
            // quotient, and by less than one. No lane waits for the division.
            const IntVector f = hn::BitCast(di, frequency);
            const FloatVector reciprocal = hn::Div(hn::Set(df, 1 - 0x1p-22F), hn::ConvertTo(df, f));
            const FloatVector about =
                hn::Mul(hn::ConvertTo(df, hn::BitCast(di, state)), reciprocal);
            const IntVector quotient = hn::ConvertTo(di, about);
            const IntVector rest = hn::Sub(hn::BitCast(di, state), hn::Mul(quotient, f));
            const IntVector next =
                hn::Add(hn::ShiftLeft<static_cast<int>(probability_bits)>(quotient), rest);
            // One more in the quotient is one f less in the rest.
            const IntVector one_more =
                hn::Sub(hn::Set(di, static_cast<int32_t>(probability_sum)), f);
            const IntVector added = hn::IfThenZeroElse(hn::Lt(rest, f), one_more);
            row.of[i] = hn::Add(hn::BitCast(d, hn::Add(next, added)), start);
        }
    }
    return words;
}

inline size_t encode_symbols(const uint8_t *symbols, size_t count, const uint32_t *table,
                             States &states, uint16_t *words) {
    const size_t whole = count / pack_lanes * pack_lanes;
    states.fill(least_state);
    uint16_t *word = words;
    for (size_t i = whole; i < count; i++)
        if (encode_symbol(table[symbols[i]], states[i - whole], *word)) word++;
    StateRow row;
    row.load(states);
    word = encode_rows(symbols, whole / pack_lanes, table, row, word);
    row.store(states);
    return static_cast<size_t>(word - words);
}

// Decodes whole rows. Returns how many words are left, or nothing if there were too few.
HWY_INLINE bool decode_rows(const std::byte *words, size_t &left, StateRow &row,
                            const uint32_t *table, uint8_t *symbols, size_t rows) {
    const Words d;
    const hn::Rebind<uint8_t, Words> bytes;
    const hn::Rebind<uint16_t, Words> halves;
    const Ints di;
    const auto *const first = reinterpret_cast<const uint16_t *>(words);
    for (size_t r = 0; r < rows; r++) {
        hn::Mask<Words> takes[row_vectors];
        size_t taken[row_vectors], sum = 0;
        for (size_t i = 0; i < row_vectors; i++) {
            const WordVector state = row.of[i];
            const WordVector entry =
                entries_at(table, hn::And(state, hn::Set(d, probability_sum - 1)));
            hn::StoreU(hn::TruncateTo(bytes, entry), bytes,
                       symbols + r * pack_lanes + i * row_lanes);
            const WordVector frequency =
                hn::Add(hn::And(hn::ShiftRight<8>(entry), hn::Set(d, 0xFFFU)), hn::Set(d, 1U));
            const WordVector upper = hn::ShiftRight<static_cast<int>(probability_bits)>(state);
            row.of[i] = hn::Add(hn::Mul(frequency, upper), hn::ShiftRight<20>(entry));
            takes[i] = hn::RebindMask(d, hn::Lt(hn::BitCast(di, row.of[i]),
                                                hn::Set(di, static_cast<int32_t>(least_state))));
            taken[i] = hn::CountTrue(d, takes[i]);
            sum += taken[i];
        }
        if (sum > left) return false;
        left -= sum;
        const uint16_t *word = first + left;
        for (size_t i = 0; i < row_vectors; i++) {
            const WordVector next = hn::PromoteTo(d, hn::LoadU(halves, word));
            word += taken[i];
            row.of[i] = hn::IfThenElse(
                takes[i], hn::Or(hn::ShiftLeft<16>(row.of[i]), spread_over(next, takes[i])),
                row.of[i]);
        }
    }
    return true;
}

inline bool decode_symbols(std::span<const std::byte> words, States &states, const uint32_t *table,
                           uint8_t *symbols, size_t count) {
    const size_t whole = count / pack_lanes * pack_lanes;
    size_t left = words.size() / sizeof(uint16_t);
    StateRow row;
    row.load(states);
    if (!decode_rows(words.data(), left, row, table, symbols, whole / pack_lanes)) return false;
    row.store(states);
    for (size_t i = count; i-- > whole;) {
        uint32_t &state = states[i - whole];
        symbols[i] = decode_symbol(table, state);
        if (state >= least_state) continue;
        if (left == 0) return false;
        state = state << 16 | load_bits<uint16_t>(words.data(), --left);
    }
    return left == 0 && are_least(states);
}

#endif

inline constexpr PackSteps pack_steps{
    .split = split_symbols,
    .join = join_symbols,
    .split_omitting = split_omitting,
    .join_omitting = join_omitting,
    .encode = encode_symbols,
    .decode = decode_symbols,
    .pack_floats = pack_blocks,
    .pack_doubles = pack_doubles,
    .unpack_floats = unpack_blocks,
    .unpack_doubles = unpack_doubles,
};

inline size_t pack(const ChunkRange &whole, const std::byte *payload, std::byte *packed,
                   PackScratch &scratch) {
    return pack_with(pack_steps, whole, payload, packed, scratch);
}

inline bool unpack(const ChunkRange &whole, std::span<const std::byte> packed, std::byte *payload,
                   PackScratch &scratch) {
    return unpack_with(pack_steps, whole, packed, payload, scratch);
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
