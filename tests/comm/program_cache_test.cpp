// Tests ProgramCache of lib/comm/call_programs: a shape is compiled once while it is in use, and is
// forgotten after many other shapes.
#include "tests/kit/forms.hpp"
#include "tests/kit/qtest.hpp"

#include "comm/call_programs.hpp"

using namespace qccl;

namespace {

constexpr uint64_t many = 300; // more than the cache keeps

ProgramKey shape(uint64_t count) {
    ProgramKey key;
    key.count = count;
    return key;
}

ProgramRef get(ProgramCache &programs, uint64_t count) {
    const auto program = programs.get(shape(count));
    CHECK_OK(program);
    return *program;
}

ProgramCache some_programs() {
    return ProgramCache({.size = 2, .rank = 1}, {},
                        {.speeds = {}, .limits = {.arena_bytes = size_t{16} << 20}});
}

} // namespace

static void a_shape_is_compiled_once() {
    ProgramCache programs = some_programs();
    const ProgramRef first = get(programs, 1);
    CHECK(get(programs, 2) != first);
    CHECK(get(programs, 1) == first);
    ProgramKey other = shape(1);
    other.codec = *parse_codec("int8");
    CHECK(*programs.get(other) != first);
    CHECK_EQ((*programs.get(other))->work.codec.bits, 8);
}

// Only the planner sees a budget: a program has the codec that the planner chose, or a notice that
// no codec keeps the budget.
static void a_budget_becomes_a_codec() {
    ProgramCache programs = some_programs();
    ProgramKey key = shape(1 << 16);
    const auto with = [&](const char *spec) {
        key.codec = *parse_codec(spec);
        const auto program = programs.get(key);
        CHECK_OK(program);
        return *program;
    };
    const ProgramRef kept = with("auto:nmse=1e-2,min=0");
    CHECK(!kept->work.codec.is_auto() && !kept->work.codec.is_lossless() && kept->notice.empty());
    CHECK(with("auto:nmse=1e-2,min=0") == kept && with("auto:nmse=1e-3,min=0") != kept);
    const ProgramRef missed = with("auto:nmse=1e-9,min=0");
    CHECK(missed->work.codec.is_lossless() && !missed->notice.empty());
    CHECK(with("none")->notice.empty());
}

// The test holds the program, so that another program cannot take its place in memory meanwhile.
static void what_was_not_used_for_long_is_forgotten() {
    ProgramCache programs = some_programs();
    const ProgramRef used = get(programs, 1), unused = get(programs, 2);
    for (uint64_t count = 3; count < many; count++) {
        get(programs, count);
        CHECK(get(programs, 1) == used);
    }
    CHECK_EQ(unused.use_count(), 1L);
    CHECK(get(programs, 2) != unused);
}

// A rank alone exchanges nothing, so its small calls take the fast path by every algorithm.
static void a_rank_alone_takes_the_fast_path() {
    ProgramCache alone(
        {.size = 1, .rank = 0}, {.eager_slot_bytes = 4096},
        {.speeds = {.eager_bytes = 4096}, .limits = {.arena_bytes = size_t{16} << 20}});
    ProgramKey key = shape(16);
    for (const Collective collective :
         {Collective::all_reduce, Collective::broadcast, Collective::reduce_scatter,
          Collective::all_gather, Collective::reduce, Collective::scan})
        for (const AlgorithmRow &row : algorithm_table()) {
            key.collective = collective;
            key.algorithm = Algorithm(row);
            if (!key.algorithm.has(collective)) continue;
            const auto program = alone.get(key);
            CHECK_OK(program);
            CHECK((*program)->fast_path.has_value());
            CHECK_EQ((*program)->fast_path->exchanges(), 1U);
        }
}

// Between hosts an eager slot is sent to every rank, also to those that do not read it. Also a
// reproducible communicator may look where its ranks are, because no bit depends on the slots.
static void between_hosts_only_calls_of_all_ranks_take_the_fast_path() {
    const RankTopology one = places_on({0, 0, 0}), three = places_on({0, 1, 2});
    ProgramKey key = shape(16);
    key.algorithm = *parse_algorithm("oneshot");
    for (const RankTopology *const places : {&one, &three})
        for (const bool is_reproducible : {false, true})
            for (const CollectiveRow &row : collectives_without_v_forms) {
                if (!key.algorithm.has(row.collective) || !row.has_values) continue;
                ProgramCache programs({.size = 3, .rank = 0, .places = places},
                                      {.eager_slot_bytes = 4096},
                                      {.speeds = {.eager_bytes = 4096},
                                       .limits = {.arena_bytes = size_t{16} << 20},
                                       .is_reproducible = is_reproducible});
                key.collective = row.collective;
                const auto program = programs.get(key);
                CHECK_OK(program);
                CHECK_EQ((*program)->fast_path.has_value(), places == &one || row.needs_all_ranks);
            }
}

// The bytes do not depend on the pieces, so the test looks at the program's geometry.
static void a_call_is_cut_as_it_is_wanted() {
    ProgramCache programs = some_programs();
    ProgramKey key = shape(2 << 20); // a chunk of 4 MiB for each of two ranks
    key.algorithm = Algorithm(algorithm_table()[0]);
    const auto geometry = [&](const Pieces &pieces) {
        key.pieces = pieces;
        const auto program = programs.get(key);
        CHECK_OK(program);
        return (*program)->geometry;
    };
    const Geometry usual = geometry({});
    CHECK(usual.instances > 7 && usual.lanes == 4);
    const Geometry parts = geometry({.segment_bytes = 0, .parts = 7, .lanes = 2});
    CHECK_EQ(parts.instances, 7U);
    CHECK_EQ(parts.lanes, 2U);
    CHECK_EQ(geometry({.segment_bytes = 1 << 20, .parts = 0, .lanes = 0}).instances, 4U);
    CHECK_EQ(geometry({.segment_bytes = 0, .parts = 1, .lanes = 0}).instances, 1U);
    // No segment is smaller than the grain.
    key.count = 256;
    CHECK_EQ(geometry({.segment_bytes = 0, .parts = 100, .lanes = 0}).instances, 2U);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_shape_is_compiled_once),
        QTEST(a_budget_becomes_a_codec),
        QTEST(what_was_not_used_for_long_is_forgotten),
        QTEST(a_rank_alone_takes_the_fast_path),
        QTEST(between_hosts_only_calls_of_all_ranks_take_the_fast_path),
        QTEST(a_call_is_cut_as_it_is_wanted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
