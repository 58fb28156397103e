// Makes and ends communicators as program_comms.hpp says.
#include "program_comms.hpp"

#include "tests/stress/world_stage.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace stress {

ProgramComms::ProgramComms(int rank, RankReport &report, Random &local, qcclComm_t world)
    : rank_(rank), report_(report), local_(local) {
    comms_[0] = world;
}

// A nonblocking function that makes a communicator is inside the old one until it is done.
qcclResult_t ProgramComms::settle(qcclComm_t comm) const {
    qcclResult_t state = qcclInProgress;
    while (comm != nullptr) {
        const qcclResult_t result = qcclCommGetAsyncError(comm, &state);
        if (result != qcclSuccess) return result;
        if (state != qcclInProgress) return state;
        std::this_thread::yield();
    }
    return qcclSuccess;
}

bool ProgramComms::takes_part(const Step &step, int own) const {
    if (step.kind == StepKind::grow && row(step.made[0]).rank_of(rank_) >= 0) return true;
    if (own < 0) return false;
    // Shrinks leave out what earlier ones excluded.
    return step.kind != StepKind::shrink || row(step.made[0]).rank_of(rank_) >= 0;
}

// Returns the new communicator that the rank gets, or -1.
int ProgramComms::made_by(const Step &step, int own) const {
    if (step.kind != StepKind::split) return step.made[0];
    const int color = step.colors[static_cast<size_t>(own)];
    return color < 0 ? -1 : step.made[static_cast<size_t>(color)];
}

// One rank of the old communicator makes the id; the world brings it to the others.
qcclUniqueId ProgramComms::share_id(const Step &step) {
    qcclUniqueId id{};
    const int maker = row(step.comm).members[0];
    if (rank_ == maker && qcclGetUniqueId(&id) != qcclSuccess) report_.note_wrong("no unique id");
    const qcclResult_t result =
        qcclBroadcast(&id, &id, sizeof id, qcclUint8, maker, comms_[0], nullptr);
    report_.note(0, result, 0);
    return id;
}

qcclResult_t ProgramComms::grow(const Step &step, int own, qcclComm_t *made,
                                const qcclConfig_t *config) {
    const qcclUniqueId id = share_id(step);
    const ProgramComm &grown = row(step.made[0]);
    const int joining = grown.rank_of(rank_);
    if (joining < 0) return qcclSuccess;
    // One rank of the old communicator has to pass the id.
    const bool passes = own <= 0 || local_.below(2) == 0;
    return qcclCommGrow(own < 0 ? nullptr : (*this)[step.comm], grown.size(),
                        passes ? &id : nullptr, own < 0 ? joining : -1, made, config);
}

qcclResult_t ProgramComms::make(const Step &step, StepKind kind, int own, qcclComm_t *made,
                                const qcclConfig_t *config) {
    const qcclComm_t parent = (*this)[step.comm];
    switch (kind) {
    case StepKind::split: {
        const int color = step.colors[static_cast<size_t>(own)];
        return qcclCommSplit(parent, color < 0 ? QCCL_SPLIT_NOCOLOR : color,
                             step.keys[static_cast<size_t>(own)], made, config);
    }
    case StepKind::shrink:
        return qcclCommShrink(parent, step.excluded.data(), static_cast<int>(step.excluded.size()),
                              made, config, QCCL_SHRINK_DEFAULT);
    case StepKind::grow: return grow(step, own, made, config);
    default: return qcclCommDup(parent, made, config);
    }
}

void ProgramComms::play(const Step &step) {
    if (step.kind == StepKind::finalize) return finalize(step.comm);
    if (step.kind == StepKind::destroy) return destroy(step.comm);
    const int own = row(step.comm).rank_of(rank_);
    // All ranks of the world bring the id of a growth to one another.
    if (!takes_part(step, own) && step.kind != StepKind::grow) return;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.nonblocking = 1;
    const bool waits = local_.below(4) != 0;
    qcclComm_t made = nullptr;
    const double began = now_s();
    qcclResult_t result = make(step, step.kind, own, &made, waits ? nullptr : &config);
    const bool goes_on = result == qcclInProgress; // by this config, or by that of the old one
    if (goes_on) result = settle(made);
    report_.note(step.comm, result, now_s() - began, goes_on ? made : nullptr);
    if (result == qcclSuccess && takes_part(step, own)) keep(made_by(step, own), made);
    if (goes_on && own >= 0) report_.note(step.comm, settle((*this)[step.comm]), now_s() - began);
}

void ProgramComms::keep(int comm, qcclComm_t made) {
    if (comm < 0) {
        if (made != nullptr) report_.note_wrong("a communicator without a color");
        return;
    }
    comms_[static_cast<size_t>(comm)] = made;
    int count = 0, rank = -1;
    qcclCommCount(made, &count);
    qcclCommUserRank(made, &rank);
    if (count != row(comm).size() || rank != row(comm).rank_of(rank_))
        report_.note_wrong(killable::say("comm %d has rank %d of %d", comm, rank, count));
}

void ProgramComms::make_otherwise(const Step &step, bool is_odd) {
    const int own = row(step.comm).rank_of(rank_);
    if (own < 0) return;
    const bool splits = (step.kind == StepKind::split) != is_odd;
    qcclComm_t made = nullptr;
    const double began = now_s();
    qcclResult_t result = make(step, splits ? StepKind::split : StepKind::dup, own, &made, nullptr);
    const bool goes_on = result == qcclInProgress;
    if (goes_on) result = settle(made);
    report_.note(step.comm, result, now_s() - began, goes_on ? made : nullptr);
    if (result == qcclSuccess || goes_on) qcclCommDestroy(made);
    if (goes_on) report_.note(step.comm, settle((*this)[step.comm]), 0);
}

void ProgramComms::finalize(int comm) {
    const qcclComm_t own = (*this)[comm];
    if (own == nullptr) return;
    const double began = now_s();
    qcclResult_t result = qcclCommFinalize(own);
    if (result == qcclInProgress) result = settle(own);
    report_.note(comm, result, now_s() - began, own);
}

void ProgramComms::destroy(int comm) {
    const qcclComm_t own = std::exchange(comms_[static_cast<size_t>(comm)], nullptr);
    if (own == nullptr) return;
    const double began = now_s();
    report_.note(comm, qcclCommDestroy(own), now_s() - began);
    const bool is_looked_at = local_.below(8) == 0;
    if (is_looked_at && qcclBarrier(own, nullptr) != qcclInvalidUsage)
        report_.note_wrong("a communicator works after its end");
}

void ProgramComms::abort_all() {
    for (qcclComm_t &comm : comms_)
        if (comm != nullptr) qcclCommAbort(std::exchange(comm, nullptr));
}

} // namespace stress
