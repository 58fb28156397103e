// What ranks send in a random call, and what each of them is to receive: computed element by
// element, by no code of the library. Values that are encoded or added up as floats are small whole
// numbers, chosen so that every sum, partial sum, product and average is exact in every type; all
// others are any bits. Used by call_buffers.cpp. Pure; any thread.
#pragma once

#include "stress_call.hpp"

namespace stress {

inline constexpr size_t max_element_bytes = 16;

// The values of the calls of `ranks` ranks.
class CallValues {
public:
    CallValues(const Call &call, int ranks);
    // Writes element `index` of what the rank contributes.
    void write_input(int rank, size_t index, std::byte *element) const;
    // Whether the element is that of the rank; if the call's codec loses something, whether it is
    // near it.
    bool is_input(int rank, size_t index, const std::byte *element) const;
    // Whether the element combines those of the ranks below `covered`.
    bool is_combined(int covered, size_t index, const std::byte *element) const;

    // The scalar by which pre_mul_sum multiplies the rank's values.
    static int64_t scalar_of(int rank) { return rank % 3 == 1 ? -1 : 1; }
    // Writes the scalar as a value of the type.
    static void write_scalar(int rank, int32_t type, std::byte *element);
    // What the program's own operations do with one byte.
    static std::byte combine_bytes(std::byte accumulator, std::byte value, bool in_order);

private:
    // The parts of a value: of a complex number both, of a pair value and index. A float is a whole
    // number.
    struct Value {
        int64_t first = 0, second = 0;
    };
    bool are_any_bits() const;
    Value input(int rank, size_t index) const;
    Value combined(int covered, size_t index) const;
    void combine(Value &accumulator, Value value) const;
    int64_t combine_integers(int64_t accumulator, int64_t value) const;
    void write_any_bits(int rank, size_t index, std::byte *element) const;
    bool is_value(Value value, const std::byte *element) const;
    bool is_part(int64_t value, const std::byte *bytes) const;
    int64_t fitted(int64_t value) const; // in an integer type, which wraps around

    const Call call_;
    const TypeRow &type_;
    const int ranks_;
    const bool has_any_bits_;
};

} // namespace stress
