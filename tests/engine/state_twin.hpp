// The slow twin of calls with a state: runs the placed schedules of all ranks step by step on whole
// chunks in plain vectors, with the scalar reference, and finds the errors of the encodes outside
// of the engine. Beside the schedules it shares with the library neither segments, tiles,
// operations, transports nor the engine. Used by tests that compare bytes; does not block.
#pragma once

#include "tests/kit/slow_twin.hpp"

#include "engine/compile/ops.hpp"

#include <vector>

namespace qtest {

struct TwinStates {
    std::vector<Bytes> outputs;   // by rank: the receive buffer
    std::vector<Bytes> residuals; // by rank: a value of the accumulator's type for each input
    // By rank: for each input, whether an encode whose error counts decodes to other than zero.
    std::vector<std::vector<bool>> sent;
};

// The velocities of a state with momentum, by rank, in the accumulator's type.
struct TwinVelocities {
    uint32_t momentum = 0; // thousandths; 0: there are none
    std::vector<Bytes> values;

    // Ends those that a call has sent.
    void mask(const TwinCall &call, const TwinStates &states);
};

// Returns the values that the ranks' calls run on: inputs and residuals of the call before, in the
// accumulator's type.
std::vector<Bytes> with_residuals(const TwinCall &call, const std::vector<Bytes> &inputs,
                                  const std::vector<Bytes> &residuals);
// The same of a state with momentum, whose velocities become the next ones, before the mask.
std::vector<Bytes> with_residuals(const TwinCall &call, const std::vector<Bytes> &inputs,
                                  const std::vector<Bytes> &residuals, TwinVelocities &velocities);

// `inputs`: of all ranks, as with_residuals returns them.
TwinStates state_twin(const TwinCall &call, const std::vector<Bytes> &inputs,
                      qccl::Feedback feedback);

} // namespace qtest
