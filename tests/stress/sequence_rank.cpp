// Plays a sequence of calls as one of its ranks and notes the outcome of each call in shared memory
// (see sequence_rank.hpp). Used by the test program disagreements; blocks until the rank is done.
#include "sequence_rank.hpp"

#include "call_maker.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace stress {

namespace {

class Player {
public:
    Player(const Sequence &sequence, int rank, SequenceStage &stage, qcclComm_t comm)
        : sequence_(sequence), rank_(rank), stage_(stage), own_(stage.ranks[rank]), comm_(comm),
          local_(sequence.seed * 31 + static_cast<uint64_t>(rank)),
          agreed_(sequence.index_of(rank, sequence.first_difference().value_or(SIZE_MAX))) {}

    void run() {
        if (sequence_.enqueues) qcclStreamCreate(&stream_);
        const auto &calls = sequence_.calls[static_cast<size_t>(rank_)];
        for (size_t i = 0; i < calls.size(); i++) {
            // Random delays let the ranks reach a call at different times.
            if (local_.below(4) == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(local_.below(2000)));
            make(calls[i], i);
            own_.calls = i + 1;
        }
        qcclStreamDestroy(stream_);
    }

private:
    void make(const Call &call, size_t index) {
        CallOutcome &outcome = own_.outcomes[index];
        std::vector<CallBuffers> buffers;
        for (int i = 0; i < call.grouped && call.has_data(); i++)
            buffers.emplace_back(call, rank_, sequence_.ranks(), local_);
        if (call.kind == Kind::destroy && meets_before_end())
            pthread_barrier_wait(&stage_.world.barrier);
        const double begin = now_s();
        outcome.result = issue(call, index, buffers);
        outcome.seconds = now_s() - begin;
        if (outcome.result != qcclSuccess)
            std::snprintf(outcome.sentence, sizeof outcome.sentence, "%s", qcclGetLastError(comm_));
        for (const CallBuffers &each : buffers) check(index, each, outcome);
    }
    void check(size_t index, const CallBuffers &buffers, CallOutcome &outcome) {
        if (outcome.result == qcclSuccess) {
            outcome.hash = outcome.hash * 31 + buffers.hash();
            if (index < agreed_ && !buffers.are_right()) outcome.is_wrong = true;
        }
        if (!buffers.are_intact()) outcome.is_wrong = true;
    }
    bool meets_before_end() const {
        return sequence_.may_meet_before_end() && sequence_.seed % 2 == 0;
    }

    qcclResult_t issue(const Call &call, size_t index, std::vector<CallBuffers> &buffers) {
        switch (call.kind) {
        case Kind::split: return split(index);
        case Kind::shrink: return shrink(index);
        case Kind::dup: return duplicate(index);
        case Kind::finalize: return qcclCommFinalize(comm_);
        case Kind::destroy: return qcclCommDestroy(std::exchange(comm_, nullptr));
        default: break;
        }
        const qcclResult_t result = issue_collective(call, buffers);
        if (stream_ == nullptr) return result;
        // A group that fails may have enqueued messages, which use the buffers.
        const qcclResult_t synchronized = qcclStreamSynchronize(stream_);
        return result == qcclSuccess ? synchronized : result;
    }
    qcclResult_t issue_collective(const Call &call, std::vector<CallBuffers> &buffers) {
        const CallPlace place{comm_, rank_, sequence_.ranks(), stream_};
        CallBuffers *const first = buffers.empty() ? nullptr : buffers.data();
        qcclResult_t result = qcclSuccess;
        switch (call.form) {
        case CallForm::plain: result = maker_.make(call, first, place, local_); break;
        case CallForm::prepared: result = call_prepared(call, first, place); break;
        case CallForm::grouped: result = call_group(call, first, place); break;
        }
        maker_.let_go();
        return result;
    }
    // A call that a group refuses makes its end return the refusal.
    qcclResult_t call_group(const Call &call, CallBuffers *buffers, const CallPlace &place) {
        qcclGroupStart();
        for (int i = 0; i < call.grouped; i++)
            (void)maker_.make(call, buffers == nullptr ? nullptr : buffers + i, place, local_);
        return qcclGroupEnd();
    }
    qcclResult_t call_prepared(const Call &call, CallBuffers *buffers, const CallPlace &place) {
        qcclColl_t prepared = nullptr;
        qcclResult_t result = maker_.prepare(&prepared, call, buffers, place, local_);
        if (result == qcclSuccess) result = qcclCollStart(prepared);
        if (prepared != nullptr) qcclCollFree(prepared);
        return result;
    }

    qcclResult_t split(size_t index) {
        const int colors = sequence_.colors, color = rank_ % colors;
        qcclComm_t made = nullptr;
        const qcclResult_t result = qcclCommSplit(comm_, color, -rank_, &made, nullptr);
        const int members = (sequence_.ranks() - color + colors - 1) / colors;
        if (result == qcclSuccess) use_and_destroy(made, members, index);
        return result;
    }
    qcclResult_t shrink(size_t index) {
        qcclComm_t made = nullptr;
        const qcclResult_t result =
            qcclCommShrink(comm_, nullptr, 0, &made, nullptr, QCCL_SHRINK_DEFAULT);
        if (result == qcclSuccess) use_and_destroy(made, sequence_.ranks(), index);
        return result;
    }
    // Before a disagreement, one group sums on both communicators.
    qcclResult_t duplicate(size_t index) {
        qcclComm_t made = nullptr;
        qcclResult_t result = qcclCommDup(comm_, &made, nullptr);
        if (result != qcclSuccess) return result;
        int32_t counts[2] = {1, 1};
        if (index < agreed_) {
            qcclGroupStart();
            const qcclComm_t comms[2] = {made, comm_};
            for (int i = 0; i < 2; i++)
                (void)qcclAllReduce(&counts[i], &counts[i], 1, qcclInt32, qcclSum, comms[i],
                                    nullptr);
            // Ranks that are done with the group may have failed the parent meanwhile.
            result = qcclGroupEnd();
            own_.outcomes[index].is_wrong =
                result == qcclSuccess &&
                (counts[0] != sequence_.ranks() || counts[1] != sequence_.ranks());
        }
        qcclCommDestroy(made);
        return result;
    }
    // After a disagreement, some ranks may have no communicator, so no call is made on the new one.
    void use_and_destroy(qcclComm_t made, int members, size_t index) {
        int32_t count = 1;
        if (index < agreed_) {
            const qcclResult_t result =
                qcclAllReduce(&count, &count, 1, qcclInt32, qcclSum, made, nullptr);
            own_.outcomes[index].is_wrong = result != qcclSuccess || count != members;
        }
        qcclCommDestroy(made);
    }

    const Sequence &sequence_;
    const int rank_;
    SequenceStage &stage_;
    RankOutcome &own_;
    qcclComm_t comm_;
    qcclStream_t stream_ = nullptr;
    Random local_; // choices in which ranks may differ
    CallMaker maker_;
    const size_t agreed_; // number of this rank's calls before the difference
};

void fail_creation(RankOutcome &outcome, qcclResult_t result) {
    outcome.created = result;
    std::snprintf(outcome.sentence, sizeof outcome.sentence, "%s", qcclGetLastError(nullptr));
}

} // namespace

void prepare(SequenceStage &stage, const Sequence &sequence) {
    std::memset(static_cast<void *>(&stage), 0, sizeof stage);
    prepare(stage.world, sequence.ranks());
}

void play_rank(const Sequence &sequence, int rank, SequenceStage &stage) {
    qcclComm_t comm = nullptr;
    const qcclResult_t result = create_rank(sequence.setting, rank, stage.world, &comm);
    if (result != qcclSuccess) return fail_creation(stage.ranks[rank], result);
    Player(sequence, rank, stage, comm).run();
}

void play_threads(const Sequence &sequence, SequenceStage &stage) {
    const qcclResult_t result = create_all(sequence.setting, stage.world);
    if (result != qcclSuccess) return fail_creation(stage.ranks[0], result);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < sequence.ranks(); rank++)
        threads.emplace_back(play_rank, std::cref(sequence), rank, std::ref(stage));
    for (std::thread &thread : threads) thread.join();
}

} // namespace stress
