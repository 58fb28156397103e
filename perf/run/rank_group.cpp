// Implements rank_group.hpp: the RankGroup over shared memory, the reporting of errors, the opening
// of a rank's GPU and its stream, and copies between host memory and the device. Splits the
// iterations into turns, and turns into stretches between refills.
#include "perf/run/rank_group.hpp"

#include "device/device.hpp"
#include "topology/sources/calibration_source.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

namespace qccl::perf {

// ---- Group

static constexpr size_t page_bytes = 4096;
static constexpr size_t slot_bytes = size_t{16} << 10; // of one rank, in one round of an all-gather

static size_t run_memory_bytes(uint32_t ranks) { return page_bytes + ranks * slot_bytes; }

Result<std::unique_ptr<RunMemory>> RunMemory::create(uint32_t ranks) {
    void *const memory = mmap(nullptr, run_memory_bytes(ranks), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error::make(Code::system_error, "no memory for %u ranks to share", ranks);
    new (memory) Head{};
    return std::unique_ptr<RunMemory>(new RunMemory(memory, ranks));
}

RunMemory::~RunMemory() { munmap(memory_, run_memory_bytes(ranks_)); }

std::byte *RunMemory::slot(uint32_t rank) const {
    return static_cast<std::byte *>(memory_) + page_bytes + rank * slot_bytes;
}

void RunMemory::give_up() { head().given_up = true; }

// Ranks may outnumber cores, and one rank may compute for seconds while the others wait. So a rank
// spins briefly for the common case and then leaves the core to other ranks.
static void wait_a_little(uint32_t turn) {
    static constexpr uint32_t spins = 200, yields = 2000;
    if (turn < spins) return;
    if (turn < yields) {
        sched_yield();
        return;
    }
    const timespec pause{0, 50'000};
    nanosleep(&pause, nullptr);
}

class ShmRankGroup final : public RankGroup {
public:
    ShmRankGroup(RunMemory &run_memory, uint32_t rank) : run_memory_(run_memory), rank_(rank) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return run_memory_.ranks_; }
    void give_up() override { run_memory_.give_up(); }

    bool is_first_to_say(std::string_view sentence) override {
        const uint64_t mine = std::hash<std::string_view>()(sentence) | 1;
        for (std::atomic<uint64_t> &slot : run_memory_.head().said) {
            uint64_t said = 0;
            if (slot.compare_exchange_strong(said, mine)) return true;
            if (said == mine) return false;
        }
        return true;
    }

    Done barrier() override {
        RunMemory::Head &head = run_memory_.head();
        if (head.given_up) return Error::make(Code::peer_lost, "%s", given_up);
        const uint32_t round = head.round;
        if (head.arrived.fetch_add(1) + 1 == size()) {
            head.arrived = 0;
            head.round = round + 1;
        }
        for (uint32_t turn = 0; head.round == round; turn++) {
            if (head.given_up) return Error::make(Code::peer_lost, "%s", given_up);
            wait_a_little(turn);
        }
        return {};
    }

    Done allgather(const void *mine, void *all, size_t bytes) override {
        for (size_t done = 0; done < bytes; done += slot_bytes) {
            const size_t piece = std::min(slot_bytes, bytes - done);
            std::memcpy(run_memory_.slot(rank_), static_cast<const std::byte *>(mine) + done,
                        piece);
            QCCL_TRY(barrier());
            for (uint32_t peer = 0; peer < size(); peer++)
                std::memcpy(static_cast<std::byte *>(all) + peer * bytes + done,
                            run_memory_.slot(peer), piece);
            QCCL_TRY(barrier()); // a slot may be overwritten only after all ranks have read it
        }
        return {};
    }

private:
    RunMemory &run_memory_;
    uint32_t rank_;
};

bool is_given_up(const Error &error) { return std::string_view(error.text) == RankGroup::given_up; }

int complain(RankGroup &rank_group, const Error &error) {
    if (!is_given_up(error) && rank_group.is_first_to_say(error.text))
        std::fprintf(stderr, "rank %u: %s\n", rank_group.rank(), error.text);
    return EXIT_FAILURE;
}

Done settle(RankGroup &rank_group, const Done &mine) {
    QCCL_TRY(const auto all, gather(rank_group, mine ? Code::success : mine.error().code));
    for (uint32_t rank = 0; rank < rank_group.size(); rank++)
        if (all[rank] != Code::success)
            return rank == rank_group.rank() ? mine.error()
                                             : Error::make(all[rank], "%s", RankGroup::given_up);
    return {};
}

std::unique_ptr<RankGroup> RunMemory::join(uint32_t rank) {
    return std::make_unique<ShmRankGroup>(*this, rank);
}

// ---- Device

Result<RankDevice> RankDevice::open(const std::string &name) {
    RankDevice device(name);
    QCCL_TRY(device.gpu_, open_gpu(name));
    if (device.gpu_) {
        QCCL_TRY(device.stream_, OwnStream::create(device.gpu_, StreamPriority::usual));
    }
    return Result<RankDevice>(std::move(device));
}

std::string RankDevice::model() const { return gpu_ ? gpu_->traits().model : processor_name(); }

qcclStream_t RankDevice::stream() const {
    return enqueues() ? static_cast<qcclStream_t>(stream_.get()) : QCCL_STREAM_SYNC;
}

Done RankDevice::wait() const { return gpu_ ? gpu_->synchronize(stream_.get()) : Done(); }

Done RankDevice::copy(void *to, const void *from, size_t bytes) const {
    if (bytes == 0) return {};
    if (!gpu_) {
        std::memcpy(to, from, bytes);
        return {};
    }
    QCCL_TRY(gpu_->copy(stream_.get(), to, from, bytes));
    return wait();
}

// ---- Timing in turns

static double now_us(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

static Done call_often(const TimedCall &timed_call, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) QCCL_TRY(timed_call.call());
    return {};
}

static Done call_to_the_end(const TimedCall &timed_call, uint32_t times) {
    QCCL_TRY(call_often(timed_call, times));
    return timed_call.finish ? timed_call.finish() : Done();
}

// Untimed calls, then timed iterations until the buffers must be refilled.
struct Stretch {
    uint32_t lead_in;
    uint32_t iterations;
};

static Stretch next_stretch(const TimedCall &timed_call, uint32_t left,
                            const TurnOptions &options) {
    const uint64_t allowed = timed_call.calls_per_refill;
    if (allowed == 0) return {options.lead_in, left};
    const uint32_t lead_in = allowed > options.lead_in + options.aggregated ? options.lead_in : 0;
    const uint64_t iterations = (allowed - lead_in) / options.aggregated;
    return {lead_in, static_cast<uint32_t>(std::clamp<uint64_t>(iterations, 1, left))};
}

static Done refill_together(RankGroup &rank_group, const TimedCall &timed_call) {
    QCCL_TRY(timed_call.refill());
    return rank_group.barrier();
}

// Without a barrier in between, the end of one iteration is the beginning of the next, so each
// iteration reads the clock once and no time between them is lost.
static Done run_stretch(RankGroup &rank_group, const TimedCall &timed_call, uint32_t iterations,
                        const TurnOptions &options, Times &times) {
    const double first_cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
    double begin = now_us(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < iterations; i++) {
        QCCL_TRY(call_often(timed_call, options.aggregated));
        if (timed_call.finish) {
            times.enqueue_us.push_back((now_us(CLOCK_MONOTONIC) - begin) / options.aggregated);
            QCCL_TRY(timed_call.finish());
        }
        const double end = now_us(CLOCK_MONOTONIC);
        times.us.push_back((end - begin) / options.aggregated);
        begin = end;
        if (!options.barrier_between) continue;
        QCCL_TRY(rank_group.barrier());
        begin = now_us(CLOCK_MONOTONIC);
    }
    // This clock is read once for all iterations, because reading it is a system call, which is
    // slower than a small collective.
    const double each =
        (now_us(CLOCK_THREAD_CPUTIME_ID) - first_cpu) / (iterations * options.aggregated);
    times.cpu_us.insert(times.cpu_us.end(), iterations, each);
    return {};
}

static Done take_turn(RankGroup &rank_group, const TimedCall &timed_call, uint32_t iterations,
                      const TurnOptions &options, Times &times) {
    for (uint32_t left = iterations; left > 0;) {
        const Stretch stretch = next_stretch(timed_call, left, options);
        QCCL_TRY(refill_together(rank_group, timed_call));
        QCCL_TRY(call_to_the_end(timed_call, stretch.lead_in));
        QCCL_TRY(run_stretch(rank_group, timed_call, stretch.iterations, options, times));
        left -= stretch.iterations;
    }
    return {};
}

static Done warm_up(RankGroup &rank_group, const TimedCall &timed_call,
                    const TurnOptions &options) {
    const uint64_t all = options.warmup_iterations;
    const uint64_t stretch = timed_call.calls_per_refill == 0 ? all : timed_call.calls_per_refill;
    for (uint64_t done = 0; done < all; done += stretch) {
        QCCL_TRY(refill_together(rank_group, timed_call));
        QCCL_TRY(call_to_the_end(timed_call, static_cast<uint32_t>(std::min(stretch, all - done))));
    }
    return {};
}

Result<std::vector<Times>> time_in_turns(RankGroup &rank_group,
                                         std::span<const TimedCall> timed_calls,
                                         const TurnOptions &options) {
    std::vector<Times> times(timed_calls.size());
    for (Times &one : times) {
        one.us.reserve(options.iterations);
        one.cpu_us.reserve(options.iterations);
    }
    for (const TimedCall &timed_call : timed_calls)
        QCCL_TRY(warm_up(rank_group, timed_call, options));

    const uint32_t turns = std::clamp<uint32_t>(options.turns, 1, options.iterations);
    for (uint32_t turn = 0; turn < turns; turn++) {
        const uint64_t all = options.iterations;
        const auto begin = static_cast<uint32_t>(all * turn / turns);
        const auto end = static_cast<uint32_t>(all * (turn + 1) / turns);
        for (size_t i = 0; i < timed_calls.size(); i++)
            QCCL_TRY(take_turn(rank_group, timed_calls[i], end - begin, options, times[i]));
    }
    return times;
}

} // namespace qccl::perf
