// Calls with a guard (a codec's key): samples of their values tell what the codec would lose, the
// ranks hear of the largest such error in the headers of the call's own messages, and when it is
// more than the guard allows later calls of the same shape and tag go lossless until samples keep
// the budget again. Each communicator has its own. The thread that makes the calls uses `begin` and
// `end`, any thread the rest; nothing here waits for other ranks.
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

// What a program has that goes with a codec and a guard.
struct CallGuard {
    double budget = 0; // NMSE
    EncodeCounts counts;
    std::shared_ptr<const Program> lossless; // of the same call
};

// A call of the public interface, as explanations are asked for one.
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

    // One call, from `begin` to `end`.
    struct Use {
        const Program *asked = nullptr, *program = nullptr; // the latter is to be run
        Entry *entry = nullptr;
        uint16_t word = 0; // Call::sampled_nmse
        bool is_sampled = false;
        uint64_t values = 0; // of the whole vector
        uint64_t unit = 1;   // of samples
    };
    // Before the call: takes samples of its values, if it is its turn. An error is of the GPU.
    Result<Use> begin(const Program &program, const Call &call);
    // After it has succeeded: all ranks change their minds together. `log` (null: another rank's
    // does) is told when calls go lossless, and when they no longer do.
    Done end(Use &use, const Call &call, const Log *log);

    // That have gone lossless though their codec was wanted.
    uint64_t lossless_calls() const { return lossless_calls_.load(std::memory_order_relaxed); }
    // How guarded calls of this shape stand, a line for each tag.
    std::string describe(const GuardedShape &shape) const;

private:
    // Calls of more shapes and tags than these forget what the least recently made ones found.
    static constexpr size_t most_entries = 1024;
    // Further ones are told of at info level: where most tags lose too much that is enough to know.
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
        SampledLoss input, inner_input; // of the call that is under way
        Loss result, inner_result;      // of the latest result
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
    mutable std::mutex mutex_; // of the entries
    std::map<Key, Entry> entries_;
    uint64_t uses_ = 0;
    uint32_t warnings_ = 0;
    std::atomic<uint64_t> lossless_calls_{0};
};

} // namespace qccl
