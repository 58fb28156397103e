// The ranks of one run and the device of each. A RankGroup is the ranks' communication outside
// QCCL: barriers and all-gathers. This traffic therefore neither depends on the library under test
// nor appears in its statistics. A RankDevice says where the buffers of one rank are: in host
// memory, or in the memory of a GPU, where the rank has its own stream for all its work. Used by
// qccl-perf's commands. Each rank uses its own RankGroup and RankDevice from one thread at a time;
// allgather and barrier block until all ranks have called.
//
// time_in_turns times several calls in turns, so that other activity on the machine affects all
// of them alike. Used by qccl-perf. All ranks call it together; it blocks until all calls are
// timed.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qccl/qccl.h>

namespace qccl::perf {

// ---- Group

class RankGroup {
public:
    RankGroup() = default;
    virtual ~RankGroup() = default;
    RankGroup(const RankGroup &) = delete;
    RankGroup &operator=(const RankGroup &) = delete;

    // The error text on a rank that waits for a rank which has given up. The other rank reports the
    // reason.
    static constexpr const char *given_up = "another rank has given up";

    virtual uint32_t rank() const = 0;
    virtual uint32_t size() const = 0;
    // Each rank contributes `bytes` bytes and receives those of all ranks, in rank order. Fails if
    // a rank has given up, so that no rank waits for it.
    virtual Done allgather(const void *mine, void *all, size_t bytes) = 0;
    virtual Done barrier() = 0;
    // Tells the other ranks that this rank gives up.
    virtual void give_up() = 0;
    // Returns whether no rank is known to have asked before about the same sentence.
    virtual bool is_first_to_say(std::string_view sentence) = 0;
};

// Prints the error of this rank to standard error, unless another rank has printed the same;
// returns the exit status.
int complain(RankGroup &rank_group, const Error &error);

// Returns whether the error only says that another rank has given up; that rank reports what
// happened.
bool is_given_up(const Error &error);

// Waits for all ranks. If any rank has an error, fails on all of them: the first such rank gets its
// own error, the others get its code and the text `given_up`.
Done settle(RankGroup &rank_group, const Done &mine);

template <class T> Result<std::vector<T>> gather(RankGroup &rank_group, const T &mine) {
    std::vector<T> all(rank_group.size());
    QCCL_TRY(rank_group.allgather(&mine, all.data(), sizeof(T)));
    return all;
}

// Memory shared by the ranks of a run, which are threads or forked processes; created before they
// start.
class RunMemory {
public:
    static Result<std::unique_ptr<RunMemory>> create(uint32_t ranks);
    ~RunMemory();
    RunMemory(const RunMemory &) = delete;
    RunMemory &operator=(const RunMemory &) = delete;

    std::unique_ptr<RankGroup> join(uint32_t rank);
    void give_up();

private:
    friend class ShmRankGroup;
    struct Head {
        std::atomic<uint32_t> arrived;
        std::atomic<uint32_t> round;
        std::atomic<bool> given_up;
        std::array<std::atomic<uint64_t>, 64> said; // hashes of the sentences printed so far
    };

    RunMemory(void *memory, uint32_t ranks) : memory_(memory), ranks_(ranks) {}
    Head &head() const { return *static_cast<Head *>(memory_); }
    std::byte *slot(uint32_t rank) const;

    void *memory_;
    uint32_t ranks_;
};

// ---- Device

class RankDevice {
public:
    // `name` must be one that check_device accepts.
    static Result<RankDevice> open(const std::string &name);

    const std::string &name() const { return name_; }
    std::string model() const; // of the GPU, or of the host's processor
    int number() const { return gpu_ ? static_cast<int>(gpu_->traits().number) : 0; }
    const std::shared_ptr<Gpu> &gpu() const { return gpu_; } // null: the rank is on the host

    // The stream for the rank's calls. QCCL_STREAM_SYNC on the host, and on GPUs whose streams
    // cannot wait for a word of the host.
    qcclStream_t stream() const;
    // Returns whether calls return before they are complete; wait() then waits for their
    // completion.
    bool enqueues() const { return gpu_ && gpu_->traits().has_stream_waits; }
    Done wait() const;

    // Copies after the rank's calls so far; blocks until the copy is complete.
    Done copy(void *to, const void *from, size_t bytes) const;

private:
    explicit RankDevice(std::string name) : name_(std::move(name)) {}

    std::string name_;
    std::shared_ptr<Gpu> gpu_;
    OwnStream stream_;
};

// ---- Timing in turns

struct TimedCall {
    std::function<Done()> call;
    // Set if calls return before they are complete: waits for the calls made so far.
    std::function<Done()> finish{};
    // Restores the buffers, untimed, before every turn and then after at most `calls_per_refill`
    // calls, because repeated in-place sums grow until they overflow. 0: never within a turn.
    std::function<Done()> refill;
    uint64_t calls_per_refill = 0;
};

struct TurnOptions {
    uint32_t iterations = 20;
    uint32_t warmup_iterations = 1;
    uint32_t aggregated = 1; // calls per iteration
    uint32_t turns = 1;      // turns of each call; at most as many as iterations
    // Untimed calls at the beginning of a turn. They refill the caches that the previous call has
    // emptied and synchronize the ranks after a barrier.
    uint32_t lead_in = 0;
    bool barrier_between = false;
};

// What this rank measured: one time per iteration, divided by the calls in it.
struct Times {
    std::vector<double> us;
    std::vector<double> cpu_us;
    std::vector<double> enqueue_us; // time until a call returned, if that is before its end
};

// All ranks call this with the same number of calls in the same order.
Result<std::vector<Times>> time_in_turns(RankGroup &rank_group,
                                         std::span<const TimedCall> timed_calls,
                                         const TurnOptions &options);

} // namespace qccl::perf
