#include "api/codec_policy.hpp"

namespace qccl {

static CodecChoice unless_impossible(const Codec &codec, const CallShape &call) {
    if (const Done done = check_codec(codec, call.collective, call.type, call.op); !done)
        return {{}, done.error()};
    return {codec, {}};
}

// What QCCL_CODEC may touch: a program that knows nothing of codecs must not lose anything where
// it does not sum.
static bool is_open_to_environment(const CallShape &call) {
    return info(call.type).is_float && (call.op == RedOp::sum || call.op == RedOp::avg);
}

Result<CodecChoice> CodecPolicy::choose(const Codec *of_call, const CallShape &call) const {
    if (of_call) {
        QCCL_TRY(check_codec(*of_call, call.collective, call.type, call.op));
        return CodecChoice{*of_call, {}};
    }
    if (!reduces(call.collective)) return CodecChoice{};
    if (of_communicator) return unless_impossible(*of_communicator, call);
    if (!of_environment) return CodecChoice{};
    if (is_open_to_environment(call)) return unless_impossible(*of_environment, call);
    return CodecChoice{{},
                       Error::make(Code::invalid_argument,
                                   "codec %s of QCCL_CODEC: reaches sum and avg of floating point, "
                                   "not %s of %s",
                                   spec(*of_environment).c_str(), name(call.op), name(call.type))};
}

} // namespace qccl
