// Makes and checks frames. Works on bytes in memory only.
#include "bootstrap/frame.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

static_assert(sizeof(FrameHead) == 16 && sizeof(ErrorBytes) == 512);

Tag Session::tag(Side from, const FrameHead &head, std::span<const std::byte> payload) const {
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&from, 1)),
                                                std::as_bytes(std::span(&head, 1)), payload};
    return keyed_hash(key_, parts);
}

Sealed Session::seal(FrameKind kind, std::span<const std::byte> payload) {
    const FrameHead head{kind, static_cast<uint32_t>(payload.size()), sent_++};
    return {head, tag(side_, head, payload)};
}

static FrameHead head_of(std::span<const std::byte> held) {
    FrameHead head;
    std::memcpy(&head, held.data(), sizeof head);
    return head;
}

size_t Session::wanted_bytes(std::span<const std::byte> held) {
    if (held.size() < sizeof(FrameHead)) return sizeof(FrameHead);
    return frame_overhead_bytes + head_of(held).bytes;
}

Result<std::optional<Frame>> Session::open(std::span<const std::byte> held, size_t limit) {
    if (held.size() < sizeof(FrameHead)) return std::optional<Frame>();
    const FrameHead head = head_of(held);
    const auto damaged = [](const char *what) {
        return Error::make(Code::damaged_data, "a message of the rendezvous has %s", what);
    };
    if (head.bytes > limit) return damaged("more bytes than may be");
    if (head.sequence != opened_) return damaged("the wrong number");
    const size_t whole = frame_overhead_bytes + head.bytes;
    if (held.size() < whole) return std::optional<Frame>();

    const auto payload = held.subspan(sizeof(FrameHead), head.bytes);
    Tag sent;
    std::memcpy(sent.data(), held.data() + whole - sizeof sent, sizeof sent);
    const Side other = side_ == Side::rank ? Side::server : Side::rank;
    if (!is_equal(sent, tag(other, head, payload))) return damaged("been changed on its way");
    opened_++;
    return std::optional<Frame>({head.kind, payload, whole});
}

ErrorBytes to_bytes(const Error &error) {
    ErrorBytes bytes{static_cast<int32_t>(error.code), error.rank, error.expected, error.got, {}};
    std::memcpy(bytes.text.data(), error.text, bytes.text.size());
    return bytes;
}

Error to_error(std::span<const std::byte> payload) {
    if (payload.size() != sizeof(ErrorBytes))
        return Error::make(Code::internal_error, "the rendezvous sent an error of %zu bytes",
                           payload.size());
    ErrorBytes bytes;
    std::memcpy(&bytes, payload.data(), sizeof bytes);
    bytes.text.back() = 0;
    return Error::make(static_cast<Code>(bytes.code), "%s", bytes.text.data())
        .at_rank(bytes.rank)
        .compared(bytes.expected, bytes.got);
}

} // namespace qccl
