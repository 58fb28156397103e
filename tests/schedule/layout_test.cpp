// Tests Layout of lib/schedule/shape: chunks cover the tensor once and in order, chunk borders lie
// at multiples of the grain, and segments cover the chunks.
#include "tests/kit/qtest.hpp"

#include "schedule/shape.hpp"

using namespace qccl;

static void all_reduce_follows_the_contract() {
    // 1000 elements over 3 chunks, grain A = 64: L = roundup(334, 64) = 384.
    const Layout layout(Collective::all_reduce, 1000, {.size = 3, .rank = 1}, 3, 64);
    CHECK((layout.range(input(0), 0) == ElementRange{0, 384, 0}));
    CHECK((layout.range(output(1), 1) == ElementRange{384, 384, 384}));
    CHECK((layout.range(output(2), 2) == ElementRange{768, 232, 768}));
    CHECK((layout.range(sum(2), 2) == ElementRange{0, 232, 768}));
    CHECK_EQ(layout.largest(), 384U);
}

// Counts 5, 0, 200 with displacements that leave gaps.
static void parts_of_v_forms_lie_where_the_caller_says() {
    const auto parts =
        std::make_shared<const VFormParts>(VFormParts{.v_form = all_gather_v,
                                                      .sent = {{0, 5}, {0, 0}, {0, 200}},
                                                      .received = {{300, 5}, {400, 0}, {10, 200}}});
    const Layout layout(parts, {.size = 3, .rank = 2}, 1, 64);
    CHECK((layout.range(input(2), 2) == ElementRange{0, 200, 5}));
    CHECK((layout.range(output(0), 0) == ElementRange{300, 5, 0}));
    CHECK((layout.range(output(2), 2, 3, 64) == ElementRange{202, 8, 197}));
    CHECK((layout.range(wire(0), 1) == ElementRange{0, 0, 5}));
    CHECK_EQ(layout.largest(), 200U);
    CHECK(!layout.is_pairwise() && layout.has_segment(output(1), 1, 3, 64));
    CHECK_EQ(parts->common_total(), 205U);
    VFormParts other = *parts;
    other.received[0].start = 0;
    CHECK_EQ(other.common_hash(), parts->common_hash());
    std::swap(other.received[0].count, other.received[1].count);
    CHECK(other.common_hash() != parts->common_hash());
}

// Rank 1 of 3 exchanges chunk c with rank (c - 1) mod 3. What it encodes has the counts of what it
// sends, and what comes those of what it receives.
static void what_is_sent_and_received_have_counts_of_their_own() {
    const auto parts =
        std::make_shared<const VFormParts>(VFormParts{.v_form = all_to_all_v,
                                                      .sent = {{0, 64}, {64, 1}, {65, 0}},
                                                      .received = {{0, 7}, {7, 1}, {8, 130}}});
    const Layout layout(parts, {.size = 3, .rank = 1}, 2, 64);
    CHECK((layout.range(input(1), 1) == ElementRange{0, 64, 0})); // rank 0
    CHECK((layout.range(output(1), 1) == ElementRange{0, 7, 0}));
    CHECK((layout.range(output(0), 0) == ElementRange{8, 130, 0})); // rank 2
    CHECK_EQ(layout.range(wire(1), 1).count, 64U);
    CHECK_EQ(layout.range(wire(2), 1).count, 7U);
    CHECK(layout.is_pairwise());
    CHECK_EQ(parts->common_total(), 0U);
    // A part ends in a segment that is shorter than the others.
    CHECK(layout.has_segment(input(1), 1, 1, 64) && !layout.has_segment(input(1), 1, 2, 64));
    CHECK_EQ(layout.range(input(1), 1, 1, 64).count, 0U);
    CHECK(layout.has_segment(input(0), 0, 0, 64) && !layout.has_segment(input(0), 0, 1, 64));
    CHECK(layout.has_segment(output(0), 0, 2, 64) && !layout.has_segment(output(0), 0, 3, 64));
}

static void trailing_chunks_may_be_empty() {
    const Layout layout(Collective::all_reduce, 65, {.size = 4, .rank = 0}, 4, 64);
    CHECK((layout.range(input(0), 0) == ElementRange{0, 64, 0}));
    CHECK((layout.range(input(1), 1) == ElementRange{64, 1, 64}));
    CHECK((layout.range(input(3), 3) == ElementRange{65, 0, 65}));
}

static void chunks_and_segments_cover_the_tensor_once() {
    for (const uint32_t P : {1U, 2U, 3U, 7U})
        for (const uint64_t count : {0U, 1U, 63U, 64U, 65U, 1000U, 4096U, 100003U})
            for (const uint64_t segment : {64U, 192U}) {
                const Layout layout(Collective::all_reduce, count, {.size = P, .rank = 0}, P, 64);
                uint64_t next = 0;
                for (uint32_t c = 0; c < P; c++)
                    for (uint64_t i = 0; i * segment < std::max<uint64_t>(1, layout.largest());
                         i++) {
                        const ElementRange part = layout.range(input(c), c, i, segment);
                        CHECK_EQ(part.offset, next);
                        CHECK_EQ(part.index, next);
                        CHECK(part.count <= segment);
                        CHECK(part.count == 0 || part.index % 64 == 0);
                        next += part.count;
                    }
                CHECK_EQ(next, count);
            }
}

// A buffer for one rank holds only the chunk of this rank, from its first element on.
static void rank_sized_buffers_start_at_their_chunk() {
    const Team team{.size = 4, .rank = 2};
    const Layout scatter(Collective::reduce_scatter, 100, team, 4, 64);
    CHECK((scatter.range(input(3), 3) == ElementRange{300, 100, 300}));
    CHECK((scatter.range(output(2), 2) == ElementRange{0, 100, 200}));
    CHECK((scatter.range(output(2), 2, 1, 64) == ElementRange{64, 36, 264}));
    const Layout gather(Collective::all_gather, 100, team, 4, 64);
    CHECK((gather.range(input(2), 2) == ElementRange{0, 100, 200}));
    CHECK((gather.range(output(3), 3) == ElementRange{300, 100, 300}));
    CHECK_EQ(gather.largest(), 100U);
    const Layout to_root(Collective::gather, 100, team, 4, 64);
    CHECK((to_root.range(input(2), 2) == ElementRange{0, 100, 200}));
    CHECK((to_root.range(output(3), 3) == ElementRange{300, 100, 300}));
    const Layout from_root(Collective::scatter, 100, team, 4, 64);
    CHECK((from_root.range(input(3), 3) == ElementRange{300, 100, 300}));
    CHECK((from_root.range(output(2), 2) == ElementRange{0, 100, 200}));
    // Ranks 1 and 2 exchange chunk 3, ranks 2 and 2 chunk 0.
    const Layout exchange(Collective::all_to_all, 100, team, 4, 64);
    CHECK((exchange.range(input(3), 3) == ElementRange{100, 100, 300}));
    CHECK((exchange.range(output(3), 3) == ElementRange{100, 100, 300}));
    CHECK((exchange.range(output(0), 0) == ElementRange{200, 100, 0}));
    CHECK((exchange.range(wire(0), 3) == ElementRange{0, 100, 300}));
}

// Blocks have gaps in the caller's vectors alone: the tensor and messages have none.
static void blocks_may_lie_apart() {
    const Team team{.size = 4, .rank = 2};
    const Layout scatter(Collective::reduce_scatter, 100, team, 4, 64, 150);
    CHECK((scatter.range(input(3), 3) == ElementRange{450, 100, 300}));
    CHECK((scatter.range(input(3), 3, 1, 64) == ElementRange{514, 36, 364}));
    CHECK((scatter.range(output(2), 2) == ElementRange{0, 100, 200}));
    const Layout gather(Collective::gather, 100, team, 4, 64, 150);
    CHECK((gather.range(input(2), 2) == ElementRange{0, 100, 200}));
    CHECK((gather.range(output(3), 3) == ElementRange{450, 100, 300}));
    CHECK((gather.range(wire(0), 3) == ElementRange{0, 100, 300}));
    const Layout exchange(Collective::all_to_all, 100, team, 4, 64, 150);
    CHECK((exchange.range(input(3), 3) == ElementRange{150, 100, 300}));
    CHECK((exchange.range(output(0), 0) == ElementRange{300, 100, 0}));
    CHECK_EQ(exchange.largest(), 100U);
}

static void huge_counts_do_not_wrap() {
    const uint64_t count = uint64_t{1} << 62;
    const Layout layout(Collective::all_reduce, count + 5, {.size = 3, .rank = 0}, 3, 64);
    uint64_t total = 0;
    for (uint32_t c = 0; c < 3; c++) total += layout.range(input(c), c).count;
    CHECK_EQ(total, count + 5);
}

static void ranks_have_the_slots_that_the_collective_gives_them() {
    const Team team{.size = 3, .rank = 1, .root = 2};
    CHECK(has_slot(Collective::all_reduce, team, input(0)));
    CHECK(has_slot(Collective::reduce_scatter, team, output(1)));
    CHECK(!has_slot(Collective::reduce_scatter, team, output(0)));
    CHECK(has_slot(Collective::all_gather, team, input(1)));
    CHECK(!has_slot(Collective::all_gather, team, input(2)));
    CHECK(!has_slot(Collective::broadcast, team, input(0)));
    CHECK(has_slot(Collective::broadcast, team, output(0)));
    CHECK(has_slot(Collective::broadcast, team, sum(0)));
    CHECK(has_slot(Collective::reduce, team, input(0)));
    CHECK(!has_slot(Collective::reduce, team, output(0)));
    CHECK(has_slot(Collective::gather, team, input(1)));
    CHECK(!has_slot(Collective::gather, team, input(2)));
    CHECK(!has_slot(Collective::gather, team, output(1)));
    CHECK(!has_slot(Collective::scatter, team, input(1)));
    CHECK(has_slot(Collective::scatter, team, output(1)));
    const Team root{.size = 3, .rank = 2, .root = 2};
    CHECK(has_slot(Collective::reduce, root, output(0)));
    CHECK(has_slot(Collective::gather, root, output(1)));
    CHECK(has_slot(Collective::scatter, root, input(1)));
    CHECK(!has_slot(Collective::scatter, root, output(1)));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(all_reduce_follows_the_contract),
        QTEST(parts_of_v_forms_lie_where_the_caller_says),
        QTEST(what_is_sent_and_received_have_counts_of_their_own),
        QTEST(trailing_chunks_may_be_empty),
        QTEST(chunks_and_segments_cover_the_tensor_once),
        QTEST(rank_sized_buffers_start_at_their_chunk),
        QTEST(blocks_may_lie_apart),
        QTEST(huge_counts_do_not_wrap),
        QTEST(ranks_have_the_slots_that_the_collective_gives_them),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
