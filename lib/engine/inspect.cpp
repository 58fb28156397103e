#include "engine/inspect.hpp"

#include <cinttypes>

namespace qccl {

static Done check(std::span<const std::byte> bytes, const ExpectedChunk &expected) {
    const auto opened = open_chunk(bytes, *expected.codec, expected.type, expected.count);
    if (!opened) return opened.error();
    const uint64_t index = opened->chunk.first_index;
    if (index != expected.index)
        return Error::make(Code::damaged_data,
                           "chunk: starts at value %" PRIu64 " instead of %" PRIu64, index,
                           expected.index)
            .compared(static_cast<int64_t>(expected.index), static_cast<int64_t>(index));
    if (!expected.is_sealed) return {};
    return check_seal(bytes);
}

Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected) {
    const Done checked = check(bytes, expected);
    if (checked) return {};
    const Error &error = checked.error();
    return Error::make(error.code, "from rank %" PRIu32 ": %.200s", expected.from, error.text)
        .at_rank(expected.from)
        .compared(error.expected, error.got);
}

} // namespace qccl
