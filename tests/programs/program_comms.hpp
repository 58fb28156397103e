// The communicators that a rank of a random program has: makes them as the program's steps say, and
// ends them. Used by program_rank.cpp; one thread at a time.
#pragma once

#include "rank_report.hpp"

#include <array>

namespace stress {

class ProgramComms {
public:
    ProgramComms(int rank, RankReport &report, Random &local, qcclComm_t world);

    // NULL: the rank has none, or has ended it.
    qcclComm_t operator[](int comm) const { return comms_[static_cast<size_t>(comm)]; }
    void begin_program(const Program &program) { program_ = &program; }
    // Makes or ends what the step says, if this rank takes part.
    void play(const Step &step);
    // Splits or duplicates as the step says, and if `is_odd` does the other. All ranks give back
    // what they get.
    void make_otherwise(const Step &step, bool is_odd);
    void finalize(int comm);
    void destroy(int comm);
    void abort_all();

private:
    qcclResult_t make(const Step &step, StepKind kind, int own, qcclComm_t *made,
                      const qcclConfig_t *config);
    qcclResult_t grow(const Step &step, int own, qcclComm_t *made, const qcclConfig_t *config);
    bool takes_part(const Step &step, int own) const;
    int made_by(const Step &step, int own) const;
    void keep(int comm, qcclComm_t made);
    qcclResult_t settle(qcclComm_t comm) const;
    qcclUniqueId share_id(const Step &step);
    const ProgramComm &row(int comm) const { return program_->comms[static_cast<size_t>(comm)]; }

    const int rank_; // in the world
    RankReport &report_;
    Random &local_; // choices in which ranks may differ
    const Program *program_ = nullptr;
    std::array<qcclComm_t, max_comms> comms_{};
};

} // namespace stress
