// Plans and compiles the programs of a communicator, and drops the least recently used one.
// Implements guards: samples calls, estimates the error of their codec, and switches later calls to
// lossless and back.
#include "comm/call_programs.hpp"

#include "base/hash.hpp"
#include "base/text.hpp"
#include "codec/chunk.hpp"
#include "codec/shared_scales.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <numeric>
#include <utility>

namespace qccl {

// ---- ProgramCache

// Shapes of calls that are kept. Beyond that number the least recently used one is dropped.
static constexpr size_t most_programs = 256;

size_t ProgramCache::Hash::operator()(const ProgramKey &key) const {
    const Codec &codec = key.codec;
    const uint64_t words[] = {
        static_cast<uint64_t>(key.called()),
        static_cast<uint64_t>(key.type),
        static_cast<uint64_t>(key.op),
        uint64_t{key.root},
        key.count,
        key.spacing,
        uint64_t{codec.bucket} | uint64_t{codec.rotation} << 32,
        codec.seed,
        uint64_t{codec.bits},
        std::bit_cast<uint64_t>(codec.budget.nmse),
        uint64_t{codec.budget.bits},
        std::bit_cast<uint64_t>(codec.guard),
        static_cast<uint64_t>(codec.owner),
        static_cast<uint64_t>(codec.sums_exactly),
        uint64_t{codec.shared_bits} | uint64_t{codec.shared_block} << 8,
        uint64_t{codec.share} | uint64_t{codec.packs} << 32 | uint64_t{codec.codes_entropy} << 33 |
            uint64_t{codec.is_pointwise} << 34,
        uint64_t{std::bit_cast<uint32_t>(codec.threshold)} << 32 |
            std::bit_cast<uint32_t>(codec.bound),
        static_cast<uint64_t>(key.feedback),
        uint64_t{key.momentum},
        key.pieces.segment_bytes ^ key.pieces.parts << 32 ^ uint64_t{key.pieces.lanes} << 48,
        static_cast<uint64_t>(codec.id),
        reinterpret_cast<uintptr_t>(key.algorithm ? &key.algorithm.row() : nullptr)};
    uint64_t hash = 0;
    for (const uint64_t word : words) hash = mixed_hash(hash, word);
    if (key.v.parts)
        for (const auto *parts : {&key.v.parts->sent, &key.v.parts->received})
            for (const VFormParts::PartRange &part : *parts)
                hash = mixed_hash(mixed_hash(hash, part.start), part.count);
    return hash;
}

Result<ProgramRef> ProgramCache::get(const ProgramKey &key) {
    uses_++;
    if (const auto found = held_.find(key); found != held_.end()) {
        found->second.last_used = uses_;
        return found->second.program;
    }
    QCCL_TRY(ProgramRef program, make(key));
    if (held_.size() >= most_programs) forget_oldest();
    held_.emplace(key, Held{program, uses_});
    return program;
}

Problem ProgramCache::problem_of(const ProgramKey &key) const {
    return {.collective = key.collective,
            .count = key.count,
            .ranks = team_.size,
            .root = key.root,
            .type = key.type,
            .codec = key.codec,
            .places = planned_places(team_.places, inputs_),
            .in_rank_order = key.op == RedOp::custom_in_order};
}

Result<ProgramRef> ProgramCache::make(const ProgramKey &key) const {
    if (key.codec.shares_scales()) return make_shared(key);
    QCCL_TRY(const Plan plan, choose(problem_of(key), inputs_, key.forced()));
    const bool is_guarded = key.codec.guard != 0 && encode_counts(plan, key.collective).loses();
    QCCL_TRY(Program program, is_guarded
                                  ? compile_guarded(key, plan)
                                  : compile_plan(key, plan, chunking_with(key.pieces, cut_)));
    program.notice = plan.notice;
    QCCL_TRY(program.warm_up, make_warm_up(key));
    return std::make_shared<const Program>(std::move(program));
}

static void set_codec(CallDescriptor &descriptor, const std::string &text) {
    const std::string codec = shortened(text, sizeof descriptor.codec - 1);
    std::ranges::fill(descriptor.codec, '\0');
    codec.copy(descriptor.codec, codec.size());
}

static std::string scales_of(const std::string &codec) { return "scales of " + codec; }

// Returns the program that agrees on the scales of `sums`, each of which is a number of 16 bits.
Result<ProgramRef> ProgramCache::make_agreement(uint64_t blocks, const Program &sums) const {
    ProgramKey key;
    key.type = DataType::uint16;
    key.op = RedOp::max;
    key.count = blocks;
    QCCL_TRY(const Plan plan, choose(problem_of(key), inputs_, {}));
    QCCL_TRY(Program program, compile_plan(key, plan, cut_));
    CallDescriptor descriptor = sums.shape.descriptor();
    set_codec(descriptor, scales_of(descriptor.codec));
    program.shape = descriptor;
    program.traced_codec = scales_of(spec(sums.work.codec));
    program.set_asked(sums.asked_codec, program.asked_algorithm);
    program.raw_bytes = 0; // that of the sums counts the values
    return std::make_shared<const Program>(std::move(program));
}

static SharedLayout layout_of(const ProgramKey &key, Team team) {
    team.root = key.root;
    SharedLayout layout{.type = key.type,
                        .block = key.codec.shared_block,
                        .limit = shared_limit(key.codec),
                        .divisor = key.op == RedOp::avg ? team.size : 1};
    const bool has_parts = row_of(key.collective).scatters;
    if (has_output(key.collective, team)) layout.result = has_parts ? team.rank : 0;
    if (key.v.parts) {
        for (const VFormParts::PartRange &part : key.v.parts->sent)
            layout.add_part(part.start, part.count);
        return layout;
    }
    const uint64_t step = key.spacing == 0 ? key.count : key.spacing;
    for (uint64_t part = 0; part < parts_of(key.collective, team.size); part++)
        layout.add_part(part * step, key.count);
    return layout;
}

// Returns the same parts without gaps: that is how integers lie.
static KeyParts without_gaps(const KeyParts &given) {
    if (!given.parts) return {};
    VFormParts parts = *given.parts;
    uint64_t end = 0;
    for (VFormParts::PartRange &part : parts.sent)
        part.start = std::exchange(end, end + part.count);
    return {std::make_shared<const VFormParts>(std::move(parts))};
}

// What ranks compare is what the caller asked for, because integers and scales are all alike, and
// the codec of the integers, which follows from keys that a spec of the plan's codec lacks.
Result<ProgramRef> ProgramCache::make_shared(const ProgramKey &key) const {
    if (team_.size == 1) { // has no codec
        ProgramKey alone = key;
        alone.codec = {};
        return make(alone);
    }
    ProgramKey of_integers = key;
    of_integers.type = DataType::float32;
    of_integers.op = RedOp::sum;
    of_integers.caller_type.reset();
    of_integers.feedback = Feedback::none; // ends before the integers
    of_integers.momentum = 0;
    of_integers.v = without_gaps(key.v);
    of_integers.spacing = 0;
    QCCL_TRY(const Plan plan, choose(problem_of(of_integers), inputs_, key.forced()));
    QCCL_TRY(Program program, compile_plan(of_integers, plan, chunking_with(key.pieces, cut_)));
    CallDescriptor descriptor = program.shape.descriptor();
    descriptor.type = key.caller_type.value_or(key.type);
    descriptor.count /= reals_of(descriptor.type);
    descriptor.op = key.op;
    const Codec &chosen = program.work.codec;
    set_codec(descriptor, spec(chosen) + " as " + spec(chosen.without_use()));
    program.shape = descriptor;
    program.raw_bytes = program.raw_bytes / sizeof(float) * type_bytes(key.type);
    SharedSums sums{.layout = layout_of(key, team_), .op = key.op};
    QCCL_TRY(sums.agreement, make_agreement(sums.layout.blocks(), program));
    program.shared = std::make_shared<const SharedSums>(std::move(sums));
    return std::make_shared<const Program>(std::move(program));
}

// The calls of a state find their stage by their number when they run: on a stream, in a graph and
// where a call has been prepared no thread knows the number before.
Result<std::vector<WarmUpStage>> ProgramCache::make_warm_up(const ProgramKey &key) const {
    std::vector<WarmUpStage> stages;
    if (key.feedback == Feedback::none) return stages;
    for (uint64_t call = 1; call <= key.codec.warm_up;) {
        const uint32_t share = key.codec.at_call(call).share;
        // Binary search for the last call with this share: shares never grow.
        uint64_t last = call, end = uint64_t{key.codec.warm_up} + 1;
        while (end - last > 1) {
            const uint64_t middle = last + (end - last) / 2;
            (key.codec.at_call(middle).share == share ? last : end) = middle;
        }
        ProgramKey staged = key;
        staged.codec.share = share;
        staged.codec.warm_up = 0;
        QCCL_TRY(const ProgramRef program, make(staged));
        stages.push_back({last, program});
        call = end;
    }
    return stages;
}

// Guarded calls use no eager slots: ranks learn of errors from headers, which eager slots do not
// carry.
Result<Program> ProgramCache::compile_guarded(const ProgramKey &key, const Plan &plan) const {
    Chunking cut = chunking_with(key.pieces, cut_);
    cut.eager_slot_bytes = 0;
    ProgramKey without = key;
    without.codec = {};
    QCCL_TRY(const Plan lossless, choose(problem_of(without), inputs_, key.algorithm));
    CallGuard guard{.budget = key.codec.guard,
                    .counts = encode_counts(plan, key.collective),
                    .lossless = nullptr};
    QCCL_TRY(Program fallback, compile_plan(key, lossless, cut));
    guard.lossless = std::make_shared<const Program>(std::move(fallback));
    QCCL_TRY(Program program, compile_plan(key, plan, cut));
    program.guard = std::make_shared<const CallGuard>(std::move(guard));
    return program;
}

Result<Program> ProgramCache::compile_plan(const ProgramKey &key, const Plan &plan,
                                           Chunking cut) const {
    QCCL_TRY(check_codec(plan.inner_codec, key.collective, key.type, key.op));
    Team team = team_;
    team.root = key.root;
    QCCL_TRY(const Schedule schedule,
             emit(plan.algorithm, key.called(), problem_of(key).team(team_.rank)));
    // The way that values take changes no bit, so it may depend on where the ranks are also where
    // results may not.
    Problem problem = problem_of(key);
    problem.places = team_.places;
    if (!key.is_pairwise() && !may_use_eager(plan.algorithm, problem, cut.eager_exchanges))
        cut.eager_slot_bytes = 0;
    const Work work{.collective = key.collective,
                    .type = key.type,
                    .op = key.op,
                    .caller_type = key.caller_type,
                    .codec = plan.codec,
                    .inner_codec = plan.inner_codec,
                    .count = key.v.parts ? key.v.parts->common_total() : key.count,
                    .parts = key.v.parts,
                    .feedback = key.feedback,
                    .momentum = key.momentum,
                    .spacing = key.spacing,
                    .team = team,
                    .algorithm = spec(plan.algorithm)};
    QCCL_TRY(Program program, compile(schedule, work, cut));
    program.set_asked(spec(key.codec), key.algorithm ? spec(key.algorithm) : "auto");
    return program;
}

void ProgramCache::forget_oldest() {
    held_.erase(std::min_element(held_.begin(), held_.end(), [](const auto &a, const auto &b) {
        return a.second.last_used < b.second.last_used;
    }));
}

// ---- Guards of lossy calls

// One of so many values of a call is sampled. This takes a fiftieth of the time that a call in
// shared memory takes.
static constexpr uint64_t sample_divisor = 256;

static uint64_t unit_of(const EncodeCounts &counts) {
    return std::lcm(counts.codec.unit_values(), counts.inner_codec.unit_values());
}

static bool sums(const Work &work) { return reduces(work.collective) && adds(work.op); }

CallGuards::Entry &CallGuards::entry_of(const Program &program, const Call &call) {
    uses_++;
    const Key key{program.shape.fingerprint(), call.tag, program.guard->budget};
    auto found = entries_.find(key);
    if (found == entries_.end()) {
        if (entries_.size() == most_entries)
            entries_.erase(std::ranges::min_element(
                entries_, {}, [](const auto &each) { return each.second.last_used; }));
        found = entries_.try_emplace(key).first;
        const Work &work = program.work;
        found->second.shape = {work.collective, work.type, work.op, work.team.root, work.count};
        found->second.codec = program.asked_codec;
    }
    found->second.last_used = uses_;
    return found->second;
}

Result<CallGuards::GuardedCall> CallGuards::begin(const Program &program, const Call &call) {
    const Work &work = program.work;
    GuardedCall use{.asked = &program,
                    .values = vector_count(work.collective, work.count, work.team.size),
                    .unit = unit_of(program.guard->counts)};
    const SampleSize size = SampleSize::of(use.values, use.unit, sample_divisor);
    {
        const std::lock_guard guard(mutex_);
        use.entry = &entry_of(program, call);
    }
    const bool is_lossless = use.entry->state.is_lossless();
    use.program = is_lossless ? program.guard->lossless.get() : &program;
    use.is_sampled = use.entry->turns.next(use.values, size, sample_divisor);
    if (use.is_sampled) QCCL_TRY(look_at_input(use, call, size));
    return use;
}

Done CallGuards::look_at_input(GuardedCall &use, const Call &call, const SampleSize &size) {
    const Work &work = use.asked->work;
    QCCL_TRY(
        sampler_.read(contribution_of(work, call.send), work.type, size, use.entry->turns.taken()));
    const EncodeCounts &counts = use.asked->guard->counts;
    use.entry->input = sampler_.measure(counts.codec);
    use.entry->inner_input = sampler_.measure(counts.inner_codec);
    use.word = nmse_word(estimate(use));
    return {};
}

// Samples of the result count from the next sampled call on.
Done CallGuards::look_at_result(GuardedCall &use, const Call &call, const SampleSize &size) {
    const Work &work = use.asked->work;
    if (!reduces(work.collective)) return {};
    QCCL_TRY(sampler_.read(result_of(work, call.recv), work.type, size, use.entry->turns.taken()));
    const EncodeCounts &counts = use.asked->guard->counts;
    Entry &entry = *use.entry;
    const SampledLoss result = sampler_.measure(counts.codec);
    entry.result = result.loss();
    entry.inner_result = sampler_.measure(counts.inner_codec).loss();
    const double ranks = work.op == RedOp::avg ? work.team.size : 1;
    if (sums(work))
        entry.cancellation =
            cancellation_of(entry.input.square, result.square * ranks * ranks, work.team.size);
    return {};
}

double CallGuards::estimate(const GuardedCall &use) {
    const Entry &entry = *use.entry;
    return estimated_nmse(use.asked->guard->counts,
                          {.loss = greater(entry.input.loss(), entry.result),
                           .inner_loss = greater(entry.inner_input.loss(), entry.inner_result),
                           .cancellation = entry.cancellation});
}

Done CallGuards::end(GuardedCall &use, const Call &call, const Log *log) {
    if (use.program != use.asked) lossless_calls_.fetch_add(1, std::memory_order_relaxed);
    if (!use.is_sampled) return {};
    QCCL_TRY(look_at_result(use, call, SampleSize::of(use.values, use.unit, sample_divisor)));
    GuardState::Change change;
    {
        const std::lock_guard guard(mutex_);
        change = use.entry->state.note(nmse_of(use.word), use.asked->guard->budget);
    }
    if (log && change != GuardState::Change::none) tell(use, call, change, *log);
    return {};
}

void CallGuards::tell(const GuardedCall &use, const Call &call, GuardState::Change change,
                      const Log &log) {
    Entry &entry = *use.entry;
    const Work &work = use.asked->work;
    char what[160];
    std::snprintf(what, sizeof what, "codec %.60s: %s of %" PRIu64 " %s with tag %" PRIu64,
                  entry.codec.c_str(), name(work.collective), work.count, name(work.type),
                  call.tag);
    if (change == GuardState::Change::returns)
        return log.info("%s is encoded again after call %" PRIu64
                        ": samples keep the guard's budget",
                        what, call.number);
    char why[200];
    std::snprintf(why, sizeof why,
                  "goes lossless after call %" PRIu64 ", whose samples tell of an NMSE of %.3g on "
                  "%u ranks, until %u in a row keep half of the guard's budget",
                  call.number, entry.state.latest(), work.team.size,
                  entry.state.samples_to_return());
    const bool is_new = !std::exchange(entry.has_warned, true);
    if (is_new && warnings_ < most_warnings) {
        warnings_++;
        log.warn("%s %s", what, why);
    } else {
        log.info("%s %s", what, why);
    }
}

std::string CallGuards::describe(const GuardedShape &shape) const {
    const std::lock_guard guard(mutex_);
    std::string text;
    for (const auto &[key, entry] : entries_) {
        if (entry.shape != shape) continue;
        char line[200];
        std::snprintf(
            line, sizeof line, "guard: codec %.60s with tag %" PRIu64 " %s, latest NMSE %.3g\n",
            entry.codec.c_str(), key.tag,
            entry.state.is_lossless() ? "goes lossless" : "is encoded", entry.state.latest());
        text += line;
    }
    return text;
}

} // namespace qccl
