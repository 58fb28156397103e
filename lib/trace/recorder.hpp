// The flight recorder: the file in which the ranks of one process record their calls, and the
// Recorder that writes one rank's record. The file either has no name, is found through the process
// and ends with it, or it lies in a folder. A Recorder makes a few stores for each call, into cache
// lines that no other rank writes, and more only in long waits. It is used by the thread that runs
// the rank's calls, and never blocks; any thread may call `failed` and `keep`.
#pragma once

#include "memory/shared_memory.hpp"
#include "record/rank_record.hpp"

#include <atomic>
#include <memory>
#include <span>
#include <string>

namespace qccl {

// ---- The file

class RecordFile {
public:
    // Creates a file of `bytes` zeros for the process's ranks, of which `rank` is the first.
    // `folder`: where the file gets a name; empty: it has none. `session` is part of the name. The
    // error says what the system refuses.
    static Result<std::shared_ptr<RecordFile>> create(const std::string &folder, uint64_t session,
                                                      uint32_t rank, size_t bytes);

    RecordFile() = default;
    RecordFile(const RecordFile &) = delete;
    RecordFile &operator=(const RecordFile &) = delete;
    // The last holder removes a named file unless `keep` was called. A forked child does not remove
    // it.
    ~RecordFile();

    std::byte *base() const { return memory_.base(); }
    // Lets a named file outlive its last holder, so that it can be examined afterwards.
    void keep() { is_kept_.store(true, std::memory_order_relaxed); }

private:
    Done make_memory(size_t bytes);
    Done make_named(const std::string &path, size_t bytes);

    Mapping memory_;
    SharedFile file_{}; // held open if it has no name
    std::string path_;
    int64_t pid_ = 0;
    std::atomic<bool> is_kept_{false};
};

// ---- One rank's record

// What this rank records of its calls, to be read from outside (record/rank_record.hpp).
struct RecordOptions {
    bool is_kept = true;
    std::string folder;       // of the named file; empty: memory that ends with the process
    std::string communicator; // its name
};

// The rank whose calls are recorded.
struct RecordOwner {
    uint32_t rank = 0, ranks = 0;
    uint64_t session = 0;
    std::string communicator; // its name
};

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
    static Result<FlightRecorderFile> make(const RecordOptions &options, uint64_t session,
                                           uint32_t first_rank, uint32_t ranks, uint32_t listed);
    // The recorder of the rank with that place in the file. `listed`: the ranks on its host that
    // have processes of their own.
    Recorder recorder(uint32_t place, const RecordOwner &owner,
                      std::span<const RecordedProcess> listed) const;
};

} // namespace qccl
