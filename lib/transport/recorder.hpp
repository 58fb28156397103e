// One rank's record of its calls, as it writes it: stores into lines that nobody else writes, and
// in long waits only more. Knows no peers, and never waits.
#pragma once

#include "record/record_layout.hpp"
#include "transport/record_file.hpp"
#include "transport/roster.hpp"

#include <atomic>

namespace qccl {

class Recorder {
public:
    Recorder() = default; // records nothing
    // At `base` in the file, which is all zeros there.
    Recorder(std::shared_ptr<RecordFile> file, std::byte *base, uint32_t calls)
        : file_(std::move(file)), base_(base), last_slot_(calls - 1) {}

    void began(const CallDescriptor &call, uint64_t hash) {
        if (!base_) return;
        auto *const slots = reinterpret_cast<RecordedCall *>(base_ + RecordShape::calls_offset);
        RecordedCall &slot = slots[call.call & last_slot_];
        slot.check = RecordedCall::check_of(call, hash);
        slot.call = call;
        set(state().begun, call.call);
    }
    void ended(uint64_t call) {
        if (base_) set(state().ended, call);
    }

    // In a long wait, again and again, and after it. Times are of the clock that never jumps.
    void waits(const Wait &wait, int64_t since_ns, int64_t now_ns);
    void came() {
        if (base_) set(state().waits, uint64_t{0});
    }
    void failed();
    void left() {
        if (base_) set(state().has_left, uint64_t{1});
    }

private:
    RecordedState &state() const {
        return *reinterpret_cast<RecordedState *>(base_ + RecordShape::state_offset);
    }
    template <class T> static void set(T &word, T value) {
        std::atomic_ref(word).store(value, std::memory_order_release);
    }

    std::shared_ptr<RecordFile> file_;
    std::byte *base_ = nullptr;
    uint64_t last_slot_ = 0;
};

// Room for the records of `ranks` ranks of one process in one file, and in each for a list of
// `listed` processes. Nothing where none are kept. Where there is no memory for them there are none
// either; a folder that cannot be written to is an error.
struct RecordRoom {
    std::shared_ptr<RecordFile> file;
    RecordShape shape;

    static Result<RecordRoom> make(const TransportOptions &options, uint64_t session,
                                   uint32_t first_rank, uint32_t ranks, uint32_t listed);
    // Of the rank with that place in the file. `listed`: who is on its host and has a process of
    // its own.
    Recorder recorder(uint32_t place, const TransportOptions &options, const Roster &roster,
                      std::span<const uint32_t> listed) const;
};

} // namespace qccl
