// The small parts of a v-form in which only the two ends of a pair know a count (gather_v,
// scatter_v, all_to_all_v). Each rank posts all parts that it sends in one eager slot, with
// their counts, if they fit; otherwise it posts that they come by messages. So no rank needs to
// know how long the parts of other pairs are. The engine uses this on the thread that runs the
// call; `exchange` blocks until the ranks that this one receives from have posted.
#pragma once

#include "base/result.hpp"
#include "engine/compile/program.hpp"
#include "engine/run/engine.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Which parts have been exchanged; the others go by messages.
struct ExchangedParts {
    bool are_sent = false;
    // By rank: the slot of what this rank receives from it; null: it comes by messages.
    std::span<const std::byte *const> received{};

    bool has(const Task &task, const Program &program) const;
};

// The error of a receiver that expects another count than the sender's, which is `sent` or, if the
// part goes on, more.
Error other_count(const Program &program, uint32_t from, uint64_t sent, bool goes_on,
                  uint64_t expected);

// `Trace` is NoTrace or StepTrace.
template <class Trace> class EagerParts {
public:
    // `slots`: scratch, one pointer for each rank.
    EagerParts(Transport &transport, const Program &program, const Call &call,
               std::span<const std::byte *> slots, Trace &trace);

    Done exchange();
    const ExchangedParts &exchanged() const { return exchanged_; }
    bool need_messages() const { return need_messages_; }
    // Stores the parts that have been exchanged. In place this overwrites what this rank sends, so
    // messages go first. They also store this rank's part for itself.
    Done store();

private:
    using PartRange = VFormParts::PartRange;

    template <class Action> void each_sent(Action action) const;
    template <class Action> Done each_received(Action action) const;
    uint32_t counts() const; // in a slot
    uint64_t bytes_of(uint64_t count) const { return count * type_bytes(program_.work.type); }
    uint64_t slot_bytes() const;
    void write(std::byte *slot) const;
    Done await(uint32_t from);
    // Returns where part `number` of a slot begins; more than `most` if that lies behind `most`.
    uint64_t part_at(const std::byte *slot, uint32_t number, uint64_t most) const;
    Done store_from(uint32_t from, const PartRange &part) const;
    void store_own(const PartRange &part) const;

    Transport &transport_;
    const Program &program_;
    const Call &call_;
    Trace &trace_;
    const VFormParts &parts_;
    const CollectiveRow &row_;
    const uint32_t rank_;
    const std::span<const std::byte *> slots_;
    ExchangedParts exchanged_;
    bool need_messages_ = false;
};

extern template class EagerParts<NoTrace>;
extern template class EagerParts<StepTrace>;

} // namespace qccl
