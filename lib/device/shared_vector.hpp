// The vector of one call with shared scales (the codec shared), on a host: makes scales and
// integers of a rank's values, and values of sums of integers. GpuSharedVector is the same on a
// GPU. Communicators use it before and after the two collectives of which such a call consists. The
// thread that makes the call creates it, and the one that runs the call does the rest; nothing
// blocks.
#pragma once

#include "base/types.hpp"
#include "device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace qccl {

// Values that follow one another in the caller's vector. Blocks begin at the first one. Integers
// and scales of the parts follow one another.
struct SharedPart {
    uint64_t start = 0, count = 0; // in the caller's vector
    uint64_t integer = 0;          // the first one
    uint64_t scale = 0;            // likewise
};

// What all calls of one program have in common.
struct SharedLayout {
    DataType type = DataType::float32; // of the caller's values; integers are float32
    uint32_t block = 1;                // values that share a scale
    uint32_t limit = 1;                // the largest integer of one rank
    uint32_t divisor = 1;              // of the sums, for avg
    std::vector<SharedPart> parts{};
    std::optional<uint32_t> result{}; // the part that this rank gets; nothing: it gets none

    void add_part(uint64_t start, uint64_t count);
    uint64_t blocks_of(const SharedPart &part) const { return (part.count + block - 1) / block; }
    uint64_t blocks() const { return parts.back().scale + blocks_of(parts.back()); }
    uint64_t values() const { return parts.back().integer + parts.back().count; }
    uint64_t first_result() const { return result ? parts[*result].integer : 0; }
    // Whether the integers fit the caller's result: then they need no memory of their own.
    bool is_in_result() const { return type == DataType::float32 && parts.size() == 1 && result; }
    // Returns the bytes for scales and integers.
    size_t memory_bytes() const;
};

// The caller's memory.
struct SharedBuffers {
    const void *send = nullptr;
    void *recv = nullptr;
    // Of a state: what it owes, which is added to the values, and the new residual; null: the call
    // has none. Both have the type of the values' accumulator.
    const std::byte *owed = nullptr;
    std::byte *residual = nullptr;
};

class SharedVector {
public:
    // `memory` has memory_bytes(). The caller keeps the layout.
    SharedVector(const SharedLayout &layout, const Kernels &kernels, const SharedBuffers &buffers,
                 std::byte *memory);

    // Both collectives are in place.
    uint16_t *scales() const { return scales_; }
    float *integers() const { return integers_; }
    float *result() const { return integers_ + layout_.first_result(); }

    void find_scales() const; // those of this rank's values
    // Requires the scales on which the ranks have agreed.
    void make_integers() const;
    void make_values() const; // of the sums

private:
    // Values of one part that follow one another.
    struct Stretch {
        uint64_t first, count;  // of the vector's integers
        uint64_t block;         // the one that begins it, or that it lies in
        const std::byte *given; // the caller's values
        const float *values;    // what becomes integers
        const void *inputs;     // with a state: the same, unrounded, in the accumulator's type
    };
    struct Converted;
    // Calls visit(stretch) for all of the vector.
    template <class Visitor> void for_each_stretch(const Visitor &visit) const;
    // Returns how many of the values from `i` on, in a part of `count`, form the next stretch.
    uint64_t stretch_values(uint64_t count, uint64_t i) const;
    void convert(Stretch &stretch, Converted &memory) const;
    void keep_errors(const Stretch &stretch) const; // of its integers

    const SharedLayout &layout_;
    const Kernels &kernels_;
    const std::byte *const send_;
    std::byte *const recv_;
    const std::byte *const owed_;
    std::byte *const residual_;
    const DataType sum_type_; // the accumulator's
    uint32_t *const greatest_;
    uint16_t *const scales_;
    float *const integers_;
};

} // namespace qccl
