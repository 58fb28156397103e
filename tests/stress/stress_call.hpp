// One call of a random test: a collective, or a message, with its type, operation, counts, codec
// and algorithm; and what the library's documentation says of such calls. Used by the sequences
// with a disagreement and by the random programs. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace stress {

inline constexpr int max_ranks = 6;

// Spreads the bits of a number over all bits.
constexpr uint64_t mixed(uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
    value = (value ^ value >> 27) * 0x94D049BB133111EBU;
    return value ^ value >> 31;
}

// Random numbers that follow from a seed alone, on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : numbers_(seed) {}
    int below(int bound) { return static_cast<int>(numbers_() % static_cast<uint64_t>(bound)); }
    uint64_t bits() { return numbers_(); }
    template <class Table> auto one_of(const Table &table) {
        return table[static_cast<size_t>(below(static_cast<int>(std::size(table))))];
    }
    template <class Values> void shuffle(Values &values) {
        for (size_t i = values.size(); i > 1; i--)
            std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int>(i)))]);
    }

private:
    std::mt19937_64 numbers_;
};

enum class Kind : uint8_t {
    all_reduce,
    reduce_scatter,
    reduce_scatter_v,
    reduce,
    scan,
    exscan,
    all_gather,
    all_gather_v,
    broadcast,
    gather,
    gather_v,
    scatter,
    scatter_v,
    all_to_all,
    all_to_all_v,
    barrier,
    split,
    shrink,
    dup,
    messages, // every rank sends to the next one and receives from the one before
    finalize,
    destroy,
    message // one rank sends to another
};
inline constexpr int collectives = 16;
inline constexpr int comm_makers = 3; // the kinds after the collectives make communicators
inline constexpr int kinds = 22;      // of sequences, which have no `message`
const char *name(Kind kind);

enum class TypeClass : uint8_t { integer, unsigned_integer, real, complex, boolean, pair };
struct TypeRow {
    const char *name;
    int32_t number; // the library's
    uint32_t bytes; // of an element
    TypeClass of;
    uint32_t value_bytes;             // of a part of a complex number, of the value of a pair
    int exponent_bits, mantissa_bits; // of the value; 0 for integers
    uint32_t index_at;                // where the index of a pair lies
    bool is_float() const { return of == TypeClass::real; }
    bool has_floats() const { return exponent_bits != 0; }
};
inline constexpr int32_t types = 22, float32 = 7;
const TypeRow &type_row(int32_t type);

enum class Op : uint8_t {
    sum,
    prod,
    max,
    min,
    avg,
    bit_and,
    bit_or,
    bit_xor,
    logical_and,
    logical_or,
    logical_xor,
    min_loc,
    max_loc,
    made,          // an operation of the program that commutes
    made_in_order, // one that does not
    pre_mul_sum
};
const char *name(Op op);
// The operations that a reduction of this kind has for the type.
std::vector<Op> ops_of(int32_t type, Kind kind);

// How a call is made. Ranks that make the same call make it in the same form.
enum class CallForm : uint8_t { plain, prepared, grouped };

// Members that a kind of call does not use keep their defaults, so that calls can be compared.
struct Call {
    Kind kind = Kind::barrier;
    uint32_t count = 0;
    int32_t type = 0; // a row of the table of types
    Op op = Op::sum;
    int32_t root = 0;                // of a message the sender
    int32_t dest = 0;                // of a message
    const char *codec = nullptr;     // points into a table
    const char *algorithm = nullptr; // points into a table
    CallForm form = CallForm::plain;
    int grouped = 1;    // equal calls of the group, each on buffers of its own
    uint32_t shape = 0; // of a v-form: which counts the ranks have
    uint32_t salt = 0;  // of the values: successive calls have different ones
    bool operator==(const Call &) const = default;

    // Whether the calls differ in form and values alone, so that ranks cannot tell one from the
    // other.
    bool differs_in_form(const Call &other) const { return looks_like(other) && other != *this; }
    // Whether ranks that make the one and the other call agree.
    bool looks_like(const Call &other) const {
        Call same = other;
        same.form = form;
        same.grouped = grouped;
        same.salt = salt;
        return same == *this;
    }
    bool is_collective() const { return static_cast<int>(kind) < collectives; }
    bool has_data() const {
        return kind <= Kind::all_to_all_v || kind == Kind::messages || kind == Kind::message;
    }
    bool reduces() const { return kind <= Kind::exscan; }
    bool is_prefix() const { return kind == Kind::scan || kind == Kind::exscan; }
    bool has_root() const {
        return kind == Kind::reduce || (kind >= Kind::broadcast && kind <= Kind::scatter_v);
    }
    bool is_v_form() const { return has_pair_counts() || has_common_counts(); }
    // Whether all ranks pass the same counts, or each one knows those of its own parts alone.
    bool has_common_counts() const {
        return kind == Kind::reduce_scatter_v || kind == Kind::all_gather_v;
    }
    bool has_pair_counts() const {
        return kind == Kind::gather_v || kind == Kind::scatter_v || kind == Kind::all_to_all_v;
    }
    bool scatters() const {
        return kind == Kind::reduce_scatter || kind == Kind::reduce_scatter_v ||
               kind == Kind::scatter || kind == Kind::scatter_v;
    }
    bool gathers() const {
        return kind >= Kind::all_gather && kind <= Kind::gather_v && kind != Kind::broadcast;
    }
    bool exchanges() const { return kind == Kind::all_to_all || kind == Kind::all_to_all_v; }
    bool has_stride() const {
        return kind == Kind::reduce_scatter || kind == Kind::all_gather || kind == Kind::gather ||
               kind == Kind::scatter || kind == Kind::all_to_all;
    }
    // Whether every rank must receive the same vector.
    bool equals_everywhere() const {
        return kind == Kind::all_reduce || kind == Kind::all_gather || kind == Kind::all_gather_v ||
               kind == Kind::broadcast;
    }
    // Elements that rank `from` contributes to the part of rank `to`: in the kinds that scatter it
    // depends on `to` alone, in those that gather on `from` alone.
    uint32_t part(int from, int to) const;
    // Two shapes: with equal parts, and with all elements in the part of one rank.
    static constexpr uint32_t equal_parts = 0;
    static constexpr uint32_t one_part(int rank) { return 1 + 5 * static_cast<uint32_t>(rank); }
};
std::string text(const Call &call);

// Whether the codec encodes the call's values, by the type and the operation.
bool can_encode(const char *codec, const Call &call);
// Whether some codec does.
bool may_be_encoded(const Call &call);
// Whether the library takes the call by itself.
bool is_valid(const Call &call);
// Whether the values of the call's result are exactly those of a lossless call.
bool is_exact(const Call &call);

// Draws calls of `ranks` ranks.
class CallDrawer {
public:
    CallDrawer(Random &random, int ranks) : random_(random), ranks_(ranks) {}
    // Draws what the call has besides its form.
    Call draw(Kind kind);
    uint32_t draw_count();
    int32_t draw_type() { return random_.below(2) == 0 ? float32 : random_.below(types); }
    Op draw_op(int32_t type, Kind kind);
    const char *draw_codec();
    const char *draw_algorithm(Kind kind);

private:
    Random &random_;
    const int ranks_;
};

} // namespace stress
