// Lanes: the instances of a program in flight, what each has done, and which wires it holds. Knows
// no transport and computes nothing.
#pragma once

#include "codec/chunk.hpp"
#include "engine/program.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// A wire slot's content: what came, or what this rank has encoded.
struct HeldWire {
    Wire wire;
    // Tasks that will still read it; counted for received wires and for lent ones.
    uint32_t readers = 0;

    bool is_lent() const { return wire.loan.data != nullptr; }
    bool lends_of(std::span<const std::byte> range) const {
        return is_lent() && range.data() < wire.loan.data + wire.loan.bytes &&
               wire.loan.data < range.data() + range.size();
    }
    const std::byte *payload() const {
        return is_lent() ? wire.loan.data : wire.data + header_bytes;
    }
};

class Lane {
public:
    // Only the first unfinished tasks are looked at: enough to overlap, and one word of flags.
    static constexpr uint32_t window = 64;

    void begin(const Program &program, uint32_t number, uint64_t instance);

    uint64_t instance() const { return instance_; }
    uint32_t number() const { return number_; } // of the lane
    bool is_done() const { return base_ == program_->tasks.size(); }

    // The tasks of the window, in order: i-th is base() + i.
    uint32_t base() const { return base_; }
    uint32_t in_window() const {
        return std::min(window, static_cast<uint32_t>(program_->tasks.size()) - base_);
    }
    bool is_ready(uint32_t task) const {
        return waits_[task] == 0 && ((done_ | started_) >> (task - base_) & 1) == 0;
    }
    void finish(uint32_t task);
    // Of work on a device, in whose order it is done: what else is work may be started behind it
    // before it is finished.
    void start(uint32_t task);
    void finish_started(uint32_t task);
    // Moves the window past the tasks that are done.
    void advance();

    HeldWire &wire(uint32_t slot) { return wires_[slot]; }
    std::span<const HeldWire> own_wires() const {
        return std::span(wires_).first(program_->schedule.outbox);
    }

private:
    const Program *program_ = nullptr;
    uint64_t instance_ = 0;
    uint64_t done_ = 0, started_ = 0; // of the window; what has been started stays so
    uint32_t number_ = 0;
    uint32_t base_ = 0;
    std::vector<uint32_t> waits_;
    std::vector<HeldWire> wires_;
};

inline void Lane::finish(uint32_t task) {
    done_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) waits_[program_->next[i]]--;
}

inline void Lane::advance() {
    const auto passed = static_cast<uint32_t>(std::countr_one(done_));
    base_ += passed;
    done_ = passed == window ? 0 : done_ >> passed;
    started_ = passed == window ? 0 : started_ >> passed;
}

} // namespace qccl
