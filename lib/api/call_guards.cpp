// Implements guards: samples calls, estimates the error of their codec, and switches later calls to
// lossless and back.
#include "api/call_guards.hpp"

#include "codec/chunk.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <numeric>
#include <utility>

namespace qccl {

// One of so many values of a call is sampled. This takes a fiftieth of the time that a call in
// shared memory takes.
static constexpr uint64_t sample_divisor = 256;

static uint64_t unit_of(const EncodeCounts &counts) {
    const auto block = [](const Codec &codec) { return std::max<uint64_t>(codec.bucket, 1); };
    return std::lcm(block(counts.codec), block(counts.inner_codec));
}

static bool sums(const Work &work) { return reduces(work.collective) && adds(work.op); }

CallGuards::Entry &CallGuards::entry_of(const Program &program, const Call &call) {
    uses_++;
    const Key key{program.fingerprint, call.tag, program.guard->budget};
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

Result<CallGuards::Use> CallGuards::begin(const Program &program, const Call &call) {
    const Work &work = program.work;
    Use use{.asked = &program,
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

Done CallGuards::look_at_input(Use &use, const Call &call, const SampleSize &size) {
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
Done CallGuards::look_at_result(Use &use, const Call &call, const SampleSize &size) {
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

double CallGuards::estimate(const Use &use) {
    const Entry &entry = *use.entry;
    return estimated_nmse(use.asked->guard->counts,
                          {.loss = greater(entry.input.loss(), entry.result),
                           .inner_loss = greater(entry.inner_input.loss(), entry.inner_result),
                           .cancellation = entry.cancellation});
}

Done CallGuards::end(Use &use, const Call &call, const Log *log) {
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

void CallGuards::tell(const Use &use, const Call &call, GuardState::Change change, const Log &log) {
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
