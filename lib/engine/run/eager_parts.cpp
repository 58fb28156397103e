// Lays out an eager slot as a list of counts with the parts behind it, and moves the parts.
#include "engine/run/eager_parts.hpp"

#include "base/types.hpp"
#include "engine/run/step_trace.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

namespace {

// Beyond this number of bytes messages cost less: where cores share no cache, it takes longer to
// store in a slot that peers have read.
constexpr uint64_t most_eager_bytes = 4096;

// In place of the first count: the parts come by messages.
constexpr uint64_t by_messages = ~uint64_t{0};

uint64_t aligned(uint64_t bytes) { return round_up(bytes, sizeof(uint64_t)); }

uint64_t read_count(const std::byte *slot, uint32_t number) {
    uint64_t count = 0;
    std::memcpy(&count, slot + number * sizeof count, sizeof count);
    return count;
}

} // namespace

bool ExchangedParts::has(const Task &task, const Program &program) const {
    const Schedule &schedule = program.schedule;
    if (task.kind == Task::Kind::send) return are_sent;
    if (task.kind == Task::Kind::recv) return received[schedule.steps[task.first].peer] != nullptr;
    const Op &op = program.ops[task.first];
    if (op.dst.is(OperandRef::Kind::payload)) return are_sent;
    if (!op.src.is(OperandRef::Kind::payload)) return false;
    if (op.src.index < schedule.outbox) return are_sent;
    return received[program.wire_peers[op.src.index]] != nullptr;
}

Error other_count(const Program &program, uint32_t from, uint64_t sent, bool goes_on,
                  uint64_t expected) {
    return Error::make(Code::mismatch,
                       "rank %" PRIu32 " sends %s%" PRIu64 " values to rank %" PRIu32
                       ", which expects %" PRIu64,
                       from, goes_on ? "at least " : "", sent, program.work.team.rank, expected)
        .at_rank(from)
        .compared(static_cast<int64_t>(expected), static_cast<int64_t>(sent));
}

template <class Trace>
EagerParts<Trace>::EagerParts(Transport &transport, const Program &program, const Call &call,
                              std::span<const std::byte *> slots, Trace &trace)
    : transport_(transport), program_(program), call_(call), trace_(trace),
      parts_(*program.work.parts), row_(row_of(parts_.v_form)), rank_(program.work.team.rank),
      slots_(slots) {}

template <class Trace>
template <class Action>
void EagerParts<Trace>::each_sent(Action action) const {
    const Team &team = program_.work.team;
    if (row_.gathers)
        action(team.root, parts_.sent[rank_]);
    else if (row_.exchanges || rank_ == team.root)
        for (uint32_t to = 0; to < team.size; to++) action(to, parts_.sent[to]);
}

template <class Trace>
template <class Action>
Done EagerParts<Trace>::each_received(Action action) const {
    const Team &team = program_.work.team;
    if (row_.scatters) return action(team.root, parts_.received[rank_]);
    for (uint32_t from = 0; from < team.size && (row_.exchanges || rank_ == team.root); from++)
        QCCL_TRY(action(from, parts_.received[from]));
    return {};
}

template <class Trace> uint32_t EagerParts<Trace>::counts() const {
    return row_.gathers ? 1 : program_.work.team.size;
}

// Zero if this rank sends nothing.
template <class Trace> uint64_t EagerParts<Trace>::slot_bytes() const {
    uint64_t bytes = 0;
    each_sent([&](uint32_t to, const PartRange &part) {
        if (bytes == 0) bytes = counts() * sizeof(uint64_t);
        if (to != rank_) bytes += aligned(bytes_of(part.count));
    });
    return bytes;
}

// The part for this rank itself is not there.
template <class Trace> void EagerParts<Trace>::write(std::byte *slot) const {
    std::byte *count_at = slot, *part_at = slot + counts() * sizeof(uint64_t);
    const auto *const send = static_cast<const std::byte *>(call_.send);
    each_sent([&](uint32_t to, const PartRange &part) {
        const uint64_t count = to == rank_ ? 0 : part.count;
        std::memcpy(count_at, &count, sizeof count);
        count_at += sizeof count;
        if (count == 0) return;
        std::memcpy(part_at, send + bytes_of(part.start), bytes_of(count));
        part_at += aligned(bytes_of(count));
    });
}

template <class Trace> Done EagerParts<Trace>::exchange() {
    const uint64_t whole = slot_bytes();
    exchanged_.are_sent =
        whole <= std::min<uint64_t>(most_eager_bytes, program_.cut.eager_slot_bytes);
    exchanged_.received = slots_;
    const size_t bytes = exchanged_.are_sent ? whole : sizeof by_messages;
    trace_.begin_fast_path();
    QCCL_TRY(std::byte *const slot, transport_.eager_slot(bytes));
    if (exchanged_.are_sent)
        write(slot);
    else
        std::memcpy(slot, &by_messages, sizeof by_messages);
    transport_.post_eager(bytes);
    trace_.eager_posted();
    need_messages_ = !exchanged_.are_sent;
    return each_received([&](uint32_t from, const PartRange &) -> Done {
        slots_[from] = nullptr;
        return from == rank_ ? Done() : await(from);
    });
}

template <class Trace> Done EagerParts<Trace>::await(uint32_t from) {
    QCCL_TRY(const auto bytes, transport_.await_eager(from));
    trace_.eager(from, bytes.size());
    if (bytes.size() == sizeof by_messages && read_count(bytes.data(), 0) == by_messages) {
        need_messages_ = true;
        return {};
    }
    const uint64_t end = part_at(bytes.data(), counts(), bytes.size());
    if (end != bytes.size())
        return Error::make(Code::damaged_data,
                           "the eager slot of rank %" PRIu32 " has %zu bytes instead of %" PRIu64,
                           from, bytes.size(), end)
            .at_rank(from);
    slots_[from] = bytes.data();
    return {};
}

template <class Trace>
uint64_t EagerParts<Trace>::part_at(const std::byte *slot, uint32_t number, uint64_t most) const {
    uint64_t at = counts() * sizeof(uint64_t);
    for (uint32_t i = 0; i < number && at <= most; i++)
        at += aligned(bytes_of(read_count(slot, i)));
    return at;
}

template <class Trace> Done EagerParts<Trace>::store() {
    const Done stored = each_received([&](uint32_t from, const PartRange &part) -> Done {
        if (from != rank_) return slots_[from] ? store_from(from, part) : Done();
        if (!need_messages_) store_own(part);
        return {};
    });
    trace_.end_work();
    return stored;
}

template <class Trace>
Done EagerParts<Trace>::store_from(uint32_t from, const PartRange &part) const {
    const uint32_t own = row_.gathers ? 0 : rank_;
    const std::byte *const slot = slots_[from];
    const uint64_t at = part_at(slot, own, UINT64_MAX); // `await` has checked the slot
    const uint64_t sent = read_count(slot, own);
    if (sent != part.count) return other_count(program_, from, sent, false, part.count);
    auto *const recv = static_cast<std::byte *>(call_.recv);
    if (sent != 0) std::memcpy(recv + bytes_of(part.start), slot + at, bytes_of(sent));
    return {};
}

template <class Trace> void EagerParts<Trace>::store_own(const PartRange &part) const {
    const auto *const from =
        static_cast<const std::byte *>(call_.send) + bytes_of(parts_.sent[rank_].start);
    auto *const to = static_cast<std::byte *>(call_.recv) + bytes_of(part.start);
    if (part.count != 0 && from != to) std::memcpy(to, from, bytes_of(part.count));
}

template class EagerParts<NoTrace>;
template class EagerParts<StepTrace>;

} // namespace qccl
