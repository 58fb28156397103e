#include "engine/inspect.hpp"

#include <cinttypes>

namespace qccl {

Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected) {
    const auto opened = open_chunk(bytes, *expected.codec, expected.type, expected.count);
    if (!opened) return Error(opened.error()).at_rank(expected.from);
    const uint64_t index = opened->chunk.first_index;
    if (index != expected.index)
        return Error::make(Code::damaged_data,
                           "chunk: starts at value %" PRIu64 " instead of %" PRIu64, index,
                           expected.index)
            .at_rank(expected.from)
            .compared(static_cast<int64_t>(expected.index), static_cast<int64_t>(index));
    if (!expected.is_sealed) return {};
    const Done sealed = check_seal(bytes);
    return sealed ? sealed : Error(sealed.error()).at_rank(expected.from);
}

} // namespace qccl
