// Decides when calls with a guard go lossless, and when they use their codec again. Every rank
// notes the same errors of the same calls, so all ranks decide alike. Used by the guards of a
// communicator. Pure; one thread at a time, nothing blocks.
#pragma once

#include <cstdint>

namespace qccl {

// The state of calls of one shape and tag.
class GuardState {
public:
    enum class Change : uint8_t { none, falls_back, returns };

    // Notes a call of which samples were taken, and returns what changes for later calls. `nmse` is
    // the largest error that a rank has estimated for the codec, whether or not the call used it.
    // `budget`: the largest error that the guard allows. An error of 0, which samples of zeros
    // alone show, is no evidence that a codec is safe.
    Change note(double nmse, double budget);

    bool is_lossless() const { return is_lossless_; }
    double latest() const { return latest_; } // NMSE
    // Returns how many samples in a row have to stay within half of the budget before the codec
    // returns. The number doubles each time that calls go lossless, up to `most_to_return`.
    uint32_t samples_to_return() const { return to_return_; }

    static constexpr uint32_t fewest_to_return = 16, most_to_return = 1024;

private:
    bool is_lossless_ = false;
    double latest_ = 0;
    uint32_t to_return_ = fewest_to_return / 2, good_ = 0;
};

} // namespace qccl
