// When calls with a guard go lossless, and when they go with their codec again. Every rank notes
// the same errors of the same calls, so that all ranks decide alike. Pure; one thread at a time.
#pragma once

#include <cstdint>

namespace qccl {

// Of calls of one shape and tag.
class GuardState {
public:
    enum class Change : uint8_t { none, falls_back, returns };

    // After a call of which samples were taken: `nmse` is the largest error that a rank has
    // estimated for the codec, whether or not the call went with it. Zero, as samples of nothing
    // but zeros show, is no evidence that a codec is safe.
    Change note(double nmse, double budget);

    bool is_lossless() const { return is_lossless_; }
    double latest() const { return latest_; } // NMSE
    // How many samples in a row have to stay below half of the budget before the codec returns:
    // twice as many each time that it had to go.
    uint32_t samples_to_return() const { return to_return_; }

    static constexpr uint32_t fewest_to_return = 16, most_to_return = 1024;

private:
    bool is_lossless_ = false;
    double latest_ = 0;
    uint32_t to_return_ = fewest_to_return / 2, good_ = 0;
};

} // namespace qccl
