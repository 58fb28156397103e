// Guards of lossy calls (the codec key `guard`). Samples of a call's values tell how much the codec
// would lose. The headers of the call's own messages carry the largest such error to all ranks. If
// it exceeds the guard, later calls of the same shape and tag go lossless until samples stay within
// the budget again. Each communicator has its own guards. The thread that makes the calls uses
// `begin` and `end`, any thread the rest; nothing here waits for other ranks.
#pragma once

#include "base/log.hpp"
#include "engine/call_sampler.hpp"
#include "engine/engine.hpp"
#include "plan/guard_state.hpp"
#include "plan/sampled_error.hpp"

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace qccl {

// What a program has besides its codec if the codec has a guard.
struct CallGuard {
    double budget = 0; // as NMSE
    EncodeCounts counts;
    std::shared_ptr<const Program> lossless; // program of the same call
};

// The shape of a call, as qcclExplain asks about it.
struct GuardedShape {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;

    bool operator==(const GuardedShape &) const = default;
};

class CallGuards {
private:
    struct Entry;

public:
    explicit CallGuards(const Device &device) : sampler_(device) {}

    // State of one call from `begin` to `end`.
    struct Use {
        const Program *asked = nullptr, *program = nullptr; // `program` is the one to run
        Entry *entry = nullptr;
        uint16_t word = 0; // Call::sampled_nmse
        bool is_sampled = false;
        uint64_t values = 0; // of the whole vector
        uint64_t unit = 1;   // of samples, as SampleSize::unit
    };
    // As Engine::open_gpu.
    Done open_gpu() { return sampler_.open_gpu(); }

    // Called before the call runs; samples its values if the call's turn has come. An error comes
    // from the GPU.
    Result<Use> begin(const Program &program, const Call &call);
    // Called after the call has succeeded. All ranks switch between codec and lossless after the
    // same call. `log` gets a message when calls go lossless and when they return to the codec;
    // null: another rank logs it.
    Done end(Use &use, const Call &call, const Log *log);

    // Number of calls that went lossless although a codec was requested.
    uint64_t lossless_calls() const { return lossless_calls_.load(std::memory_order_relaxed); }
    // Describes the state of guarded calls of this shape, one line for each tag.
    std::string describe(const GuardedShape &shape) const;

private:
    // If there are more shapes and tags, the least recently used entry is dropped.
    static constexpr size_t most_entries = 1024;
    // Further warnings appear at info level: the user knows by then that most tags lose too much.
    static constexpr uint32_t most_warnings = 8;

    struct Key {
        uint64_t program = 0, tag = 0;
        double budget = 0;
        auto operator<=>(const Key &) const = default;
    };
    struct Entry {
        GuardedShape shape;
        std::string codec; // its spec
        GuardState state;
        SampleTurns turns;
        SampledLoss input, inner_input; // of the latest sampled call
        Loss result, inner_result;      // of the latest sampled result
        double cancellation = 1;
        bool has_warned = false;
        uint64_t last_used = 0;
    };
    Entry &entry_of(const Program &program, const Call &call);
    Done look_at_input(Use &use, const Call &call, const SampleSize &size);
    Done look_at_result(Use &use, const Call &call, const SampleSize &size);
    static double estimate(const Use &use);
    void tell(const Use &use, const Call &call, GuardState::Change change, const Log &log);

    CallSampler sampler_;
    mutable std::mutex mutex_; // protects the entries
    std::map<Key, Entry> entries_;
    uint64_t uses_ = 0;
    uint32_t warnings_ = 0;
    std::atomic<uint64_t> lossless_calls_{0};
};

} // namespace qccl
