#include "engine/inspect.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl {

static Result<OpenChunk> open(std::span<const std::byte> bytes, const ExpectedChunk &expected,
                              std::span<const std::byte> lent) {
    if (!lent.data()) return open_chunk(bytes, *expected.codec, expected.type, expected.count);
    const uint64_t payload = payload_layout(*expected.codec, expected.type, expected.count).bytes;
    return open_chunk(bytes, lent.first(std::min(lent.size(), payload)), *expected.codec,
                      expected.type, expected.count);
}

static Done check(std::span<const std::byte> bytes, const ExpectedChunk &expected,
                  std::span<const std::byte> lent) {
    const auto opened = open(bytes, expected, lent);
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

Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected,
             std::span<const std::byte> lent) {
    const Done checked = check(bytes, expected, lent);
    if (checked) return {};
    const Error &error = checked.error();
    return Error::make(error.code, "from rank %" PRIu32 ": %.200s", expected.from, error.text)
        .at_rank(expected.from)
        .compared(error.expected, error.got);
}

} // namespace qccl
