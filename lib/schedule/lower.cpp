// Follows the last writer and the readers of every slot through the steps in order.
#include "schedule/lower.hpp"

#include <algorithm>

namespace qccl {

namespace {

constexpr uint32_t none = ~uint32_t{0};

// The history of one slot: the step that wrote it last, and the steps that have read it since.
struct Cell {
    uint32_t writer = none;
    uint32_t readers = none; // head of a list in Lowering::reads_
    uint32_t last_reader = none;
};

class Lowering {
public:
    explicit Lowering(Schedule &schedule)
        : schedule_(schedule), cells_(size_t{2} * schedule.chunks + schedule.wires) {
        deps_.first.reserve(schedule.steps.size() + 1);
        deps_.earlier.reserve(schedule.steps.size() * 2);
        reads_.reserve(schedule.steps.size() * 2);
    }

    Dependencies run() {
        for (number_ = 0; number_ < schedule_.steps.size(); number_++) {
            Step &step = schedule_.steps[number_];
            step.flags &= static_cast<uint8_t>(~Step::releases);
            found_.clear();
            visit(step);
            keep();
        }
        for (const Cell &cell : wires()) release(cell);
        return std::move(deps_);
    }

private:
    struct Read {
        uint32_t step;
        uint32_t next;
    };

    std::span<Cell> wires() { return std::span(cells_).subspan(size_t{2} * schedule_.chunks); }

    Cell &cell(Slot slot) {
        switch (slot.what()) {
        case SlotKind::accumulator: return cells_[schedule_.chunks + slot.index];
        case SlotKind::wire: return cells_[size_t{2} * schedule_.chunks + slot.index];
        default: return cells_[slot.index]; // one slot in an in-place call
        }
    }

    void visit(Step &step) {
        if (step.verb != Verb::recv) {
            const uint32_t sources = step.verb == Verb::reduce ? step.sources : 1;
            for (uint32_t i = 0; i < sources; i++) read(cell(step.src.after(i)));
        }
        if (step.verb == Verb::send)
            step.ordinal = next_message(sent_, step.peer);
        else
            write(cell(step.dst), step.dst);
        if (step.verb == Verb::recv) step.ordinal = next_message(received_, step.peer);
    }

    static uint32_t next_message(std::vector<uint32_t> &counts, uint32_t peer) {
        if (peer >= counts.size()) counts.resize(size_t{peer} + 1);
        return counts[peer]++;
    }

    void read(Cell &place) {
        if (place.writer != none) found_.push_back(place.writer);
        place.readers = add_read(place.readers);
        place.last_reader = number_;
    }

    uint32_t add_read(uint32_t next) {
        reads_.push_back({number_, next});
        return static_cast<uint32_t>(reads_.size() - 1);
    }

    void write(Cell &place, Slot slot) {
        // The readers have waited for the writer, so waiting for the readers is enough.
        if (place.writer != none && place.readers == none) found_.push_back(place.writer);
        for (uint32_t i = place.readers; i != none; i = reads_[i].next)
            if (reads_[i].step != number_) found_.push_back(reads_[i].step);
        if (slot.is(SlotKind::wire)) release(place);
        place = {.writer = number_};
    }

    void release(const Cell &wire) {
        if (schedule_.is_placed && wire.last_reader != none)
            schedule_.steps[wire.last_reader].flags |= Step::releases;
    }

    // Appends the waits of the step, without those that another of its waits already implies.
    void keep() {
        std::sort(found_.begin(), found_.end());
        found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
        const auto is_implied = [&](uint32_t step) {
            return std::any_of(found_.begin(), found_.end(), [&](uint32_t later) {
                const auto waits = deps_.of(later);
                return later > step && std::binary_search(waits.begin(), waits.end(), step);
            });
        };
        // Long lists come from many readers of one value, and these do not wait for each other.
        constexpr size_t worth_looking = 8;
        for (const uint32_t step : found_)
            if (found_.size() > worth_looking || !is_implied(step)) deps_.earlier.push_back(step);
        deps_.first.push_back(static_cast<uint32_t>(deps_.earlier.size()));
    }

    Schedule &schedule_;
    std::vector<Cell> cells_;
    std::vector<Read> reads_;
    std::vector<uint32_t> found_;
    std::vector<uint32_t> sent_, received_; // messages so far, by peer
    Dependencies deps_;
    uint32_t number_ = 0;
};

} // namespace

Dependencies lower(Schedule &schedule) { return Lowering(schedule).run(); }

} // namespace qccl
