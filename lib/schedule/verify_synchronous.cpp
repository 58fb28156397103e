// Runs all ranks' tasks with sends that wait for their receives, and lets ranks look further ahead
// only when no rank can move.
#include "schedule/verify.hpp"

#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <unordered_map>

namespace qccl {

namespace {

// A send or a receive whose other side has not been posted yet.
struct Posted {
    uint32_t task = no_index;
    // Of a send: the wire slot, numbered over all ranks, that holds the bytes.
    uint32_t origin = no_index;
};

struct MessageKey {
    uint32_t from = 0, to = 0, ordinal = 0;
    bool operator==(const MessageKey &) const = default;
};

struct MessageHash {
    size_t operator()(const MessageKey &key) const {
        constexpr uint64_t odd = 0x9E3779B97F4A7C15;
        return ((uint64_t{key.from} << 32 | key.to) * odd + key.ordinal) * odd >> 7;
    }
};

struct RankRun {
    using Ready = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

    Schedule schedule;
    TaskGraph graph;
    std::vector<uint32_t> waits;
    std::vector<bool> is_done;
    Ready ready;                   // tasks whose dependencies are done
    std::vector<uint32_t> parked;  // tasks that encode into slots that are still read
    std::vector<uint32_t> origins; // by wire slot: the origin of its content
    uint32_t oldest = 0;           // the oldest unfinished task

    const Step &head(uint32_t task) const { return schedule.steps[graph.tasks[task].first]; }
    bool is_finished() const { return oldest == graph.tasks.size(); }
};

class SynchronousRun {
public:
    explicit SynchronousRun(uint32_t ranks) : runs_(ranks) {}

    Result<SynchronousProof> run(const ScheduleOf &schedule_of) {
        for (uint32_t rank = 0; rank < runs_.size(); rank++) {
            QCCL_TRY(auto schedule, schedule_of(rank));
            load(rank, std::move(schedule));
        }
        holds_.assign(runs_.size() * outbox(), 0);
        do {
            while (!moving_.empty()) {
                const uint32_t rank = moving_.front();
                moving_.pop_front();
                while (issue_next(rank)) {}
            }
        } while (look_further_ahead());
        for (uint32_t rank = 0; rank < runs_.size(); rank++)
            if (!runs_[rank].is_finished()) return describe(rank);
        return proof_;
    }

private:
    uint32_t outbox() const { return runs_[0].schedule.outbox; }

    void load(uint32_t rank, Schedule schedule) {
        RankRun &run = runs_[rank];
        run.schedule = std::move(schedule);
        run.graph = make_tasks(run.schedule, lower(run.schedule));
        run.waits = run.graph.waits;
        run.is_done.assign(run.graph.tasks.size(), false);
        run.origins.assign(run.schedule.wires, no_index);
        for (uint32_t task = 0; task < run.waits.size(); task++)
            if (run.waits[task] == 0) run.ready.push(task);
        moving_.push_back(rank);
    }

    bool issue_next(uint32_t rank) {
        RankRun &run = runs_[rank];
        if (run.ready.empty() || run.ready.top() - run.oldest >= proof_.in_flight) return false;
        const uint32_t task = run.ready.top();
        run.ready.pop();
        if (!computes(run.head(task).verb))
            post(rank, task);
        else if (has_room(rank, task))
            compute(rank, task);
        else
            run.parked.push_back(task);
        return true;
    }

    // A joined run is issued at once, so it waits for all of its slots.
    bool has_room(uint32_t rank, uint32_t task) const {
        const RankRun &run = runs_[rank];
        for (uint32_t i = run.graph.tasks[task].first; i < run.graph.tasks[task].last; i++) {
            const Step &step = run.schedule.steps[i];
            if (step.verb == Verb::encode && holds_[own_slot(rank, step.dst)] != 0) return false;
        }
        return true;
    }

    uint32_t own_slot(uint32_t rank, Slot slot) const { return rank * outbox() + slot.index; }

    void compute(uint32_t rank, uint32_t task) {
        RankRun &run = runs_[rank];
        for (uint32_t i = run.graph.tasks[task].first; i < run.graph.tasks[task].last; i++) {
            const Step &step = run.schedule.steps[i];
            if (step.verb == Verb::encode) {
                run.origins[step.dst.index] = own_slot(rank, step.dst);
                holds_[own_slot(rank, step.dst)] = 1;
            }
            if (step.has(Step::releases)) release(run.origins[step.src.index]);
        }
        finish(rank, task);
    }

    void post(uint32_t rank, uint32_t task) {
        RankRun &run = runs_[rank];
        const Step &step = run.head(task);
        const bool sends = step.verb == Verb::send;
        Posted own{.task = task};
        if (sends && run.schedule.is_placed) {
            own.origin = run.origins[step.src.index];
            if (own.origin != no_index) holds_[own.origin]++;
        }
        const MessageKey key = sends ? MessageKey{rank, step.peer, step.ordinal}
                                     : MessageKey{step.peer, rank, step.ordinal};
        const auto [other, is_first] = posted_.try_emplace(key, own);
        if (is_first) return;
        const Posted met = other->second;
        posted_.erase(other);
        proof_.messages++;
        if (sends)
            exchange(rank, own, step.peer, met.task);
        else
            exchange(step.peer, met, rank, task);
    }

    void exchange(uint32_t from, const Posted &send, uint32_t to, uint32_t recv) {
        const Step &sent = runs_[from].head(send.task), &received = runs_[to].head(recv);
        if (received.dst.is(SlotKind::wire)) runs_[to].origins[received.dst.index] = send.origin;
        if (sent.has(Step::releases)) release(runs_[from].origins[sent.src.index]);
        finish(from, send.task);
        finish(to, recv);
    }

    void release(uint32_t origin) {
        if (origin == no_index || --holds_[origin] != 0) return;
        RankRun &run = runs_[origin / outbox()];
        for (const uint32_t task : run.parked) run.ready.push(task);
        run.parked.clear();
        moving_.push_back(origin / outbox());
    }

    void finish(uint32_t rank, uint32_t task) {
        RankRun &run = runs_[rank];
        run.is_done[task] = true;
        while (!run.is_finished() && run.is_done[run.oldest]) run.oldest++;
        for (const uint32_t next : run.graph.after(task))
            if (--run.waits[next] == 0) run.ready.push(next);
        moving_.push_back(rank);
    }

    // No rank can move. Ranks now do what they could do if they looked further ahead, by the
    // smallest step that lets one rank move. The course of the run depends only on how far ranks
    // look ahead, so a shorter look would not do. Returns false if no task is ready.
    bool look_further_ahead() {
        uint32_t least = no_index;
        for (const RankRun &run : runs_)
            if (!run.ready.empty()) least = std::min(least, run.ready.top() - run.oldest);
        if (least == no_index) return false;
        proof_.in_flight = least + 1;
        for (uint32_t rank = 0; rank < runs_.size(); rank++) moving_.push_back(rank);
        return true;
    }

    // ---- Ranks that wait for ever

    const char *what_waits(uint32_t rank, uint32_t task) const {
        switch (runs_[rank].head(task).verb) {
        case Verb::send: return "for its receive";
        case Verb::recv: return "for its send";
        default: return "for a wire slot that is still read";
        }
    }

    // Returns the task of `rank` that is the other side of the message, posted or not.
    uint32_t find_other_side(uint32_t rank, const Step &step, uint32_t peer) const {
        const Verb other = step.verb == Verb::send ? Verb::recv : Verb::send;
        const RankRun &run = runs_[rank];
        for (uint32_t task = run.oldest; task < run.graph.tasks.size(); task++) {
            const Step &head = run.head(task);
            if (head.verb == other && head.peer == peer && head.ordinal == step.ordinal)
                return task;
        }
        return no_index;
    }

    // The oldest unfinished task of a rank depends on no unfinished task of that rank, so it waits
    // for another rank.
    Error describe(uint32_t rank) const {
        const uint32_t task = runs_[rank].oldest;
        const Step &step = runs_[rank].head(task);
        const uint32_t first = runs_[rank].graph.tasks[task].first;
        if (computes(step.verb))
            return wrong_step(rank, first, step,
                              "waits for ever for a wire slot where sends are synchronous");
        const RankRun &peer = runs_[step.peer];
        const uint32_t other = find_other_side(step.peer, step, rank);
        if (other == no_index || peer.is_finished())
            return wrong_step(rank, first, step, "has no other side");
        const uint32_t blocking = peer.oldest;
        char reason[256];
        std::snprintf(reason, sizeof reason,
                      "waits for ever where sends are synchronous: rank %u comes to its step %u "
                      "(%s) only after its step %u (%s), which waits %s",
                      step.peer, peer.graph.tasks[other].first, print(peer.head(other)).c_str(),
                      peer.graph.tasks[blocking].first, print(peer.head(blocking)).c_str(),
                      what_waits(step.peer, blocking));
        return wrong_step(rank, first, step, reason);
    }

    std::vector<RankRun> runs_;
    std::vector<uint32_t> holds_; // by own slot of each rank: number of users that still need it
    std::unordered_map<MessageKey, Posted, MessageHash> posted_;
    std::deque<uint32_t> moving_;
    SynchronousProof proof_;
};

} // namespace

Result<SynchronousProof> verify_synchronous(uint32_t ranks, const ScheduleOf &schedule_of) {
    if (ranks == 0) return invalid_argument("there is no rank");
    return SynchronousRun(ranks).run(schedule_of);
}

} // namespace qccl
