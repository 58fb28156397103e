// The C functions of states, and the checks of a call that names one.
#include "api/call/states.hpp"

#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "base/text.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"

#include <cinttypes>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>

namespace qccl {

namespace {

using StateHandles = HandleTable<HandleRecord<FeedbackState>>;

} // namespace

static constinit StateHandles state_handles{{.tag = 0x51C9,
                                             .argument = "state",
                                             .unknown = "no qcclStateCreate made",
                                             .ended = "destroyed",
                                             .is_inherited = false}};

Result<StateRef> take_state(qcclState_t handle) {
    QCCL_TRY(const auto found, state_handles.refer(handle));
    return found.record().object;
}

// ---- Calls

static bool has_states(Collective collective) {
    return collective == Collective::all_reduce || collective == Collective::reduce ||
           collective == Collective::reduce_scatter;
}

static Done check_device(const Comm &comm, const FeedbackState &state) {
    const char *const own = comm.parts().device.name(), *const its = state.device().name();
    if (std::strcmp(own, its) == 0) return {};
    return invalid_argument("config: state lies on %s, but the communicator's device is %s", its,
                            own);
}

Done check_state(const Comm &comm, const CallArguments &given, const ProgramKey &key,
                 const FeedbackState *state) {
    if (!state) return {};
    const char *const called = name(given.collective);
    if (!has_states(given.collective))
        return invalid_argument("config: state is set, but %s takes none", called);
    if (given.op != qcclSum && given.op != qcclAvg)
        return invalid_argument("config: state is set, but op is neither qcclSum nor qcclAvg");
    if (key.spacing != 0) return invalid_argument("config: state is set, and so is stride");
    QCCL_TRY(check_device(comm, *state));
    const StateShape &shape = state->shape();
    QCCL_TRY(const DataType type, take_type(given.type));
    if (type != shape.type)
        return invalid_argument("config: state is of %s, but type is %s", name(shape.type),
                                name(type));
    const uint64_t count = given.count * parts_of(given.collective, comm.size());
    if (count != shape.count)
        return invalid_argument("config: state has %" PRIu64
                                " elements, but this rank gives %" PRIu64 " to %s",
                                shape.count, count, called)
            .compared(static_cast<int64_t>(shape.count), static_cast<int64_t>(count));
    if (shape.ranks != comm.size())
        return invalid_argument("config: state is of a communicator of %" PRIu32
                                " ranks, but this one has %" PRIu32
                                "; qcclStateLoad brings what is saved of it into a new state",
                                shape.ranks, comm.size())
            .compared(shape.ranks, comm.size());
    if (shape.rank == comm.rank()) return {};
    return invalid_argument("config: state is of rank %" PRIu32 ", but this is rank %" PRIu32,
                            shape.rank, comm.rank())
        .compared(shape.rank, comm.rank());
}

Done check_momentum(const Codec &codec, const FeedbackState *state) {
    if (!state || codec.is_lossless() || codec.momentum == state->shape().momentum) return {};
    const uint32_t kept = state->shape().momentum;
    const std::string text = kept == 0 ? "none" : write_decimal(kept, 3);
    return invalid_argument("config: codec %s has momentum %s, but that of state is %s: "
                            "qcclStateConfig_t gives it",
                            spec(codec).c_str(), write_decimal(codec.momentum, 3).c_str(),
                            text.c_str())
        .compared(kept, codec.momentum);
}

// ---- C functions

static Result<Feedback> take_feedback(qcclFeedback_t feedback) {
    if (feedback == qcclFeedbackAll) return Feedback::all;
    if (feedback == qcclFeedbackFirst) return Feedback::first;
    return invalid_argument("config: feedback is %" PRId32
                            "; possible are %d (qcclFeedbackAll) and %d (qcclFeedbackFirst)",
                            feedback, qcclFeedbackAll, qcclFeedbackFirst)
        .compared(qcclFeedbackAll, feedback);
}

// Returns thousandths, as the codec's key has them.
static Result<uint32_t> take_momentum(float momentum) {
    const double thousandths = double{momentum} * whole_momentum, nearest = std::rint(thousandths);
    if (nearest >= 0 && nearest < whole_momentum && std::abs(thousandths - nearest) < 1e-3)
        return static_cast<uint32_t>(nearest);
    return invalid_argument("config: momentum is %g; possible are 0 to 0.999 with at most three "
                            "decimals, as in the codec's key",
                            double{momentum});
}

static Result<qcclState_t> create(const Comm &comm, size_t count, qcclDataType_t type,
                                  const qcclStateConfig_t *given) {
    QCCL_TRY(const DataType known, take_type(type));
    if (!info(real_type(known)).is_float)
        return invalid_argument("type is %s, which no codec encodes, so that nothing is lost",
                                name(known));
    // Beside its two residuals and velocities a state needs the memory of its saved form.
    QCCL_TRY(check_count("count", count, known, 8));
    QCCL_TRY(const qcclStateConfig_t config, take_config(given));
    QCCL_TRY(const Feedback feedback, take_feedback(config.feedback));
    QCCL_TRY(const uint32_t momentum, take_momentum(config.momentum));
    const StateShape shape{.type = known,
                           .count = count,
                           .ranks = comm.size(),
                           .rank = comm.rank(),
                           .feedback = feedback,
                           .momentum = momentum};
    QCCL_TRY(auto state, FeedbackState::create(comm.parts().device, shape, config.seed));
    QCCL_TRY(void *const made, state_handles.add(std::move(state)));
    return static_cast<qcclState_t>(made);
}

// Runs body, a Done(StateUse &), if nobody else uses the state.
template <class Body> static Done use(qcclState_t handle, Body body) {
    QCCL_TRY(StateRef state, take_state(handle));
    QCCL_TRY(const auto used, StateUse::begin(std::move(state)));
    return body(*used);
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclStateCreate(qcclState_t *state_out, qcclComm_t comm, size_t count,
                             qcclDataType_t type, const qcclStateConfig_t *config) {
    return at_any_time(comm, [=](const Comm &of) -> Done {
        if (!state_out) return invalid_argument("state_out is NULL");
        QCCL_TRY(*state_out, create(of, count, type, config));
        return {};
    });
}
QCCL_TWIN(qcclStateCreate);

qcclResult_t qcclStateBytes(qcclState_t state, size_t *bytes_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StateRef known, take_state(state));
        if (!bytes_out) return invalid_argument("bytes_out is NULL");
        *bytes_out = known->saved_bytes();
        return {};
    });
}
QCCL_TWIN(qcclStateBytes);

qcclResult_t qcclStateSave(qcclState_t state, void *buffer, size_t bytes) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StateRef known, take_state(state));
        const size_t needed = known->saved_bytes();
        QCCL_TRY(check_pointer({"buffer", buffer, needed}));
        if (bytes < needed)
            return invalid_argument("bytes is %zu, but the state needs %zu", bytes, needed)
                .compared(static_cast<int64_t>(needed), static_cast<int64_t>(bytes));
        return use(state, [&](const StateUse &used) {
            return used.save({static_cast<std::byte *>(buffer), needed});
        });
    });
}
QCCL_TWIN(qcclStateSave);

qcclResult_t qcclStateLoad(qcclState_t state, const void *buffer, size_t bytes) {
    return guarded([=]() -> Done {
        QCCL_TRY(outcome(take_state(state)));
        if (!buffer) return invalid_argument("buffer is NULL");
        return use(state, [&](StateUse &used) {
            return used.load({static_cast<const std::byte *>(buffer), bytes});
        });
    });
}
QCCL_TWIN(qcclStateLoad);

qcclResult_t qcclStateReset(qcclState_t state) {
    return guarded(
        [=]() -> Done { return use(state, [](StateUse &used) { return used.reset(); }); });
}
QCCL_TWIN(qcclStateReset);

qcclResult_t qcclStateDestroy(qcclState_t state) {
    return guarded([=]() -> Done {
        if (!state) return {};
        QCCL_TRY(auto ended, state_handles.refer(state));
        return ended.end();
    });
}
QCCL_TWIN(qcclStateDestroy);
