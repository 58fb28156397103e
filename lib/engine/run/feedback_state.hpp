// States (qcclState_t): what the codecs have lost of one rank's tensor, which the next call with
// the state adds to its values, and the velocity of a codec with momentum. WIRE.md, "State",
// defines what a call makes of a state, and the bytes of a saved one. The C functions make, save
// and load states, and Comm runs calls with them. Any thread may call everything here; nothing
// blocks. One at a time uses a state: StateUse is the right to do so.
#pragma once

#include "base/element_types.hpp"
#include "base/result.hpp"
#include "device/device.hpp"
#include "engine/compile/ops.hpp"
#include "engine/run/engine.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace qccl {

// What a state is made for; it never changes.
struct StateShape {
    DataType type = DataType::float32; // floating or complex
    uint64_t count = 0;                // elements
    uint32_t ranks = 1, rank = 0;
    Feedback feedback = Feedback::all;
    uint32_t momentum = 0; // of the calls' codec, in thousandths; 0: the state has no velocity

    DataType residual_type() const { return accumulator_of(real_type(type)); }
    size_t residual_bytes() const { return count * reals_of(type) * type_bytes(residual_type()); }
    // Returns the bytes of the residual and, behind it, of the velocity.
    size_t bytes() const { return residual_bytes() * (momentum != 0 ? 2 : 1); }
};

class FeedbackState {
public:
    using Values = std::array<DeviceMemory, 2>;

    // Makes a state that owes nothing. The error is that of the device's memory.
    static Result<std::shared_ptr<FeedbackState>> create(const Device &device,
                                                         const StateShape &shape, uint64_t seed);
    FeedbackState(const Device &device, const StateShape &shape, uint64_t seed, Values values)
        : device_(device), shape_(shape), seed_(seed), values_(std::move(values)) {}

    const StateShape &shape() const { return shape_; }
    // Whether a StateUse exists. Another thread may change that at once.
    bool is_used() const { return is_used_.load(std::memory_order_relaxed); }
    // Where the values lie.
    const Device &device() const { return device_; }
    static constexpr size_t header_bytes = 64; // of a saved state
    size_t saved_bytes() const { return header_bytes + shape_.bytes(); }

private:
    friend class StateUse;

    const Device device_;
    const StateShape shape_;
    std::atomic<bool> is_used_{false};
    // The rest belongs to who uses the state.
    uint64_t seed_;
    uint64_t calls_ = 0; // that have succeeded
    Values values_;
    size_t owed_ = 0; // which of the two the next call adds
};
using StateRef = std::shared_ptr<FeedbackState>;

// A call's, or a function's, use of a state. Its end without `finish` leaves the state as it was.
class StateUse {
public:
    // The error (invalid_usage) says that the state is used already.
    static Result<std::shared_ptr<StateUse>> begin(StateRef state);
    // The same of a call that may have no state, and then null.
    static Result<std::shared_ptr<StateUse>> begin_if_any(const StateRef &state) {
        if (!state) return std::shared_ptr<StateUse>();
        return begin(state);
    }
    static Error is_used_already();
    StateUse() = default;
    StateUse(const StateUse &) = delete;
    StateUse &operator=(const StateUse &) = delete;
    ~StateUse() { end(); }

    // Of a call: what the engine gets, and the seed of its noise.
    const CallFeedback &feedback() const { return feedback_; }
    uint64_t seed() const { return state_->seed_; }
    // Takes what the call has lost, if it has succeeded, and ends the use. Others may then use the
    // state at once.
    void finish(const Done &done);

    // These three wait for a GPU, whose errors they return. `bytes` has saved_bytes() bytes.
    Done save(std::span<std::byte> bytes) const;
    // The error is also damaged_data, or invalid_argument for the state of another tensor or rank.
    Done load(std::span<const std::byte> bytes);
    Done reset();

private:
    void end();
    std::byte *values(size_t which) const { return state_->values_[which].data(); }
    // Copies what is owed, and the velocity, to memory of the host, and from there.
    Done read_owed(std::span<std::byte> values) const;
    Done write_owed(std::span<const std::byte> values);
    size_t other() const { return 1 - state_->owed_; }

    StateRef state_; // null: the use has ended
    CallFeedback feedback_;
};

} // namespace qccl
