// Which program a call of a communicator runs.
// ProgramCache holds the programs of one communicator, compiled once for each shape of call.
// CallCache holds the calls that a communicator made lately, by their C arguments: a repeated call
// finds its program with one comparison. Comm and api/call/collective_call.cpp use the two inside
// the communicator's entry guard; they are not thread-safe.
// CallGuards are the guards of lossy calls (the codec key `guard`). Samples of a call's values tell
// how much the codec would lose. The headers of the call's own messages carry the largest such
// error to all ranks. If it exceeds the guard, later calls of the same shape and tag go lossless
// until samples stay within the budget again. Each communicator has its own guards. The thread that
// makes the calls uses `begin` and `end`, any thread the rest; nothing here waits for other ranks.
#pragma once

#include "base/log.hpp"
#include "coll/algorithm.hpp"
#include "engine/compile/program.hpp"
#include "engine/run/call_sampler.hpp"
#include "engine/run/engine.hpp"
#include "plan/planner.hpp"
#include "plan/rules.hpp"
#include "plan/sampled_error.hpp"

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace qccl {

// ---- Compiled programs by shape

// The parts of a v-form; they compare by their counts and starts. Null: the call is no v-form.
struct KeyParts {
    std::shared_ptr<const VFormParts> parts = nullptr;

    bool operator==(const KeyParts &other) const {
        return parts == other.parts || (parts && other.parts && *parts == *other.parts);
    }
};

// Everything that decides which program runs.
struct ProgramKey {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    std::optional<DataType> caller_type; // as in Work
    uint32_t root = 0;
    uint64_t count = 0;   // of a v-form: by which choices are made, equal on all ranks
    KeyParts v;           // of a v-form of the collective
    uint64_t spacing = 0; // from block to block of the caller's vectors; 0: they have no gaps
    Feedback feedback = Feedback::none;
    uint32_t momentum = 0; // of the state
    Codec codec;
    Algorithm algorithm; // named by call, communicator or environment; empty: planned
    Pieces pieces;

    // Whether only the two ends of a message know its count.
    bool is_pairwise() const { return v.parts && !v.parts->are_common(); }
    // Returns the algorithm that the planner is told; empty: it chooses. It compares algorithms of
    // the collective, of which most cannot do a form whose counts are not common.
    const Algorithm &forced() const {
        return is_pairwise() && !algorithm ? algorithms().front() : algorithm;
    }
    // Returns the call that the caller made: the v-form if it is one.
    Collective called() const { return v_form().value_or(collective); }
    std::optional<Collective> v_form() const {
        return v.parts ? std::optional(v.parts->v_form) : std::nullopt;
    }
    bool operator==(const ProgramKey &) const = default;
};

using ProgramRef = std::shared_ptr<const Program>; // an enqueued call holds its own

class ProgramCache {
public:
    // `cut` offers the transport's eager slots; programs use them where they can.
    ProgramCache(Team team, const Chunking &cut, const PlannerInputs &inputs)
        : team_(team), cut_(cut), inputs_(inputs) {}

    // Returns the program for the key, compiled if needed. An error says why the call cannot run;
    // errors are not kept.
    Result<ProgramRef> get(const ProgramKey &key);

private:
    struct Hash {
        size_t operator()(const ProgramKey &key) const;
    };
    struct Held {
        ProgramRef program;
        uint64_t last_used = 0;
    };
    Problem problem_of(const ProgramKey &key) const;
    Result<ProgramRef> make(const ProgramKey &key) const;
    Result<Program> compile_plan(const ProgramKey &key, const Plan &plan, Chunking cut) const;
    // Compiles the programs of a codec's warm-up, for a call with a state.
    Result<std::vector<WarmUpStage>> make_warm_up(const ProgramKey &key) const;
    Result<ProgramRef> make_shared(const ProgramKey &key) const;
    Result<ProgramRef> make_agreement(uint64_t blocks, const Program &sums) const;
    // Also compiles the lossless program, which runs instead when the values lose too much.
    Result<Program> compile_guarded(const ProgramKey &key, const Plan &plan) const;
    void forget_oldest();

    const Team team_;
    const Chunking cut_;
    const PlannerInputs inputs_;
    std::unordered_map<ProgramKey, Held, Hash> held_;
    uint64_t uses_ = 0;
};

// ---- Compiled programs by C arguments

// The part of a call's config that decides its program, as C passes it, unchecked.
struct ConfigKey {
    uint64_t stride = 0;
    Feedback feedback = Feedback::none; // of the state
    uint32_t momentum = 0;              // likewise
    const void *codec = nullptr;
    bool is_lossless = false;            // whatever codec a call would have
    std::array<uint64_t, 4> algorithm{}; // the name, padded with zeros

    bool operator==(const ConfigKey &) const = default;
    // Returns false if the name is too long for the key, or empty, which would look like no name.
    bool set_algorithm(const char *text) {
        const size_t length = strnlen(text, sizeof algorithm);
        if (length == 0 || length == sizeof algorithm) return false;
        std::memcpy(algorithm.data(), text, length);
        return true;
    }
};

// The arguments of a call that decide its program: numbers as C passes them, unchecked.
struct CallKey {
    int32_t collective = -1;
    int32_t type = 0, op = 0, root = 0;
    uint64_t count = 0;
    std::optional<ConfigKey> config; // of calls that have one

    bool operator==(const CallKey &) const = default;
};

// How many bytes of the caller's buffers a call takes, and where they meet: the call is in place if
// send + send_meets is the address recv + recv_meets.
struct BufferExtents {
    size_t send_bytes = 0, recv_bytes = 0;
    size_t send_meets = 0, recv_meets = 0;
};

struct CachedCall {
    CallKey call_key;
    ProgramKey key;
    BufferExtents extents;
    ProgramRef program;
    std::shared_ptr<const VFormParts> parts{}; // of a v-form, as the caller gave them
};

class CallCache {
public:
    // Returns nullptr if the call was not made lately.
    const CachedCall *find(const CallKey &call_key) const {
        const CachedCall &entry = entries_[place(call_key)];
        return entry.call_key == call_key ? &entry : nullptr;
    }
    // The same for a call without a config.
    const CachedCall *find_plain(int32_t collective, int32_t type, int32_t op, int32_t root,
                                 uint64_t count) const {
        const CachedCall &entry = entries_[place(mixed(collective, count))];
        const CallKey &key = entry.call_key;
        const bool is_same = key.count == count && key.collective == collective &&
                             key.type == type && key.op == op && key.root == root && !key.config;
        return is_same ? &entry : nullptr;
    }
    void remember(const CachedCall &call) { entries_[place(call.call_key)] = call; }

private:
    static constexpr unsigned bits = 4; // a user's program repeats a few shapes

    static uint64_t mixed(int32_t collective, uint64_t count) {
        return count ^ static_cast<uint64_t>(static_cast<uint32_t>(collective)) << 60;
    }
    static size_t place(const CallKey &call_key) {
        uint64_t value = mixed(call_key.collective, call_key.count);
        if (const auto &config = call_key.config)
            value ^= reinterpret_cast<uintptr_t>(config->codec) ^ config->algorithm[0];
        return place(value);
    }
    // The factor, 2^64 / golden ratio, spreads counts that are multiples of a power of 2, and
    // handles whose numbers differ in the middle bits.
    static size_t place(uint64_t value) { return value * 0x9E3779B97F4A7C15 >> (64 - bits); }

    std::array<CachedCall, size_t{1} << bits> entries_;
};

// ---- Guards of lossy calls

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
    struct GuardedCall {
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
    Result<GuardedCall> begin(const Program &program, const Call &call);
    // Called after the call has succeeded. All ranks switch between codec and lossless after the
    // same call. `log` gets a message when calls go lossless and when they return to the codec;
    // null: another rank logs it.
    Done end(GuardedCall &use, const Call &call, const Log *log);

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
    Done look_at_input(GuardedCall &use, const Call &call, const SampleSize &size);
    Done look_at_result(GuardedCall &use, const Call &call, const SampleSize &size);
    static double estimate(const GuardedCall &use);
    void tell(const GuardedCall &use, const Call &call, GuardState::Change change, const Log &log);

    CallSampler sampler_;
    mutable std::mutex mutex_; // protects the entries
    std::map<Key, Entry> entries_;
    uint64_t uses_ = 0;
    uint32_t warnings_ = 0;
    std::atomic<uint64_t> lossless_calls_{0};
};

} // namespace qccl
