// Writes the flight record of one rank's calls: a few stores for each call, into cache lines that
// no other rank writes, and more only in long waits. Used by the thread that runs the rank's calls;
// never blocks. Any thread may call `failed`.
#pragma once

#include "record/record_layout.hpp"
#include "transport/record_file.hpp"
#include "transport/peer_info.hpp"

#include <atomic>

namespace qccl {

class Recorder {
public:
    Recorder() = default; // records nothing
    // `base` is this rank's part of the file, which is all zeros there; `calls`, a power of two, is
    // the number of calls that it holds.
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

    // Called again and again during a long wait; `wait_done` is called after it. Times are of the
    // monotonic clock.
    void waits(const Wait &wait, int64_t since_ns, int64_t now_ns);
    void wait_done() {
        if (base_) set(state().waits, uint64_t{0});
    }
    // Records that the communicator has failed; a file that has a name then stays.
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

// The file for the records of `ranks` ranks of one process, each with a list of `listed` processes.
// `file` is null if no records are kept.
struct FlightRecorderFile {
    std::shared_ptr<RecordFile> file;
    RecordShape shape;

    // Creates the file. If there is no memory for it, no records are kept, which is not an error; a
    // folder that cannot be written to is an error.
    static Result<FlightRecorderFile> make(const TransportOptions &options, uint64_t session,
                                           uint32_t first_rank, uint32_t ranks, uint32_t listed);
    // The recorder of the rank with that place in the file. `listed`: the ranks on its host that
    // have processes of their own.
    Recorder recorder(uint32_t place, const TransportOptions &options,
                      const PeerInfoTable &peer_info, std::span<const uint32_t> listed) const;
};

} // namespace qccl
