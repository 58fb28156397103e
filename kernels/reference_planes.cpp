// The scalar reference of codes in their planes, one bit field at a time.
#include "kernels/reference_family.hpp"

namespace qccl {
namespace {

// Where a value of a group lies in the group's piece of a plane.
struct PlanePosition {
    size_t byte;
    unsigned shift;
};
PlanePosition place_of(const PlanePart &part, size_t value) {
    if (part.bits == 1) return {value / 8, static_cast<unsigned>(value % 8)};
    const size_t bytes = part.group_bytes();
    return {value % bytes, static_cast<unsigned>(value / bytes) * part.bits};
}

} // namespace

void write_group(const ChunkRange &range, std::byte *payload, uint64_t group,
                 const GroupCodes &codes) {
    unsigned low = 0; // first bit of the code that the plane holds
    for (const PlanePart &part : plane_parts) {
        if ((range.codec->bits & part.bits) == 0) continue;
        std::byte *piece = payload + range.layout->*part.start + group * part.group_bytes();
        std::fill_n(piece, part.group_bytes(), std::byte{0});
        for (size_t value = 0; value < group_values; value++) {
            const PlanePosition place = place_of(part, value);
            const uint32_t bits = codes[value] >> low & ((1U << part.bits) - 1);
            piece[place.byte] |= static_cast<std::byte>(bits << place.shift);
        }
        low += part.bits;
    }
}

uint32_t read_code(const ChunkRange &range, const std::byte *payload, uint64_t element) {
    uint32_t code = 0;
    unsigned low = 0;
    for (const PlanePart &part : plane_parts) {
        if ((range.codec->bits & part.bits) == 0) continue;
        const std::byte *piece =
            payload + range.layout->*part.start + element / group_values * part.group_bytes();
        const PlanePosition place = place_of(part, element % group_values);
        const uint32_t bits = std::to_integer<uint32_t>(piece[place.byte]) >> place.shift;
        code |= (bits & ((1U << part.bits) - 1)) << low;
        low += part.bits;
    }
    return code;
}

} // namespace qccl
