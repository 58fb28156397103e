// Which codec a call gets: the call's, else the communicator's,
// else the environment's, else none. Pure; whoever asks logs.
#pragma once

#include "codec/codec.hpp"

#include <optional>

namespace qccl {

struct CallShape {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
};

struct CodecChoice {
    Codec codec; // the planner may still find the call too small for it
    // Set where a codec of the communicator or the environment cannot do this call, which therefore
    // goes lossless.
    std::optional<Error> passed_over;

    // That, in a sentence; empty: nothing was.
    std::string notice() const {
        return passed_over ? passed_over->text + std::string("; such calls go lossless") : "";
    }
};

struct CodecPolicy {
    std::optional<Codec> of_communicator; // an explicit none is one too
    std::optional<Codec> of_environment;

    // An error where the call's own codec cannot do it.
    Result<CodecChoice> choose(const Codec *of_call, const CallShape &call) const;
};

} // namespace qccl
