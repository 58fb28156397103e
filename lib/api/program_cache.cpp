// Plans and compiles the programs of a communicator, and drops the least recently used one.
#include "api/program_cache.hpp"

#include "api/call_guards.hpp"
#include "base/short_text.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace qccl {

// Shapes of calls that are kept. Beyond that number the least recently used one is dropped.
static constexpr size_t most_programs = 256;

size_t ProgramCache::Hash::operator()(const ProgramKey &key) const {
    const Codec &codec = key.codec;
    const uint64_t words[] = {
        static_cast<uint64_t>(key.collective),
        static_cast<uint64_t>(key.type),
        static_cast<uint64_t>(key.op),
        uint64_t{key.root},
        key.count,
        uint64_t{codec.bucket},
        codec.seed,
        uint64_t{codec.bits},
        std::bit_cast<uint64_t>(codec.budget.nmse),
        uint64_t{codec.budget.bits},
        std::bit_cast<uint64_t>(codec.guard),
        key.pieces.segment_bytes ^ key.pieces.parts << 32 ^ uint64_t{key.pieces.lanes} << 48,
        static_cast<uint64_t>(codec.id),
        reinterpret_cast<uintptr_t>(key.algorithm ? &key.algorithm.row() : nullptr)};
    uint64_t hash = 0;
    for (const uint64_t word : words) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15; // 2^64 / golden ratio
        hash ^= hash >> 29;
    }
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
            .places = planned_places(team_.places, inputs_)};
}

Result<ProgramRef> ProgramCache::make(const ProgramKey &key) const {
    QCCL_TRY(const Plan plan, choose(problem_of(key), inputs_, key.algorithm));
    const bool is_guarded = key.codec.guard != 0 && encode_counts(plan).loses();
    QCCL_TRY(Program program, is_guarded
                                  ? compile_guarded(key, plan)
                                  : compile_plan(key, plan, chunking_with(key.pieces, cut_)));
    program.notice = plan.notice;
    return std::make_shared<const Program>(std::move(program));
}

// Guarded calls use no eager slots: ranks learn of errors from headers, which eager slots do not
// carry.
Result<Program> ProgramCache::compile_guarded(const ProgramKey &key, const Plan &plan) const {
    Chunking cut = chunking_with(key.pieces, cut_);
    cut.eager_slot_bytes = 0;
    ProgramKey without = key;
    without.codec = {};
    QCCL_TRY(const Plan lossless, choose(problem_of(without), inputs_, key.algorithm));
    CallGuard guard{.budget = key.codec.guard, .counts = encode_counts(plan), .lossless = nullptr};
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
             emit(plan.algorithm, key.collective, problem_of(key).team(team_.rank)));
    if (!plan.algorithm.fits_exchanges(key.collective, cut.eager_exchanges))
        cut.eager_slot_bytes = 0;
    const Work work{.collective = key.collective,
                    .type = key.type,
                    .op = key.op,
                    .codec = plan.codec,
                    .inner_codec = plan.inner_codec,
                    .count = key.count,
                    .team = team,
                    .algorithm = spec(plan.algorithm)};
    QCCL_TRY(Program program, compile(schedule, work, cut));
    program.asked_codec = spec(key.codec);
    program.asked_algorithm = key.algorithm ? spec(key.algorithm) : "auto";
    program.asked_hash = hash_text(program.asked_codec + " " + program.asked_algorithm);
    return program;
}

void ProgramCache::forget_oldest() {
    held_.erase(std::min_element(held_.begin(), held_.end(), [](const auto &a, const auto &b) {
        return a.second.last_used < b.second.last_used;
    }));
}

} // namespace qccl
