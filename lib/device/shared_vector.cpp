// Makes scales and integers of the values of a call with shared scales, and values of the sums.
// Values of another type than float32, or with a state, are converted stretch by stretch.
#include "device/shared_vector.hpp"

#include "base/sizes.hpp"
#include "codec/shared_scales.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

static constexpr uint64_t most_converted = 1024; // values, which stay in the caches
static constexpr size_t cache_line = 64;

// The memory has the blocks' magnitudes, their scales, and the integers, from the next line on.
static size_t scales_at(const SharedLayout &layout) {
    return round_up(layout.blocks() * sizeof(uint32_t), cache_line);
}
static size_t integers_at(const SharedLayout &layout) {
    return scales_at(layout) + round_up(layout.blocks() * sizeof(uint16_t), cache_line);
}

void SharedLayout::add_part(uint64_t start, uint64_t count) {
    SharedPart part{.start = start, .count = count};
    if (!parts.empty()) {
        part.integer = values();
        part.scale = blocks();
    }
    parts.push_back(part);
}

size_t SharedLayout::memory_bytes() const {
    const size_t integers = is_in_result() ? 0 : values() * sizeof(float);
    return integers_at(*this) + integers + cache_line;
}

static std::byte *aligned(std::byte *memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    return memory + (round_up(address, cache_line) - address);
}

SharedVector::SharedVector(const SharedLayout &layout, const Kernels &kernels,
                           const SharedBuffers &buffers, std::byte *memory)
    : layout_(layout), kernels_(kernels), send_(static_cast<const std::byte *>(buffers.send)),
      recv_(static_cast<std::byte *>(buffers.recv)), owed_(buffers.owed),
      residual_(buffers.residual), sum_type_(accumulator_of(layout.type)),
      greatest_(reinterpret_cast<uint32_t *>(aligned(memory))),
      scales_(reinterpret_cast<uint16_t *>(aligned(memory) + scales_at(layout))),
      integers_(reinterpret_cast<float *>(
          layout.is_in_result() ? recv_ : aligned(memory) + integers_at(layout))) {}

struct SharedVector::Converted {
    alignas(cache_line) float values[most_converted];
    alignas(cache_line) double inputs[most_converted];
};

uint64_t SharedVector::stretch_values(uint64_t values, uint64_t i) const {
    const uint64_t rest = values - i, block = layout_.block;
    if (block <= most_converted) return std::min(most_converted / block * block, rest);
    return std::min({most_converted, block - i % block, rest});
}

template <class Visitor> void SharedVector::for_each_stretch(const Visitor &visit) const {
    const bool is_ready = layout_.type == DataType::float32 && !owed_;
    Converted memory;
    for (const SharedPart &part : layout_.parts) {
        for (uint64_t i = 0, count = 0; i < part.count; i += count) {
            count = is_ready ? part.count : stretch_values(part.count, i);
            const std::byte *const given = send_ + (part.start + i) * type_bytes(layout_.type);
            Stretch stretch{.first = part.integer + i,
                            .count = count,
                            .block = part.scale + i / layout_.block,
                            .given = given,
                            .values = reinterpret_cast<const float *>(given),
                            .inputs = nullptr};
            if (!is_ready) convert(stretch, memory);
            visit(stretch);
        }
    }
}

void SharedVector::convert(Stretch &stretch, Converted &memory) const {
    stretch.values = memory.values;
    if (!owed_) {
        kernels_.copy(DataType::float32, memory.values, layout_.type, stretch.given, stretch.count,
                      false);
        return;
    }
    const std::byte *const owed = owed_ + stretch.first * type_bytes(sum_type_);
    kernels_.copy(sum_type_, memory.inputs, layout_.type, stretch.given, stretch.count, false);
    kernels_.reduce(RedOp::sum, sum_type_, memory.inputs, sum_type_, owed, stretch.count);
    kernels_.copy(DataType::float32, memory.values, sum_type_, memory.inputs, stretch.count, false);
    stretch.inputs = memory.inputs;
}

void SharedVector::find_scales() const {
    std::fill_n(greatest_, layout_.blocks(), 0U);
    for_each_stretch([this](const Stretch &stretch) {
        kernels_.find_magnitudes(greatest_ + stretch.block, stretch.values, stretch.count,
                                 layout_.block);
    });
    for (uint64_t i = 0; i < layout_.blocks(); i++)
        scales_[i] = shared_scale(greatest_[i], layout_.limit);
}

void SharedVector::make_integers() const {
    for_each_stretch([this](const Stretch &stretch) {
        kernels_.to_integers(integers_ + stretch.first, stretch.values, scales_ + stretch.block,
                             stretch.count, layout_.block);
        if (residual_) keep_errors(stretch);
    });
}

// The only encode of a value is the one on its own rank.
void SharedVector::keep_errors(const Stretch &stretch) const {
    Converted decoded;
    const size_t bytes = type_bytes(sum_type_);
    std::byte *const residual = residual_ + stretch.first * bytes;
    kernels_.from_integers(decoded.values, integers_ + stretch.first, scales_ + stretch.block,
                           stretch.count, layout_.block, 1);
    kernels_.copy(sum_type_, decoded.inputs, DataType::float32, decoded.values, stretch.count,
                  false);
    std::memset(residual, 0, stretch.count * bytes);
    kernels_.keep_error(sum_type_, residual, stretch.inputs, decoded.inputs, stretch.count, 1,
                        nullptr);
}

void SharedVector::make_values() const {
    if (!layout_.result) return;
    const SharedPart &part = layout_.parts[*layout_.result];
    const uint16_t *const scales = scales_ + part.scale;
    if (layout_.type == DataType::float32) {
        kernels_.from_integers(reinterpret_cast<float *>(recv_), result(), scales, part.count,
                               layout_.block, layout_.divisor);
        return;
    }
    Converted memory;
    for (uint64_t i = 0, count = 0; i < part.count; i += count) {
        count = stretch_values(part.count, i);
        kernels_.from_integers(memory.values, result() + i, scales + i / layout_.block, count,
                               layout_.block, layout_.divisor);
        kernels_.copy(layout_.type, recv_ + i * type_bytes(layout_.type), DataType::float32,
                      memory.values, count, false);
    }
}

} // namespace qccl
