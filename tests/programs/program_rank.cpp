// Makes the calls of random programs and notes what is not as it should be (program_rank.hpp).
#include "program_rank.hpp"

#include "tests/stress/call_maker.hpp"
#include "pending_calls.hpp"
#include "program_comms.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <utility>

namespace stress {

namespace {

constexpr double stray_timeout_s = 0.5;
constexpr int further_count = 8;

class ProgramPlayer {
public:
    ProgramPlayer(int rank, BatchStage &stage, qcclComm_t world)
        : rank_(rank), stage_(stage), report_(stage.ranks[rank]),
          comms_(rank, report_, local_, world), pending_(report_, local_) {}

    // Returns false if a call failed though no rule is broken; the communicators have been aborted
    // then.
    bool play(const Program &program, long place) {
        local_ = Random(program.seed * 31 + static_cast<uint64_t>(rank_));
        program_ = &program;
        pending_.begin_program(stage_.equal[rank_][place]);
        comms_.begin_program(program);
        for (size_t i = 0; i < program.steps.size(); i++) {
            report_.step = static_cast<int>(i);
            report_.beat = report_.beat + 1;
            play_step(i);
            if (program.rule == Rule::none && report_.has_error()) {
                comms_.abort_all();
                return false;
            }
        }
        if (program.rule != Rule::none) look_further();
        if (local_.below(2) == 0) pending_.wait_for_all();
        report_.phase = Phase::destroy;
        for (const int comm : program.left) comms_.destroy(comm);
        pending_.wait_for_all();
        maker_.let_go();
        return !report_.has_error();
    }
    void end() {
        report_.phase = Phase::destroy;
        comms_.destroy(0);
    }

private:
    bool breaks(size_t step) const {
        return program_->rule != Rule::none && step == program_->broken_step;
    }
    bool is_odd() const { return rank_ == program_->odd; }

    void play_step(size_t index) {
        const Step &step = program_->steps[index];
        if (breaks(index)) {
            pending_.wait_for_all();
            report_.phase = Phase::broken;
            // No rank fails while another one is in an earlier step.
            play_calls({}, {{.comm = 0}});
            play_broken(step);
            pending_.wait_for_all();
            return;
        }
        if (step.kind == StepKind::calls)
            play_calls(step, step.calls);
        else if (step.kind == StepKind::destroy && local_.below(2) == 0)
            pending_.wait_for_all();
        if (step.kind != StepKind::calls) comms_.play(step);
        if (local_.below(3) == 0) pending_.wait_for_some();
    }

    // ---- Calls

    // Returns this rank's part in the call; no communicator if it has none.
    CallPlace place_of(const ProgramCall &call) const {
        const ProgramComm &comm = program_->comms[static_cast<size_t>(call.comm)];
        const int rank = comm.rank_of(rank_);
        const bool takes_part = rank >= 0 && (call.call.kind != Kind::message ||
                                              rank == call.call.root || rank == call.call.dest);
        if (!takes_part) return {nullptr, rank, comm.size()};
        return {comms_[call.comm], rank, comm.size()};
    }
    void play_calls(const Step &step, const std::vector<ProgramCall> &calls) {
        std::vector<ProgramCall> own;
        for (const ProgramCall &call : calls)
            if (place_of(call).comm != nullptr) own.push_back(call);
        if (step.grouped)
            play_group(step, own);
        else
            for (const ProgramCall &call : own) play_call(step, call);
    }

    IssuedCall issue(const ProgramCall &call, const CallPlace &place) {
        IssuedCall issued{call.comm, call.call, {}};
        if (call.call.has_data())
            issued.buffers.emplace_back(call.call, place.rank, place.ranks, local_,
                                        wrong_part(call));
        return issued;
    }
    static CallBuffers *buffers_of(IssuedCall &issued) {
        return issued.buffers.empty() ? nullptr : issued.buffers.data();
    }
    WrongPart wrong_part(const ProgramCall &call) const {
        const bool is_wrong = report_.phase == Phase::broken && is_odd() &&
                              program_->rule == Rule::pair_count && call.call.has_pair_counts() &&
                              call.call == program_->odd_call;
        return is_wrong ? WrongPart{program_->odd_peer, program_->odd_receives} : WrongPart{};
    }

    // Makes the call as often as it says. Whether the rank prepares it is the rank's choice.
    void play_call(const Step &step, const ProgramCall &call) {
        CallPlace place = place_of(call);
        const int stream = local_.below(PendingCalls::streams);
        if (step.streamed) place.stream = pending_.stream(stream);
        IssuedCall issued = issue(call, place);
        const bool can_prepare = call.call.is_collective() && !call.call.is_v_form();
        const double began = now_s();
        if (can_prepare && local_.below(4) == 0)
            start_prepared(call, issued, place);
        else
            for (int i = 0; i < call.starts; i++) {
                if (i > 0) repeat(issued, place);
                report_.note(call.comm, maker_.make(call.call, buffers_of(issued), place, local_),
                             now_s() - began);
            }
        maker_.let_go();
        if (!step.streamed) return pending_.check(issued);
        std::vector<IssuedCall> all;
        all.push_back(std::move(issued));
        pending_.add(stream, std::move(all));
    }
    void start_prepared(const ProgramCall &call, IssuedCall &issued, const CallPlace &place) {
        qcclColl_t prepared = nullptr;
        const double began = now_s();
        qcclResult_t result =
            maker_.prepare(&prepared, call.call, buffers_of(issued), place, local_);
        for (int i = 0; i < call.starts && result == qcclSuccess; i++) {
            if (i > 0) repeat(issued, place);
            result = qcclCollStart(prepared);
        }
        report_.note(call.comm, result, now_s() - began);
        if (prepared != nullptr) qcclCollFree(prepared);
    }
    void repeat(IssuedCall &issued, const CallPlace &place) {
        if (place.stream != nullptr)
            report_.note(issued.comm, qcclStreamSynchronize(place.stream), 0);
        pending_.check(issued);
        for (CallBuffers &buffers : issued.buffers) buffers.refill();
    }

    // ---- Groups

    // Collectives of one communicator keep their order, and so do the messages of two ranks in one
    // direction; if some of them go round in a circle, all messages of the communicator do. A
    // stream has its collectives in the same order on all ranks. Everything else comes in any
    // order.
    int lane_of(const ProgramCall &call, const Step &step) const {
        constexpr int lanes = 100, messages_lane = 1, streams_lane = -1;
        const bool has_circle =
            std::any_of(step.calls.begin(), step.calls.end(), [&](const auto &other) {
                return other.comm == call.comm && other.call.kind == Kind::messages;
            });
        const bool is_message = call.call.kind == Kind::message;
        if (!is_message && call.call.kind != Kind::messages)
            return step.streamed ? streams_lane : call.comm * lanes;
        if (has_circle) return call.comm * lanes + messages_lane;
        const bool sends = place_of(call).rank == call.call.root;
        const int peer = sends ? call.call.dest : call.call.root;
        return call.comm * lanes + 2 * (1 + peer) + (sends ? 1 : 0);
    }
    std::vector<ProgramCall> posting_order(const Step &step,
                                           const std::vector<ProgramCall> &calls) {
        std::map<int, std::vector<ProgramCall>> lanes;
        std::vector<int> turns;
        for (const ProgramCall &call : calls) {
            const int lane = lane_of(call, step);
            lanes[lane].push_back(call);
            turns.push_back(lane);
        }
        local_.shuffle(turns);
        std::map<int, size_t> next;
        std::vector<ProgramCall> ordered;
        for (const int lane : turns) ordered.push_back(lanes[lane][next[lane]++]);
        return ordered;
    }

    void play_group(const Step &step, const std::vector<ProgramCall> &calls) {
        const std::vector<ProgramCall> ordered = posting_order(step, calls);
        std::vector<std::vector<IssuedCall>> issued(PendingCalls::streams + 1);
        for (auto &of_stream : issued) of_stream.reserve(ordered.size());
        const double began = now_s();
        qcclGroupStart();
        const bool is_nested = local_.below(4) == 0;
        if (is_nested) qcclGroupStart();
        for (const ProgramCall &call : ordered) {
            CallPlace place = place_of(call);
            if (call.stream > 0) place.stream = pending_.stream(call.stream - 1);
            auto &of_stream = issued[static_cast<size_t>(call.stream)];
            of_stream.push_back(issue(call, place));
            (void)maker_.make(call.call, buffers_of(of_stream.back()), place, local_);
        }
        if (is_nested) qcclGroupEnd();
        const qcclResult_t result = qcclGroupEnd();
        maker_.let_go();
        for (const auto &of_stream : issued)
            for (const IssuedCall &each : of_stream)
                report_.note(each.comm, result, now_s() - began);
        for (const IssuedCall &each : issued[0]) pending_.check(each);
        if (!step.streamed) return;
        for (int stream = 0; stream < PendingCalls::streams; stream++)
            pending_.add(stream, std::move(issued[static_cast<size_t>(stream) + 1]));
    }

    // ---- Broken rules

    void play_broken(const Step &step) {
        if (program_->rule == Rule::maker) return comms_.make_otherwise(step, is_odd());
        if (program_->rule == Rule::stray_send || program_->rule == Rule::stray_recv)
            maker_.timeout_s = stray_timeout_s;
        maker_.op_fails = program_->rule == Rule::failing_op;
        if (is_odd()) prepare_oddity(step);
        const std::vector<ProgramCall> calls = own_calls(step);
        if (is_odd() && program_->rule == Rule::missing_end)
            leave_group_open(calls);
        else if (is_odd() && program_->rule == Rule::ungrouped)
            play_calls({}, calls);
        else
            play_calls(step, calls);
        maker_.timeout_s = 0;
        maker_.op_fails = false;
    }
    // Returns the calls as this rank makes them.
    std::vector<ProgramCall> own_calls(const Step &step) const {
        std::vector<ProgramCall> calls = step.calls;
        const auto broken = calls.begin() + static_cast<ptrdiff_t>(program_->broken_call);
        const Rule rule = program_->rule;
        const bool is_stray = rule == Rule::stray_send || rule == Rule::stray_recv;
        if (is_odd() && (rule <= Rule::v_counts || rule == Rule::message))
            broken->call = program_->odd_call;
        if (is_odd() && rule == Rule::order) std::swap(broken[0], broken[1]);
        if ((is_odd() && rule == Rule::left_out) || (!is_odd() && is_stray)) calls.erase(broken);
        return calls;
    }
    void prepare_oddity(const Step &step) {
        if (program_->rule == Rule::extra_end) report_.refusal = qcclGroupEnd();
        if (program_->rule != Rule::refusal && program_->rule != Rule::group_refusal) return;
        ProgramCall wrong = step.calls[program_->broken_call];
        wrong.call.algorithm = "nonesuch";
        const CallPlace place = place_of(wrong);
        IssuedCall issued = issue(wrong, place);
        const bool has_stride = local_.below(2) == 0 && !wrong.call.has_stride();
        if (has_stride) {
            maker_.extra_stride = 1;
            wrong.call.algorithm = nullptr;
        }
        if (step.grouped) qcclGroupStart();
        report_.refusal = maker_.make(wrong.call, buffers_of(issued), place, local_);
        if (step.grouped && qcclGroupEnd() != report_.refusal)
            report_.note_wrong("the end of the group does not return the refusal");
        maker_.extra_stride = 0;
        maker_.let_go();
    }
    void leave_group_open(const std::vector<ProgramCall> &calls) {
        qcclGroupStart();
        for (const ProgramCall &call : calls) {
            const CallPlace place = place_of(call);
            open_.push_back(std::make_unique<IssuedCall>(issue(call, place)));
            (void)maker_.make(call.call, buffers_of(*open_.back()), place, local_);
        }
    }
    // On each communicator that is left, the broken one first.
    void look_further() {
        std::vector<int> left = program_->left;
        left.push_back(0);
        std::stable_partition(left.begin(), left.end(),
                              [&](int comm) { return comm == program_->broken_comm; });
        for (const int comm : left) {
            if (comms_[comm] == nullptr) continue;
            const bool is_open = !open_.empty();
            report_.phase = Phase::further;
            ProgramCall call{.comm = comm};
            call.call = {.kind = Kind::all_reduce, .count = further_count, .type = float32};
            if (!is_open) play_calls({}, {call});
            report_.phase = Phase::finalize;
            comms_.finalize(comm);
            if (!is_open) continue;
            comms_.destroy(comm);
            report_.refusal = qcclGroupEnd();
            open_.clear();
        }
    }

    const int rank_;
    BatchStage &stage_;
    RankReport &report_;
    const Program *program_ = nullptr;
    Random local_{0}; // choices in which ranks may differ
    ProgramComms comms_;
    CallMaker maker_;
    PendingCalls pending_;
    std::vector<std::unique_ptr<IssuedCall>> open_; // calls of a group that the rank does not end
};

} // namespace

void prepare(BatchStage &stage, const Batch &batch) {
    std::memset(static_cast<void *>(&stage), 0, sizeof stage);
    prepare(stage.world, batch.setting.ranks);
}

void play_rank(const Batch &batch, int rank, BatchStage &stage) {
    RankReport &report = stage.ranks[rank];
    report.begin_program(batch.first);
    qcclComm_t world = nullptr;
    const qcclResult_t result = create_rank(batch.setting, rank, stage.world, &world);
    report.note(0, result, 0);
    if (result == qcclSuccess) {
        ProgramPlayer player(rank, stage, world);
        bool goes_on = true;
        for (long i = 0; goes_on && i < batch.size; i++) {
            if (!report.is_wrong) report.begin_program(batch.first + i);
            goes_on = player.play(batch.program(batch.first + i), i);
        }
        if (goes_on || batch.rule != Rule::none) player.end();
    }
    report.has_left = true;
}

void play_threads(const Batch &batch, BatchStage &stage) {
    const qcclResult_t result = create_all(batch.setting, stage.world);
    if (result != qcclSuccess) return stage.ranks[0].note(0, result, 0);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < batch.setting.ranks; rank++)
        threads.emplace_back(play_rank, std::cref(batch), rank, std::ref(stage));
    for (std::thread &thread : threads) thread.join();
}

} // namespace stress
