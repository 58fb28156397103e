// The flight recorder: the file in which the ranks of one process record their calls, and the
// Recorder that writes one rank's record. The file either has no name, is found through the process
// and ends with it, or it lies in a folder. A Recorder makes a few stores for each call, into cache
// lines that no other rank writes, and more only in long waits. It is used by the thread that runs
// the rank's calls, and never blocks; any thread may call `failed` and `keep`.
//
// CallTracer traces the calls of one communicator on one rank: it numbers the shapes of calls and
// puts events where the trace's thread finds them. An event of fixed size stands for a call's
// beginning, each thing that the rank does or waits for in the call, and the call's end. A ring
// carries the events from the thread that runs calls to the thread that writes files: one writer
// and one reader at a time. The thread that runs the communicator's calls (one at a time) and the
// trace's thread use it. It never blocks, and leaves out events for which there is no room.
#pragma once

#include "base/shared_memory.hpp"
#include "trace/call_log.hpp"
#include "trace/rank_record.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <semaphore>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

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

// What this rank records of its calls, to be read from outside (trace/rank_record.hpp).
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
        : file_(std::move(file)), base_(base), last_slot_(calls - 1), shapes_(calls) {}

    // `shape`: the fingerprint of the call's shape. The recorder writes only the numbers of a call
    // where the slot has a call of that shape.
    void began(const CallDescriptor &call, uint64_t hash, uint64_t shape) {
        if (!base_) return;
        auto *const slots = reinterpret_cast<RecordedCall *>(base_ + RecordShape::calls_offset);
        RecordedCall &slot = slots[call.call & last_slot_];
        slot.check = RecordedCall::check_of(call, hash);
        if (std::exchange(shapes_[call.call & last_slot_], shape) != shape) slot.call = call;
        slot.call.set(call.numbers());
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
    std::vector<uint64_t> shapes_; // of the calls in the slots
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

// ---- Events

struct TraceEvent {
    enum class Kind : uint8_t {
        call_begin,
        call_end,
        wait,   // for `peer`; `detail` is the WaitPhase
        send,   // handing a message to `peer`
        recv,   // taking a message of `peer`
        work,   // computing; `detail` says what, see TraceWork
        launch, // on a GPU: starting the work
        device, // on a GPU: doing the work
    };
    static constexpr uint32_t all_peers = ~uint32_t{0};
    static constexpr uint32_t no_step = ~uint32_t{0};

    uint64_t begin = 0, end = 0; // ticks_now(); call_begin and call_end: both are the call's
    uint64_t call = 0;           // its number on the communicator
    // send and recv: a number that is equal on both sides of the message; other messages hardly
    // have the same. call_begin and call_end: ticks when the call was given to a stream; 0: not in
    // a stream.
    uint64_t link = 0;
    uint64_t value = 0;      // send, recv and work: bytes; call_begin and call_end: the tag
    uint32_t shape = 0;      // the call's, as CallTracer numbers them
    uint32_t peer = 0;       // a rank; call_end: number of events without room
    uint32_t step = no_step; // send, recv and wait: of the schedule, from 0
    uint32_t segment = 0;    // which segment's run of the schedule, from 0
    uint32_t chunk = 0;      // work and launch
    uint16_t lane = 0;       // device: whose GPU stream
    Kind kind = Kind::wait;
    uint8_t detail = 0; // also of call_end, see TraceEnd
};
static_assert(sizeof(TraceEvent) == 64, "a cache line each");

// The bits of a work event's detail.
struct TraceWork {
    static constexpr uint8_t decode = 1, reduce = 2, divide = 4, copy = 8, encode = 16;
};

// The bits of a call_end event's detail.
struct TraceEnd {
    static constexpr uint8_t failed = 1;
    static constexpr uint8_t began = 2; // the trace has the call_begin and the call's steps
};

// ---- Ring of events

class EventRing {
public:
    // `capacity` is a power of two.
    explicit EventRing(size_t capacity) : events_(capacity) {}

    size_t capacity() const { return events_.size(); }

    // For the writer.
    //
    // Returns a lower bound of the number of free places. Reads the reader's progress only if the
    // last known progress leaves fewer than `wanted`.
    size_t room(size_t wanted) {
        if (capacity() - (head_ - seen_tail_) < wanted)
            seen_tail_ = tail_.load(std::memory_order_acquire);
        return capacity() - (head_ - seen_tail_);
    }
    // The writer has checked that there is room.
    void push(const TraceEvent &event) {
        events_[head_ & (capacity() - 1)] = event;
        shown_head_.store(++head_, std::memory_order_release);
    }

    uint64_t written() const { return head_; } // so far

    // For the reader: shown() is the number of events written so far, and drain() passes each event
    // before `end` to `take`.
    uint64_t shown() const { return shown_head_.load(std::memory_order_acquire); }
    template <class Take> void drain(uint64_t end, const Take &take) {
        uint64_t next = tail_.load(std::memory_order_relaxed);
        for (; next != end; next++) take(events_[next & (capacity() - 1)]);
        tail_.store(next, std::memory_order_release);
    }

private:
    std::vector<TraceEvent> events_;
    // The writer's cache line, then the reader's.
    alignas(64) uint64_t head_ = 0;
    uint64_t seen_tail_ = 0;
    std::atomic<uint64_t> shown_head_{0};
    alignas(64) std::atomic<uint64_t> tail_{0};
};

// ---- Tracer of a communicator

class CallTracer {
public:
    // The trace's thread sleeps on this; released when there is much to read.
    using Wake = std::counting_semaphore<>;

    // `wants_steps`: the steps of a call are traced, too, not only the call. `wake` must outlive
    // the use of the tracer.
    CallTracer(LoggedComm comm, bool wants_steps, Wake &wake);

    const LoggedComm &comm() const { return comm_; }

    // For the thread that runs calls.
    //
    // Returns the number of the shape that was added under this key; 0: none was.
    uint32_t find_shape(uint64_t key) const {
        const auto found = shapes_.find(key);
        return found == shapes_.end() ? 0 : found->second;
    }
    uint32_t add_shape(uint64_t key, LoggedShape shape);

    struct CallStart {
        uint64_t number = 0, tag = 0;
        uint32_t shape = 0;
        uint64_t queued = 0; // ticks when it was given to a stream; 0: not in a stream
    };
    // Returns true if the call's steps are to be added. Every call that begins must also end.
    bool begin(const CallStart &call);
    // `event` has everything but the call's number and shape.
    void add(TraceEvent event) {
        event.call = call_.call;
        event.shape = call_.shape;
        if (ring_.room(2) < 2) // the last place is for the call's end
            left_out_++;
        else
            ring_.push(event);
    }
    void end(bool has_failed);

    // For the trace's thread.
    //
    // One of every `groups` groups of calls is traced; `groups` is the power of two that the
    // trace's thread has time for. All ranks trace the same groups if they leave out equally many,
    // and otherwise at least some of the same.
    static constexpr uint64_t group_of_calls = 64;
    void trace_every(uint64_t groups) {
        skipped_groups_.store(groups - 1, std::memory_order_relaxed);
    }
    // A new call has one of this many latest shapes, or a new one. Shapes may change without end; a
    // shape that recurs after that many others gets another number.
    static constexpr size_t most_shapes_known = 4096;
    EventRing &ring() { return ring_; }
    std::vector<LoggedShape> take_new_shapes();
    // Number of calls so far that have ended without an event.
    uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
    void close() { is_closed_.store(true, std::memory_order_release); }
    bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

private:
    static constexpr size_t events = 16384;

    const LoggedComm comm_;
    const bool wants_steps_;
    Wake &wake_;
    EventRing ring_{events};
    uint64_t woken_at_ = 0; // events written
    TraceEvent call_;       // the call that has begun
    uint32_t left_out_ = 0;
    bool has_begin_ = false; // the ring has its call_begin
    std::unordered_map<uint64_t, uint32_t> shapes_;
    uint32_t last_shape_ = 0;
    std::atomic<uint64_t> skipped_groups_{0}, lost_{0};
    std::atomic<bool> is_closed_{false};
    std::mutex mutex_;
    std::vector<LoggedShape> new_shapes_; // guarded by mutex_
};

} // namespace qccl
