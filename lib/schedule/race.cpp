// Checks each access against the last write of its slot and the reads since, by searching the
// dependencies backwards.
#include "schedule/race.hpp"

#include "schedule/text.hpp"

#include <algorithm>
#include <cstdio>

namespace qccl {

namespace {

constexpr uint32_t none = ~uint32_t{0};

class Races {
public:
    Races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank)
        : s_(schedule), deps_(dependencies), rank_(rank), places_(size_t{2} * s_.chunks + s_.wires),
          seen_(s_.steps.size()) {}

    Done run() {
        if (deps_.steps() != s_.steps.size())
            return Error::make(Code::invalid_argument, "rank %u: dependencies of %zu steps for %zu",
                               rank_, deps_.steps(), s_.steps.size());
        for (uint32_t i = 0; i < s_.steps.size(); i++) {
            const Step &step = s_.steps[i];
            for (const uint32_t earlier : deps_.of(i))
                if (earlier >= i) return wrong_step(rank_, i, step, "waits for a later step");
            const uint32_t against = unordered(i);
            if (against == none) continue;
            char reason[64];
            std::snprintf(reason, sizeof reason, "races with step %u", against);
            return wrong_step(rank_, i, step, reason);
        }
        return {};
    }

private:
    // The history of one slot. Orders that follow from others need no check: it is enough that a
    // read comes after the last write, and that a write comes after all reads since the last write,
    // or after the last write if there are none.
    struct SlotChunk {
        uint32_t writer = none;
        uint32_t readers = none; // since then: head of a list in reads_
    };
    struct Read {
        uint32_t step;
        uint32_t next;
    };

    SlotChunk &place(Slot slot) {
        if (slot.is(SlotKind::wire)) return places_[size_t{2} * s_.chunks + slot.index];
        if (slot.is(SlotKind::accumulator)) return places_[s_.chunks + slot.index];
        return places_[slot.index]; // one slot in an in-place call
    }

    // Returns the first earlier step that conflicts with step `number` and may run at the same
    // time.
    uint32_t unordered(uint32_t number) {
        const Step &step = s_.steps[number];
        for (uint32_t i = 0; step.verb != Verb::recv && i < step.sources; i++) {
            SlotChunk &read = place(step.src.after(i));
            if (read.writer != none && !leads(read.writer, number)) return read.writer;
            reads_.push_back({number, read.readers});
            read.readers = static_cast<uint32_t>(reads_.size() - 1);
        }
        if (step.verb == Verb::send) return none;
        SlotChunk &written = place(step.dst);
        if (written.writer != none && written.readers == none && !leads(written.writer, number))
            return written.writer;
        for (uint32_t i = written.readers; i != none; i = reads_[i].next)
            if (reads_[i].step != number && !leads(reads_[i].step, number)) return reads_[i].step;
        written = {.writer = number};
        return none;
    }

    bool leads(uint32_t from, uint32_t to) {
        const auto waits = deps_.of(to);
        return std::binary_search(waits.begin(), waits.end(), from) || reaches(from, to);
    }

    // Searches backwards from `to`, never further than `from`.
    bool reaches(uint32_t from, uint32_t to) {
        stamp_++;
        std::vector<uint32_t> open{to};
        while (!open.empty()) {
            const uint32_t at = open.back();
            open.pop_back();
            for (const uint32_t earlier : deps_.of(at)) {
                if (earlier == from) return true;
                if (earlier < from || seen_[earlier] == stamp_) continue;
                seen_[earlier] = stamp_;
                open.push_back(earlier);
            }
        }
        return false;
    }

    const Schedule &s_;
    const Dependencies &deps_;
    const uint32_t rank_;
    std::vector<SlotChunk> places_;
    std::vector<Read> reads_;
    std::vector<uint32_t> seen_; // by step: number of the last search that visited it
    uint32_t stamp_ = 0;
};

} // namespace

Done check_races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank) {
    return Races(schedule, dependencies, rank).run();
}

} // namespace qccl
