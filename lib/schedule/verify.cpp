// Runs the schedules of all ranks symbolically, each rank until it has to wait, and checks every
// step.
#include "schedule/verify.hpp"

#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace qccl {

namespace {

constexpr uint32_t none = Expressions::none;
// How the encodes of a chunk are numbered. Common encodes are numbered by their ordinals, which
// mean the same on all ranks; a rank's other encodes are numbered as they come.
constexpr uint32_t common_numbers = 128, most_encodes_of_chunk = common_numbers - 1;
static_assert(Step::common_ordinals <= common_numbers);

// One rank, and its progress in its schedule.
struct RankProgress {
    enum class Wait : uint8_t { no, message, slot };

    Team team;
    Schedule schedule;
    size_t next = 0;
    uint32_t rounds = 0;
    Wait wait = Wait::no;
    uint32_t wait_for = 0; // peer or own slot
    std::vector<Expression> outputs, sums;
    std::vector<Expression> given; // by chunk: what the accumulator held when it was encoded last
    std::vector<Parcel> wires;
    std::vector<uint8_t> encodes; // by chunk: encodes so far

    bool is_done() const { return next == schedule.steps.size(); }
};

// A reason is a literal or text in a buffer; nullptr means that nothing is wrong. A Result per step
// would take longer than the step itself.
using Fault = const char *;

class Prover {
public:
    explicit Prover(const Theorem &theorem)
        : theorem_(theorem),
          is_sum_(reduces(theorem.collective) || theorem.collective == Collective::barrier),
          exchanges_(row_of(theorem.collective).exchanges),
          is_prefix_(is_prefix(theorem.collective)), expressions_(is_sum_ ? theorem.ranks : 1),
          queues_(theorem.ranks) {}

    Result<Verified> run(const ScheduleOf &schedule_of) {
        runs_.resize(theorem_.ranks);
        for (uint32_t rank = 0; rank < theorem_.ranks; rank++) {
            QCCL_TRY(auto schedule, schedule_of(rank));
            QCCL_TRY(load(rank, std::move(schedule)));
        }
        finals_.assign(runs_[0].schedule.chunks, {});
        for (uint32_t c = 0; c < finals_.size(); c++) orders_.push_back(order_of(c));
        holds_.assign(size_t{theorem_.ranks} * runs_[0].schedule.outbox, 0);
        for (uint32_t rank = 0; rank < theorem_.ranks; rank++) ready_.push_back(rank);
        while (!ready_.empty()) {
            RankProgress &run = runs_[ready_.front()];
            ready_.pop_front();
            QCCL_TRY(advance(run));
        }
        for (const RankProgress &run : runs_) QCCL_TRY(check_end(run));
        QCCL_TRY(check_commons());
        return sum_up();
    }

private:
    // ---- One rank by itself

    Done load(uint32_t rank, Schedule schedule) {
        RankProgress &run = runs_[rank];
        run.team = {.size = theorem_.ranks, .rank = rank, .root = theorem_.root};
        const Schedule &first = rank == 0 ? schedule : runs_[0].schedule;
        QCCL_TRY(check_frame(schedule, first, run.team, has_part_per_rank(theorem_.collective)));
        QCCL_TRY(check_structure(schedule, theorem_.collective, run.team));
        // Thousands of schedules are held at once, so no spare capacity is kept.
        schedule.steps.shrink_to_fit();
        const Dependencies dependencies = lower(schedule);
        QCCL_TRY(check_races(schedule, dependencies, rank));
        run.outputs.assign(schedule.chunks, none);
        run.sums.assign(schedule.chunks, none);
        run.given.assign(schedule.chunks, none);
        run.wires.resize(schedule.wires);
        run.encodes.assign(schedule.chunks, 0);
        run.schedule = std::move(schedule);
        return {};
    }

    // ---- Running

    Done advance(RankProgress &run) {
        for (; !run.is_done(); run.next++) {
            const Step &step = run.schedule.steps[run.next];
            if (has_to_wait(run, step)) return {};
            if (Fault fault = execute(run, step))
                return wrong_step(run.team.rank, run.next, step, fault);
        }
        return {};
    }

    bool has_to_wait(RankProgress &run, const Step &step) {
        run.wait = RankProgress::Wait::no;
        if (step.verb == Verb::recv && queues_.is_empty(step.peer, run.team.rank)) {
            run.wait = RankProgress::Wait::message;
            run.wait_for = step.peer;
        }
        // All of a joined run is issued at once, so it waits for all of its slots.
        const bool is_inside =
            run.next > 0 && run.schedule.steps[run.next - 1].has(Step::joins_next);
        for (size_t i = run.next; computes(step.verb) && !is_inside; i++) {
            const Step &member = run.schedule.steps[i];
            if (member.verb == Verb::encode && holds_[own_slot(run, member.dst)] != 0) {
                run.wait = RankProgress::Wait::slot;
                run.wait_for = member.dst.index;
                break;
            }
            if (!member.has(Step::joins_next)) break;
        }
        return run.wait != RankProgress::Wait::no;
    }

    uint32_t own_slot(const RankProgress &run, Slot slot) const {
        return run.team.rank * run.schedule.outbox + slot.index;
    }

    void wake(RankProgress &run, RankProgress::Wait wait, uint32_t wait_for) {
        if (run.wait != wait || run.wait_for != wait_for) return;
        run.wait = RankProgress::Wait::no;
        ready_.push_back(run.team.rank);
    }

    Fault execute(RankProgress &run, const Step &step) {
        verified_.steps++;
        Fault fault = nullptr;
        switch (step.verb) {
        case Verb::send: fault = send(run, step); break;
        case Verb::recv: fault = recv(run, step); break;
        case Verb::reduce:
        case Verb::decode_add: fault = add(run, step); break;
        case Verb::copy:
        case Verb::decode: fault = store(run, step); break;
        case Verb::encode: fault = encode(run, step); break;
        }
        if (!fault && step.has(Step::releases)) release(run.wires[step.src.index]);
        return fault;
    }

    Fault send(RankProgress &run, const Step &step) {
        Envelope message{.rounds = run.rounds,
                         .step = static_cast<uint32_t>(run.next),
                         .chunk = step.chunk,
                         .is_inner = step.has(Step::inner)};
        if (Fault fault = read(run, step, step.src, message.value)) return fault;
        if (Fault fault = finish(step, message.value)) return fault;
        if (run.schedule.is_placed) {
            if (run.wires[step.src.index].stays) return "sends what was encoded to stay";
            message.origin = run.wires[step.src.index].origin;
            holds_[message.origin]++;
        }
        queues_.put(run.team.rank, step.peer, message);
        verified_.messages++;
        wake(runs_[step.peer], RankProgress::Wait::message, run.team.rank);
        return nullptr;
    }

    Fault recv(RankProgress &run, const Step &step) {
        const Envelope message = queues_.take(step.peer, run.team.rank);
        run.rounds = std::max(run.rounds, message.rounds + 1);
        if (message.chunk != step.chunk)
            return complain("step %u of rank %u sends chunk %u here", message.step, step.peer,
                            message.chunk);
        if (message.is_inner != step.has(Step::inner))
            return complain("step %u of rank %u sends in another tier", message.step, step.peer);
        if (!step.dst.is(SlotKind::wire)) return write(run, step, message.value);
        Parcel &parcel = run.wires[step.dst.index];
        if (parcel.value != none) return "overwrites what is still needed, or was never read";
        parcel = {.value = message.value,
                  .chunk = step.chunk,
                  .origin = message.origin,
                  .is_inner = message.is_inner};
        return nullptr;
    }

    // Where results differ, nothing else shows that a rank has sent other bytes than it goes on
    // with.
    Fault check_given(const RankProgress &run, Slot slot) const {
        const bool is_sum = slot.is(SlotKind::accumulator) && run.sums[slot.index] != none;
        return is_prefix_ && is_sum && run.sums[slot.index] == run.given[slot.index]
                   ? "goes on with other bytes than it has sent"
                   : nullptr;
    }

    Fault add(RankProgress &run, const Step &step) {
        Expression &sum = run.sums[step.dst.index];
        if (Fault fault = check_given(run, step.dst)) return fault;
        for (uint32_t i = 0; i < step.sources; i++) {
            Expression term = none;
            if (Fault fault = read(run, step, step.src.after(i), term)) return fault;
            if (Fault fault = check_own(run, step, term)) return fault;
            if (sum == none && run.schedule.is_placed)
                return "adds to an accumulator that holds nothing";
            const Expression before = sum;
            sum = before == none ? term : added(before, term, step.chunk);
            if (sum == none)
                return complain("adds %s to %s: not the contract's order",
                                expressions_.describe(term).c_str(),
                                expressions_.describe(before).c_str());
        }
        return nullptr;
    }

    // Partial sums of a prefix are different for each rank, so that only their ranks' order counts.
    Expression added(Expression sum, Expression term, uint32_t chunk) {
        return is_prefix_ ? expressions_.add_next(sum, term)
                          : expressions_.add(sum, term, orders_[chunk]);
    }

    Fault store(RankProgress &run, const Step &step) {
        Expression value = none;
        if (Fault fault = read(run, step, step.src, value)) return fault;
        if (Fault fault = check_given(run, step.src)) return fault;
        if (step.dst.is(SlotKind::accumulator))
            if (Fault fault = check_own(run, step, value)) return fault;
        if (Fault fault = finish(step, value)) return fault;
        return write(run, step, value);
    }

    // Checks an operand of a sum that is the adding rank's own contribution: exact or as encoded,
    // as the theorem says.
    Fault check_own(const RankProgress &run, const Step &step, Expression term) const {
        const Expressions::Node &node = expressions_[term];
        const uint32_t own = place(run, step.chunk);
        if (!is_sum_ || theorem_.ranks == 1 || node.begin != own || node.end != own + 1)
            return nullptr;
        const bool is_encoded = run.schedule.is_placed
                                    ? node.kind == Expressions::Node::Kind::encode
                                    : step.has(Step::as_encoded);
        if (is_encoded == (theorem_.own == OwnInput::as_encoded)) return nullptr;
        return is_encoded ? "adds this rank's own input as encoded, where it has to be exact"
                          : "adds this rank's own input exactly, where it has to be as encoded";
    }

    Fault encode(RankProgress &run, const Step &step) {
        Expression value = none;
        if (Fault fault = read(run, step, step.src, value)) return fault;
        if (Fault fault = finish(step, value)) return fault;
        if (step.has(Step::inner) && (!is_sum_ || expressions_[value].is_finished))
            return "encodes a result for an inner tier";
        if (is_sum_ && expressions_.is_complete(value) && !expressions_[value].is_finished)
            return "encodes a complete sum that avg has not divided";
        if (expressions_[value].has_final) return "encodes a result a second time";
        if (run.encodes[step.chunk] == most_encodes_of_chunk) return "encodes a chunk too often";
        const uint32_t origin = own_slot(run, step.dst);
        if (holds_[origin] != 0) return "encodes into a slot that is still in use";
        holds_[origin] = 1;
        if (step.src.is(SlotKind::accumulator)) run.given[step.src.index] = value;
        run.wires[step.dst.index] = {.value = encoded(run, step, value),
                                     .chunk = step.chunk,
                                     .origin = origin,
                                     .stays = step.has(Step::stays),
                                     .is_inner = step.has(Step::inner)};
        return nullptr;
    }

    // Returns the expression of an encode. Common encodes of all ranks give the expression of the
    // rank whose noise they use.
    Expression encoded(RankProgress &run, const Step &step, Expression value) {
        const uint32_t number = run.encodes[step.chunk]++;
        const bool is_inner = step.has(Step::inner);
        if (!step.has(Step::common))
            return expressions_.encode(value, place(run, step.chunk), number, is_inner);
        const Expression made = expressions_.encode(value, orders_[step.chunk].place(step.peer),
                                                    common_numbers + step.ordinal, is_inner);
        Common &common = commons_[made];
        if (common.makers++ == 0) common.first = {run.team.rank, run.next};
        common.is_owned |= step.peer == run.team.rank;
        return made;
    }

    // Checks that the message in the wire slot belongs to the tier of the step that reads it.
    Fault check_tier(const RankProgress &run, const Step &step) const {
        const bool is_inner = run.wires[step.src.index].is_inner;
        return is_inner == step.has(Step::inner) ? nullptr : "takes bytes for another tier's";
    }

    Fault finish(const Step &step, Expression &value) {
        if (!step.has(Step::finishes)) return nullptr;
        const Expression before = value;
        value = expressions_.finish(before);
        if (value != none) return nullptr;
        return complain("finishes %s: not complete, or finished before",
                        expressions_.describe(before).c_str());
    }

    void release(Parcel &parcel) {
        holds_[parcel.origin]--;
        if (holds_[parcel.origin] == 0) {
            const uint32_t outbox = runs_[0].schedule.outbox;
            wake(runs_[parcel.origin / outbox], RankProgress::Wait::slot, parcel.origin % outbox);
        }
        parcel.value = none;
    }

    // ---- What slots hold

    // If nothing is summed, the source's contribution is the first and only one.
    SumOrder order_of(uint32_t chunk) const {
        if (is_sum_) return theorem_.order(theorem_.collective, theorem_.ranks, chunk);
        const bool gathers = row_of(theorem_.collective).gathers;
        return SumOrder::in_turn(theorem_.ranks, gathers ? chunk : theorem_.root);
    }

    // Returns the place of this rank's contribution to the chunk in the contract's order.
    uint32_t place(const RankProgress &run, uint32_t chunk) const {
        return orders_[chunk].place(run.team.rank);
    }

    Fault read(const RankProgress &run, const Step &step, Slot slot, Expression &value) {
        switch (slot.what()) {
        case SlotKind::input:
            if (run.outputs[slot.index] != none)
                return "reads an input after the output that takes its place in place";
            value = exchanges_ ? expressions_.leaf(0, run.team.rank)
                               : expressions_.leaf(place(run, slot.index));
            break;
        case SlotKind::output:
            if (run.schedule.is_placed)
                return "reads an output, which is rounded, not the wire slot";
            value = run.outputs[slot.index];
            break;
        case SlotKind::accumulator: value = run.sums[slot.index]; break;
        case SlotKind::wire:
            value = run.wires[slot.index].value;
            if (value != none && run.wires[slot.index].chunk != step.chunk)
                return complain("finds chunk %u there", run.wires[slot.index].chunk);
            if (run.schedule.is_placed)
                if (Fault fault = check_tier(run, step)) return fault;
            break;
        case SlotKind::none: break;
        }
        return value == none ? "reads what nobody wrote" : nullptr;
    }

    Fault write(RankProgress &run, const Step &step, Expression value) {
        const uint32_t chunk = step.dst.index;
        if (step.dst.is(SlotKind::accumulator)) {
            if (run.sums[chunk] != none && !expressions_.is_encode(value, run.sums[chunk]))
                return "overwrites an accumulator";
            run.sums[chunk] = value;
            return nullptr;
        }
        if (run.outputs[chunk] != none) return "writes an output a second time";
        run.outputs[chunk] = value;
        if (is_prefix_) return write_prefix(run, value);
        if (!expressions_.is_complete(value))
            return complain("stores %s as a result", expressions_.describe(value).c_str());
        if (is_sum_ && !expressions_[value].is_finished)
            return "stores a sum that avg has not divided";
        if (exchanges_) return write_part(run, chunk, value);
        if (keeps_exact(run.team, chunk))
            return expressions_[value].kind == Expressions::Node::Kind::leaf
                       ? nullptr
                       : "keeps its own values as encoded, where they have to be exact";
        Final &final = finals_[chunk];
        if (final.value == none) final = {value, run.team.rank};
        if (final.value == value) return nullptr;
        return complain("stores other bytes than rank %u did", final.rank);
    }

    // Whether the rank owns the chunk, and the theorem says that it keeps the values as they are.
    bool keeps_exact(const Team &team, uint32_t chunk) const {
        if (theorem_.owner == OwnerKeeps::decoded || !has_owners(theorem_.collective)) return false;
        return team.rank == (row_of(theorem_.collective).gathers ? chunk : team.root);
    }

    Fault write_prefix(const RankProgress &run, Expression value) {
        const Expressions::Node &node = expressions_[value];
        const uint32_t wanted = covered_ranks(theorem_.collective, run.team.rank, theorem_.ranks);
        if (node.begin != 0 || node.end != wanted)
            return complain("stores %s as the result of rank %u",
                            expressions_.describe(value).c_str(), run.team.rank);
        prefixes_.noise += node.noise.shares_of(node.end) * node.end;
        prefixes_.inner_noise += node.inner_noise.shares_of(node.end) * node.end;
        prefixes_.contributions += node.end;
        return nullptr;
    }

    // All ranks' results are alike, so the noise is counted on one.
    Fault write_part(const RankProgress &run, uint32_t chunk, Expression value) {
        const uint32_t giver = expressions_.giver_of(value), wanted = run.team.partner_in(chunk);
        if (giver != wanted)
            return complain("stores a part of rank %u for rank %u's", giver, wanted);
        if (run.team.rank == 0) finals_[chunk] = {value, 0};
        return nullptr;
    }

    // ---- The end

    Done check_end(const RankProgress &run) const {
        const uint32_t rank = run.team.rank;
        const auto wrong = [&](size_t number, Fault fault) {
            return wrong_step(rank, number, run.schedule.steps[number], fault);
        };
        if (run.wait == RankProgress::Wait::message)
            return wrong(run.next, "waits for ever for a message");
        if (run.wait == RankProgress::Wait::slot)
            return wrong(run.next, "waits for ever for a wire slot");
        if (const Envelope *left = queues_.first_from(rank))
            return wrong(left->step, "sends what nobody receives");
        for (uint32_t c = 0; c < run.schedule.chunks; c++)
            if (run.outputs[c] == none && has_slot(theorem_.collective, run.team, output(c)))
                return invalid_argument("rank %u: output(%u) is never written", rank, c)
                    .at_rank(rank);
        for (uint32_t w = 0; run.schedule.is_placed && w < run.schedule.wires; w++)
            if (run.wires[w].value != none)
                return invalid_argument("rank %u: wire(%u) is filled and never read", rank, w)
                    .at_rank(rank);
        return {};
    }

    // A rank may use another rank's noise only if that rank encodes the same sum with the same
    // noise.
    Done check_commons() const {
        for (const auto &[made, common] : commons_) {
            if (common.is_owned && common.makers > 1) continue;
            const auto &[rank, number] = common.first;
            return wrong_step(rank, number, runs_[rank].schedule.steps[number],
                              "takes noise for common that is not");
        }
        return {};
    }

    Verified sum_up() {
        for (const RankProgress &run : runs_)
            verified_.rounds = std::max(verified_.rounds, run.rounds);
        if (prefixes_.contributions > 0) {
            verified_.noise = prefixes_.noise * (1 / prefixes_.contributions);
            verified_.inner_noise = prefixes_.inner_noise * (1 / prefixes_.contributions);
            return verified_;
        }
        // Of the results that it gathers, a rank may have one without noise.
        const bool has_exact_part =
            theorem_.owner == OwnerKeeps::exact && row_of(theorem_.collective).gathers;
        const double part = (has_exact_part ? (theorem_.ranks - 1.0) / theorem_.ranks : 1) /
                            static_cast<double>(finals_.size());
        const double contributions = is_sum_ ? theorem_.ranks : 1;
        for (const Final &final : finals_) {
            if (final.value == none) continue;
            const Expressions::Node &node = expressions_[final.value];
            verified_.noise += node.noise.shares_of(contributions) * part;
            verified_.inner_noise += node.inner_noise.shares_of(contributions) * part;
        }
        return verified_;
    }

    template <class... Arguments> Fault complain(const char *format, Arguments... arguments) {
        std::snprintf(reason_, sizeof reason_, format, arguments...);
        return reason_;
    }

    // An encode that several ranks make with the same result.
    struct Common {
        std::pair<uint32_t, size_t> first; // rank and step that made it first
        uint32_t makers = 0;
        bool is_owned = false; // the rank whose noise it uses has made it
    };
    // Sums over all results, which have different numbers of contributions.
    struct PrefixTotals {
        NoiseMoments noise, inner_noise;
        double contributions = 0;
    };
    struct Final {
        Expression value = none;
        uint32_t rank = 0; // the rank that stored it first
    };

    const Theorem theorem_;
    const bool is_sum_, exchanges_, is_prefix_;
    Expressions expressions_;
    MessageQueues queues_;
    std::vector<RankProgress> runs_;
    std::vector<Final> finals_; // by chunk
    PrefixTotals prefixes_;
    std::vector<SumOrder> orders_; // by chunk
    std::vector<uint32_t> holds_;  // by own slot of each rank: number of users that still need it
    std::map<Expression, Common> commons_;
    std::deque<uint32_t> ready_;
    Verified verified_;
    char reason_[160] = {};
};

} // namespace

Result<Verified> verify(const Theorem &theorem, const ScheduleOf &schedule_of) {
    if (theorem.ranks == 0 || theorem.root >= theorem.ranks)
        return invalid_argument("root %u is not one of %u ranks", theorem.root, theorem.ranks);
    return Prover(theorem).run(schedule_of);
}

} // namespace qccl
