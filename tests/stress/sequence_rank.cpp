// Plays a sequence of calls as one of its ranks and notes the outcome of each call in shared memory
// (see sequence_rank.hpp). Used by the test program disagreements; blocks until the rank is done.
#include "sequence_rank.hpp"

#include "tests/transport/killable_ranks.hpp"
#include "sequence_vector.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace sequences {

namespace {

// The context of a caller's all-gather over the memory that the ranks share.
struct Gathering {
    SequenceStage &stage;
    int rank, ranks;
    std::unique_lock<std::mutex> lock{}; // locks the environment until creation has read it
};

int gather(const void *mine, void *all, size_t bytes, void *context) {
    auto &gathering = *static_cast<Gathering *>(context);
    if (gathering.lock.owns_lock()) gathering.lock.unlock();
    SequenceStage &stage = gathering.stage;
    if (bytes > sizeof stage.gathered[0]) return 1;
    std::memcpy(stage.gathered[gathering.rank], mine, bytes);
    pthread_barrier_wait(&stage.barrier);
    for (int rank = 0; rank < gathering.ranks; rank++)
        std::memcpy(static_cast<char *>(all) + static_cast<size_t>(rank) * bytes,
                    stage.gathered[rank], bytes);
    pthread_barrier_wait(&stage.barrier);
    return 0;
}

// The environment says which host a rank counts as being on, and threads share the environment. A
// rank holds the lock until its creation, which reads the environment first, has reached the
// all-gather.
qcclResult_t create_by_gather(const Sequence &sequence, int rank, SequenceStage &stage,
                              qcclComm_t *comm) {
    static std::mutex environment;
    Gathering gathering{stage, rank, sequence.ranks};
    gathering.lock = std::unique_lock(environment);
    if (sequence.hosts > 1)
        setenv("QCCL_HOSTID", killable::say("h%d", sequence.host_of(rank)).c_str(), 1);
    else
        unsetenv("QCCL_HOSTID");
    const qcclOob_t oob{gather, &gathering};
    return qcclCommInitOob(comm, sequence.ranks, rank, &oob, nullptr);
}

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

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
            if (draw(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw(2000)));
            make(calls[i], i);
            own_.calls = i + 1;
        }
        qcclStreamDestroy(stream_);
    }

private:
    uint64_t draw(uint64_t bound) {
        local_ = local_ * 6364136223846793005U + 1442695040888963407U;
        return (local_ >> 33) % bound;
    }

    void make(const Call &call, size_t index) {
        CallOutcome &outcome = own_.outcomes[index];
        std::vector<CallBuffers> buffers;
        for (int i = 0; i < call.grouped && call.has_data(); i++)
            buffers.emplace_back(call, rank_, sequence_.ranks, draw(2) == 0);
        if (call.kind == Kind::destroy && meets_before_end()) pthread_barrier_wait(&stage_.barrier);
        const double begin = now_s();
        outcome.result = issue(call, index, buffers);
        outcome.seconds = now_s() - begin;
        if (outcome.result != qcclSuccess)
            std::snprintf(outcome.sentence, sizeof outcome.sentence, "%s", qcclGetLastError(comm_));
        for (const CallBuffers &each : buffers) check(call, index, each, outcome);
    }
    void check(const Call &call, size_t index, const CallBuffers &buffers, CallOutcome &outcome) {
        if (outcome.result == qcclSuccess) {
            const auto bytes = buffers.received();
            outcome.hash = outcome.hash * 31 +
                           std::hash<std::string_view>()(
                               {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
            const bool is_exact = call.codec == nullptr || std::strcmp(call.codec, "bf16") == 0;
            if (index < agreed_ && is_exact && !buffers.are_right()) outcome.is_wrong = true;
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
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.algorithm = call.algorithm;
        config.tag = draw(3); // ranks may give different tags
        if (call.codec != nullptr && qcclCodecCreate(&config.codec, call.codec) != qcclSuccess)
            return qcclInternalError;
        CallBuffers *const first = buffers.empty() ? nullptr : buffers.data();
        qcclResult_t result = qcclSuccess;
        switch (call.form) {
        case CallForm::plain: result = call_library(call, first, &config); break;
        case CallForm::prepared: result = call_prepared(call, first, &config); break;
        case CallForm::grouped: result = call_group(call, first, &config); break;
        }
        qcclCodecDestroy(config.codec);
        return result;
    }
    // A call that a group refuses makes its end return the refusal.
    qcclResult_t call_group(const Call &call, CallBuffers *buffers,
                            const qcclCollConfig_t *config) {
        qcclGroupStart();
        for (int i = 0; i < call.grouped; i++)
            (void)call_library(call, buffers == nullptr ? nullptr : buffers + i, config);
        return qcclGroupEnd();
    }
    qcclResult_t call_prepared(const Call &call, CallBuffers *buffers,
                               const qcclCollConfig_t *config) {
        qcclColl_t prepared = nullptr;
        qcclResult_t result = qcclCollCreate(
            &prepared, collective_of(call.kind), buffers == nullptr ? nullptr : buffers->send(),
            buffers == nullptr ? nullptr : buffers->recv(), call.count, call.type, call.op,
            call.root, comm_, stream_, config);
        if (result == qcclSuccess) result = qcclCollStart(prepared);
        qcclCollFree(prepared);
        return result;
    }
    static qcclCollective_t collective_of(Kind kind) {
        switch (kind) {
        case Kind::all_reduce: return qcclCollAllReduce;
        case Kind::reduce_scatter: return qcclCollReduceScatter;
        case Kind::reduce: return qcclCollReduce;
        case Kind::scan: return qcclCollScan;
        case Kind::exscan: return qcclCollExscan;
        case Kind::all_gather: return qcclCollAllGather;
        case Kind::broadcast: return qcclCollBroadcast;
        case Kind::gather: return qcclCollGather;
        case Kind::scatter: return qcclCollScatter;
        case Kind::all_to_all: return qcclCollAllToAll;
        default: return qcclCollBarrier;
        }
    }
    qcclResult_t call_library(const Call &call, CallBuffers *buffers,
                              const qcclCollConfig_t *config) {
        if (call.kind == Kind::barrier) return qcclBarrierConfig(comm_, stream_, config);
        const void *send = buffers->send();
        void *recv = buffers->recv();
        switch (call.kind) {
        case Kind::all_reduce:
            return qcclAllReduceConfig(send, recv, call.count, call.type, call.op, comm_, stream_,
                                       config);
        case Kind::reduce_scatter:
            return qcclReduceScatterConfig(send, recv, call.count, call.type, call.op, comm_,
                                           stream_, config);
        case Kind::scan:
            return qcclScanConfig(send, recv, call.count, call.type, call.op, comm_, stream_,
                                  config);
        case Kind::exscan:
            return qcclExscanConfig(send, recv, call.count, call.type, call.op, comm_, stream_,
                                    config);
        case Kind::messages:
            return qcclSendRecvConfig(send, call.count, (rank_ + 1) % sequence_.ranks, recv,
                                      call.count, (rank_ + sequence_.ranks - 1) % sequence_.ranks,
                                      call.type, comm_, stream_, config);
        case Kind::all_gather:
            return qcclAllGatherConfig(send, recv, call.count, call.type, comm_, stream_, config);
        case Kind::all_to_all:
            return qcclAllToAllConfig(send, recv, call.count, call.type, comm_, stream_, config);
        case Kind::reduce:
            if (rank_ != call.root && draw(2) == 0) recv = nullptr;
            return qcclReduceConfig(send, recv, call.count, call.type, call.op, call.root, comm_,
                                    stream_, config);
        case Kind::gather:
            if (rank_ != call.root && draw(2) == 0) recv = nullptr;
            return qcclGatherConfig(send, recv, call.count, call.type, call.root, comm_, stream_,
                                    config);
        case Kind::scatter:
            if (rank_ != call.root && draw(2) == 0) send = nullptr;
            return qcclScatterConfig(send, recv, call.count, call.type, call.root, comm_, stream_,
                                     config);
        default:
            if (rank_ != call.root && draw(2) == 0) send = nullptr;
            return qcclBroadcastConfig(send, recv, call.count, call.type, call.root, comm_, stream_,
                                       config);
        }
    }

    qcclResult_t split(size_t index) {
        const int colors = sequence_.colors, color = rank_ % colors;
        qcclComm_t made = nullptr;
        const qcclResult_t result = qcclCommSplit(comm_, color, -rank_, &made, nullptr);
        const int members = (sequence_.ranks - color + colors - 1) / colors;
        if (result == qcclSuccess) use_and_destroy(made, members, index);
        return result;
    }
    qcclResult_t shrink(size_t index) {
        qcclComm_t made = nullptr;
        const qcclResult_t result =
            qcclCommShrink(comm_, nullptr, 0, &made, nullptr, QCCL_SHRINK_DEFAULT);
        if (result == qcclSuccess) use_and_destroy(made, sequence_.ranks, index);
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
                (counts[0] != sequence_.ranks || counts[1] != sequence_.ranks);
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
    uint64_t local_;      // random state for choices in which ranks may differ
    const size_t agreed_; // number of this rank's calls before the difference
};

void fail_creation(RankOutcome &outcome, qcclResult_t result) {
    outcome.created = result;
    std::snprintf(outcome.sentence, sizeof outcome.sentence, "%s", qcclGetLastError(nullptr));
}

} // namespace

void prepare(SequenceStage &stage, const Sequence &sequence) {
    std::memset(static_cast<void *>(&stage), 0, sizeof stage);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&stage.barrier, &attributes, static_cast<unsigned>(sequence.ranks));
    pthread_barrierattr_destroy(&attributes);
}

void play_rank(const Sequence &sequence, int rank, SequenceStage &stage) {
    qcclComm_t comm = stage.comms[rank];
    if (sequence.runner != Runner::init_all) {
        const qcclResult_t result = create_by_gather(sequence, rank, stage, &comm);
        if (result != qcclSuccess) return fail_creation(stage.ranks[rank], result);
    }
    Player(sequence, rank, stage, comm).run();
}

void play_threads(const Sequence &sequence, SequenceStage &stage) {
    if (sequence.runner == Runner::init_all) {
        unsetenv("QCCL_HOSTID");
        const qcclResult_t result = qcclCommInitAll(stage.comms, sequence.ranks, nullptr);
        if (result != qcclSuccess) return fail_creation(stage.ranks[0], result);
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < sequence.ranks; rank++)
        threads.emplace_back(play_rank, std::cref(sequence), rank, std::ref(stage));
    for (std::thread &thread : threads) thread.join();
}

} // namespace sequences
