// Tests schedule/shape: cuts fit the arena and cover every chunk, and joining changes nothing but
// the order of steps.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/lower.hpp"

#include <algorithm>

using namespace qccl;

namespace {

constexpr size_t header = 64;
const Encoding plain{.type_bytes = 4,
                     .most_bytes = [](uint64_t count) { return header + 4 * count; }};

Layout layout_of(uint64_t count, uint32_t ranks, uint64_t grain = 64) {
    return {Collective::all_reduce, count, {.size = ranks}, ranks, grain};
}

Geometry geometry(const Layout &layout, uint32_t outbox, const ShapeLimits &limits,
                  const Encoding &encoding = plain) {
    const auto found = cut(layout, outbox, encoding, limits);
    CHECK_OK(found);
    return *found;
}

} // namespace

static void segments_are_equal_and_as_large_as_asked() {
    // 10000 elements in 4 chunks of 2560; 4 KiB hold 1024 elements, so there are 3 segments of 896.
    const Geometry g = geometry(layout_of(10000, 4), 2,
                                {.arena_bytes = 1 << 20, .segment_bytes = 4096, .max_lanes = 2});
    CHECK_EQ(g.instances, 3U);
    CHECK_EQ(g.segment, 896U);
    CHECK_EQ(g.lanes, 2U);
    CHECK_EQ(g.wire_bytes, 64U + 4 * 896);
    CHECK_EQ(g.arena_bytes, 2 * 2 * g.wire_bytes);
}

// Each rank knows its own counts alone, so segments must not depend on them. Lanes may.
static void segments_between_two_ranks_do_not_depend_on_counts() {
    const auto cut_of = [](uint64_t count, size_t arena, const Encoding &encoding) {
        const auto parts = std::make_shared<const VFormParts>(
            VFormParts{.v_form = gather_v, .sent = {{0, count}, {}}, .received = {{}, {}}});
        return geometry(Layout(parts, {.size = 2}, 3, 64), 3,
                        {.arena_bytes = arena, .segment_bytes = 4096, .max_lanes = 4}, encoding);
    };
    for (const uint64_t count : {0U, 1U, 1023U, 1024U, 1025U, 5000U}) {
        const Geometry g = cut_of(count, 1 << 20, plain);
        CHECK_EQ(g.segment, 1024U);
        CHECK_EQ(g.instances, count / 1024 + 1);
        CHECK_EQ(g.lanes, std::min<uint64_t>(g.instances, 4));
        CHECK_EQ(g.wire_bytes, 64U + 4 * 1024);
        CHECK_EQ(cut_of(count, 30000, plain).segment, 512U); // 3 slots in each of 4 lanes
        Encoding whole = plain;
        whole.needs_whole_chunks = true;
        CHECK_EQ(cut_of(count, 1 << 20, whole).instances, 1U);
        CHECK(cut_of(count, 1 << 20, whole).segment >= count);
    }
}

// The chunks have 2560 elements, 40 times the grain; there are 4 of them.
static void a_number_of_parts_goes_before_their_size() {
    const auto instances = [](uint64_t parts, size_t arena) {
        return geometry(layout_of(10000, 4), 2,
                        {.arena_bytes = arena, .segment_bytes = 4096, .parts = parts})
            .instances;
    };
    for (const auto &[parts, expected] : {std::pair(1U, 1U), std::pair(2U, 2U), std::pair(7U, 7U),
                                          std::pair(40U, 40U), std::pair(1000U, 40U)})
        CHECK_EQ(instances(parts, 1 << 20), expected);
    CHECK_EQ(instances(1, 8192), 4U); // as many as the arena needs
    CHECK_EQ(instances(0, 1 << 20), 3U);
}

static void lanes_have_slots_or_are_given_up() {
    const Layout layout = layout_of(100000, 4);
    const auto lanes = [&](uint32_t slots, uint32_t outbox) {
        return geometry(
                   layout, outbox,
                   {.arena_bytes = 1 << 20, .slots = slots, .segment_bytes = 1024, .max_lanes = 4})
            .lanes;
    };
    CHECK_EQ(lanes(12, 3), 4U);
    CHECK_EQ(lanes(11, 3), 3U);
    CHECK_EQ(lanes(3, 3), 1U);
    CHECK_EQ(lanes(0, 0), 4U);
    const auto few = cut(layout, 3, plain, {.arena_bytes = 1 << 20, .slots = 2});
    CHECK(!few);
    CHECK_EQ(std::string(few.error().text), "3 wire slots are needed, and there are 2");
}

// Messages name their instance with 32 bits, however short the segments are to be and however
// small the arena is.
static void instances_have_numbers() {
    for (const uint64_t count : {uint64_t{1} << 38, uint64_t{1} << 45, uint64_t{1} << 56})
        for (const size_t arena : {size_t{1} << 10, size_t{1} << 40}) {
            const Layout layout = layout_of(count, 4);
            const Geometry g =
                geometry(layout, 2, {.arena_bytes = arena, .segment_bytes = 256, .max_lanes = 4});
            CHECK(g.instances <= UINT32_MAX);
            CHECK(g.segment % 64 == 0 && g.segment * g.instances >= layout.largest());
        }
}

static void geometry_is_always_possible() {
    for (const uint64_t grain : {64U, 192U, 1024U})
        for (const uint64_t count : {0U, 1U, 64U, 65U, 5000U, 1000000U})
            for (const uint32_t outbox : {0U, 1U, 2U, 7U, 64U})
                for (const size_t arena : {0U, 1000U, 10000U, 100000U, 10000000U})
                    for (const uint32_t lanes : {1U, 4U}) {
                        const Layout layout = layout_of(count, 4, grain);
                        const ShapeLimits limits{
                            .arena_bytes = arena, .segment_bytes = 8192, .max_lanes = lanes};
                        const auto g = cut(layout, outbox, plain, limits);
                        const uint64_t least = std::min(grain, layout.largest());
                        const size_t least_bytes = outbox * ((header + 4 * least + 63) / 64 * 64);
                        CHECK_OK(g);
                        CHECK_EQ(g->arena_bytes <= arena, least_bytes <= arena);
                        if (g->arena_bytes > arena) CHECK_EQ(g->arena_bytes, least_bytes);
                        CHECK_EQ(g->arena_bytes, g->lanes * outbox * g->wire_bytes);
                        CHECK(g->segment > 0 && g->segment % grain == 0);
                        CHECK(g->lanes >= 1 && g->lanes <= lanes && g->lanes <= g->instances);
                        CHECK(g->segment * g->instances >= layout.largest());
                        CHECK(g->instances == 1 ||
                              g->segment * (g->instances - 1) < layout.largest());
                        CHECK(g->wire_bytes >= header + 4 * std::min(g->segment, layout.largest()));
                    }
}

static void buckets_of_whole_chunks_are_never_cut() {
    Encoding whole = plain;
    whole.needs_whole_chunks = true;
    const Layout layout = layout_of(100000, 4);
    const Geometry g =
        geometry(layout, 2, {.arena_bytes = 1 << 20, .segment_bytes = 4096, .max_lanes = 4}, whole);
    CHECK_EQ(g.instances, 1U);
    CHECK(g.segment >= layout.largest());
    CHECK(g == geometry(layout, 2, {.arena_bytes = 1 << 16, .segment_bytes = 4096, .max_lanes = 4},
                        whole));
}

// The geometry does not depend on the rank.
static void ranks_cut_alike() {
    for (const Collective collective : value_collectives)
        for (uint32_t rank = 0; rank < 4; rank++) {
            const ShapeLimits limits{.arena_bytes = 1 << 16, .segment_bytes = 4096, .max_lanes = 4};
            const Geometry mine =
                geometry({collective, 12345, {.size = 4, .rank = rank}, 4, 64}, 4, limits);
            CHECK(mine == geometry({collective, 12345, {.size = 4, .rank = 0}, 4, 64}, 4, limits));
        }
}

// ---- Joining

namespace {

Schedule without_joins(Schedule s) {
    for (Step &step : s.steps) step.flags &= static_cast<uint8_t>(~Step::joins_next);
    return s;
}

} // namespace

// The joined schedule has the same steps, and any two steps that must stay in order do so.
static void joining_reorders_only_what_is_free() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (uint32_t rank = 0; rank < 5; rank++) {
                const Team team{.size = 5, .rank = rank, .root = 2};
                Schedule placed = make(ScheduleForm::placed, a, collective, team);
                Schedule joined = without_joins(fuse(placed).schedule);
                const Dependencies dependencies = lower(placed);
                lower(joined);
                const auto position = [&](const Step &step) {
                    const auto at =
                        std::find_if(joined.steps.begin(), joined.steps.end(), [&](Step other) {
                            // Another step may be the last reader.
                            other.flags = static_cast<uint8_t>((other.flags & ~Step::releases) |
                                                               (step.flags & Step::releases));
                            return other == step;
                        });
                    CHECK(at != joined.steps.end());
                    return at - joined.steps.begin();
                };
                CHECK_EQ(joined.steps.size(), placed.steps.size());
                for (size_t i = 0; i < placed.steps.size(); i++)
                    for (const uint32_t earlier : dependencies.of(i))
                        CHECK(position(placed.steps[earlier]) < position(placed.steps[i]));
            }
}

static void runs_compute_on_one_chunk() {
    for (const Algorithm &a : algorithms()) {
        if (!a.has(Collective::all_reduce)) continue;
        const Schedule s =
            make(ScheduleForm::joined, a, Collective::all_reduce, {.size = 5, .rank = 2});
        CHECK(!s.steps.back().has(Step::joins_next));
        uint32_t joins = 0;
        for (size_t i = 0; i + 1 < s.steps.size(); i++) {
            if (!s.steps[i].has(Step::joins_next)) continue;
            joins++;
            CHECK(computes(s.steps[i].verb) && computes(s.steps[i + 1].verb));
            CHECK_EQ(s.steps[i].chunk, s.steps[i + 1].chunk);
        }
        CHECK(joins > 0);
    }
}

// In every algorithm, one run uses each sum, so that a tile of the sum is enough.
static void sums_are_local() {
    for (const Algorithm &a : algorithms())
        for (uint32_t rank = 0; rank < 4 && a.has(Collective::all_reduce); rank++) {
            const auto author = emit(a, Collective::all_reduce, {.size = 4, .rank = rank});
            CHECK_OK(author);
            const auto placed = place_codec(*author);
            CHECK_OK(placed);
            const Fused fused = fuse(*placed);
            CHECK(std::all_of(fused.is_local.begin(), fused.is_local.end(),
                              [](bool local) { return local; }));
        }
}

// If a run has to wait for a message in its middle, the sum needs a whole segment of memory.
static void a_sum_that_waits_is_not_local() {
    Schedule s{.chunks = 2};
    s.reduce(sum(0), input(0));
    s.recv(1, wire(0), 0);
    s.reduce(sum(0), wire(0));
    s.finish(output(0), sum(0));
    const auto placed = place_codec(s);
    CHECK_OK(placed);
    const Fused fused = fuse(*placed);
    CHECK(!fused.is_local[0]);
    CHECK(fused.is_local[1]);
    CHECK(!fused.schedule.steps[0].has(Step::joins_next));
    CHECK(fused.schedule.steps[2].has(Step::joins_next));
}

// A value is decoded right after it is encoded, although the send of the encoding stood between the
// two steps.
static void steps_move_up_past_sends() {
    Schedule s{.chunks = 1, .outbox = 1, .wires = 1, .is_placed = true};
    s.steps = {{.verb = Verb::encode, .dst = wire(0), .src = input(0)},
               {.verb = Verb::send, .src = wire(0), .peer = 1},
               {.verb = Verb::decode, .dst = output(0), .src = wire(0)}};
    const Schedule joined = fuse(s).schedule;
    CHECK(joined.steps[0].verb == Verb::encode && joined.steps[0].has(Step::joins_next));
    CHECK(joined.steps[1].verb == Verb::decode);
    CHECK(joined.steps[2].verb == Verb::send);
    // A step does not move up past a send that reads what the step overwrites.
    s.steps = {{.verb = Verb::encode, .dst = wire(0), .src = input(0)},
               {.verb = Verb::send, .src = wire(0), .peer = 1},
               {.verb = Verb::encode, .dst = wire(0), .src = input(0), .ordinal = 1},
               {.verb = Verb::send, .src = wire(0), .peer = 2}};
    CHECK(fuse(s).schedule.steps == s.steps);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(segments_are_equal_and_as_large_as_asked),
        QTEST(segments_between_two_ranks_do_not_depend_on_counts),
        QTEST(a_number_of_parts_goes_before_their_size),
        QTEST(lanes_have_slots_or_are_given_up),
        QTEST(instances_have_numbers),
        QTEST(geometry_is_always_possible),
        QTEST(buckets_of_whole_chunks_are_never_cut),
        QTEST(ranks_cut_alike),
        QTEST(joining_reorders_only_what_is_free),
        QTEST(runs_compute_on_one_chunk),
        QTEST(sums_are_local),
        QTEST(a_sum_that_waits_is_not_local),
        QTEST(steps_move_up_past_sends),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
