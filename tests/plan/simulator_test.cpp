// Tests lib/plan/simulator/simulator: times that can be computed by hand, equal results whether
// ranks that do the same are simulated once or each by itself, and thousands of ranks.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "tests/kit/plan_kit.hpp"

#include "codec/chunk.hpp"
#include "plan/simulator/simulator.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>

using namespace qccl;
using namespace qtest;

namespace {

// Links and latencies have round figures; nothing else takes time.
constexpr TieredRates plain_rates{
    .local = {}, .eager = {}, .remote = {{.latency_ns = 100}, {.latency_ns = 100}}, .line_rate = 2};
constexpr ComputeSpeeds no_computing{
    .copy = 1e30, .outer = {1e30, 1e30, 1e30}, .inner = {1e30, 1e30, 1e30}};

struct Setup {
    Collective collective = Collective::all_reduce;
    const char *algorithm = "ring";
    std::vector<uint32_t> hosts{}; // by rank
    uint64_t count = 1024;         // as in the C API
    const char *with = "none";
    TieredRates rates = plain_rates;
    ComputeSpeeds speeds = no_computing;
    EagerSlots eager{};
    ShapeLimits limits{
        .arena_bytes = 16 * mebibyte, .slots = 1U << 20, .segment_bytes = mebibyte, .max_lanes = 4};
};

Simulation simulate_in(const Setup &setup, const SimulationOptions &options = {}) {
    const RankTopology places = places_on(setup.hosts);
    const SimulatedCall call{.problem = {.collective = setup.collective,
                                         .count = setup.count,
                                         .ranks = places.ranks(),
                                         .root = 0,
                                         .type = DataType::float32,
                                         .codec = codec(setup.with),
                                         .places = &places},
                             .algorithm = algorithm_of(setup.algorithm),
                             .limits = setup.limits,
                             .speeds = setup.speeds,
                             .eager = setup.eager};
    const auto fabric = make_tiered_fabric(places.ranks(), &places, setup.rates);
    const auto done = simulate(call, *fabric, options);
    CHECK_OK(done);
    return *done;
}

std::vector<uint32_t> hosts_of(uint32_t ranks, uint32_t each = 1) {
    std::vector<uint32_t> hosts;
    for (uint32_t rank = 0; rank < ranks; rank++) hosts.push_back(rank / each);
    return hosts;
}

// Returns the time that a message of `floats` floats takes on the line of a host.
double line_ns(uint64_t floats) {
    return static_cast<double>(floats * 4 + header_bytes) / plain_rates.line_rate;
}

void check_near(double a, double b) {
    if (std::abs(a - b) <= 1e-9 * std::max(a, b)) return;
    CHECK_EQ(a, b);
}

} // namespace

static void a_message_takes_its_bytes_and_the_latency() {
    const auto s = simulate_in({.collective = Collective::broadcast, .hosts = hosts_of(2)});
    check_near(s.time_ns, line_ns(1024) + 100);
    check_near(s.critical.wire_ns, line_ns(1024));
    check_near(s.critical.latency_ns, 100);
    check_near(s.finish_ns[1], s.time_ns);
    CHECK_EQ(s.messages, 1U);
    CHECK_EQ(s.wire_bytes, 1024 * 4 + header_bytes);
    CHECK_EQ(s.links[0].name, "host 0's line up");
    check_near(s.links[0].busy_ns, line_ns(1024));
}

static void messages_that_share_a_line_take_twice_as_long() {
    const Setup setup{
        .collective = Collective::broadcast, .algorithm = "oneshot", .hosts = hosts_of(3)};
    check_near(simulate_in(setup).time_ns, 2 * line_ns(1024) + 100);
    // Two ranks of one host also receive through one line.
    Setup both = setup;
    both.hosts = {0, 1, 1};
    check_near(simulate_in(both).time_ns, 2 * line_ns(1024) + 100);
}

static void a_ring_takes_its_rounds() {
    for (const uint32_t P : {2U, 3U, 8U, 64U}) {
        Setup setup{.hosts = hosts_of(P), .count = 1024 * P};
        check_near(simulate_in(setup).time_ns, 2 * (P - 1) * (line_ns(1024) + 100));
        setup.collective = Collective::all_gather;
        setup.count = 1024;
        check_near(simulate_in(setup).time_ns, (P - 1) * (line_ns(1024) + 100));
    }
}

static void segments_follow_each_other_down_a_chain() {
    const uint32_t P = 5, segments = 16;
    Setup setup{
        .collective = Collective::broadcast, .hosts = hosts_of(P), .count = 1024 * segments};
    setup.limits.segment_bytes = 4096;
    const auto s = simulate_in(setup);
    CHECK_EQ(s.geometry.instances, segments);
    check_near(s.time_ns, (P - 1) * (line_ns(1024) + 100) + (segments - 1) * line_ns(1024));
}

// A sender with one lane has one slot, and waits until the bytes in it are gone.
static void a_slot_is_waited_for() {
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(2), .count = 3072};
    setup.limits.segment_bytes = 4096;
    setup.speeds.outer.encode = 4;
    const double encode = 4096 / 4.0;
    const double coded = simulate_in(setup).time_ns;
    check_near(coded, encode + 3 * line_ns(1024) + 100);
    setup.limits.max_lanes = 1;
    check_near(simulate_in(setup).time_ns, 3 * (encode + line_ns(1024)) + 100);
}

// The inboxes of some ranks hold fewer segments, so that other ranks are several segments ahead of
// them.
static void ranks_have_lanes_of_their_own() {
    for (const char *algorithm : {"tree", "tree:shape=double", "hierarchy"})
        simulate_in({.algorithm = algorithm,
                     .hosts = hosts_of(4, 2),
                     .count = 1 << 20,
                     .limits = {.arena_bytes = mebibyte,
                                .slots = 1U << 20,
                                .segment_bytes = 384 << 10,
                                .max_lanes = 16}});
}

// Peers read the input of the root in place, and the root copies it into its own output. Each other
// rank stores its result.
static void what_peers_read_in_place_is_not_copied() {
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(2)};
    setup.speeds.outer = {2, 1e30, 1e30};
    setup.count = 4 << 10;
    check_near(simulate_in(setup).time_ns, line_ns(setup.count) + 100);
    setup.count--; // below 16 KiB
    const auto copied = simulate_in(setup);
    check_near(copied.time_ns,
               static_cast<double>(setup.count) * 4 / 2 + line_ns(setup.count) + 100);
}

static void ranks_take_turns_on_a_core() {
    Setup setup{.collective = Collective::all_gather, .hosts = {0, 0, 0, 0}};
    setup.speeds = {.copy = 2, .outer = {2, 3, 4}, .inner = {2, 3, 4}};
    const double alone = simulate_in(setup).time_ns;
    setup.rates.cores = 2;
    check_near(simulate_in(setup).time_ns, 2 * alone);
    setup.rates.cores = 1;
    const auto s = simulate_in(setup);
    check_near(s.time_ns, 4 * alone);
    CHECK_EQ(s.links[0].name, "host 0's cores");
    check_near(s.links[0].busy_ns, s.time_ns);
}

static void messages_take_time_of_both_ends() {
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(2)};
    setup.rates.remote.alone.message_ns = 7;
    const auto s = simulate_in(setup);
    check_near(s.time_ns, line_ns(1024) + 100 + 14);
    check_near(s.critical.handling_ns, 14);
}

// The root of a chain runs ahead, so that each of several calls takes the time of the busiest rank.
static void calls_in_a_row_overlap() {
    const uint32_t P = 4;
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(P)};
    const double hop = line_ns(1024) + 100;
    check_near(simulate_in(setup).time_ns, (P - 1) * hop);
    const auto s = simulate_in(setup, {.calls = 3, .lead_in = 2});
    check_near(s.time_ns, line_ns(1024));
    check_near(s.critical.sum(), s.time_ns);
    check_near(s.finish_ns[P - 1], (P - 1) * hop + 4 * line_ns(1024));
    CHECK_EQ(s.messages, P - 1);
    CHECK_EQ(s.wire_bytes, 1024 * 4 + header_bytes);
    // In an all-reduce, every rank waits for every other, so calls do not overlap.
    setup.collective = Collective::all_reduce;
    setup.algorithm = "oneshot";
    const double alone = simulate_in(setup).time_ns;
    check_near(simulate_in(setup, {.calls = 3, .lead_in = 2}).time_ns, alone);
    setup.speeds.call_ns = 40;
    check_near(simulate_in(setup, {.calls = 5}).time_ns, alone + 40);
}

// A rank begins its next call when no peer reads its buffers any more.
static void a_call_ends_when_nobody_reads_its_buffers() {
    Setup setup{.collective = Collective::broadcast, .hosts = {0, 0}, .count = 4 << 10};
    setup.speeds.outer.decode = 4;
    const double decoding = static_cast<double>(setup.count) * 4 / 4;
    check_near(simulate_in(setup).finish_ns[0], 2 * decoding); // its own copy, then the reader's
    setup.count--; // below 16 KiB: copied into an outbox
    CHECK(simulate_in(setup).finish_ns[0] < 1.01 * decoding);
}

static void a_burst_passes_at_once() {
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(2)};
    const double bytes = 1024 * 4 + header_bytes;
    setup.rates.line_burst_bytes = 3 * bytes;
    auto s = simulate_in(setup);
    check_near(s.time_ns, 100);
    CHECK(s.burst_share > 0.66);
    s = simulate_in(setup, {.burst_share = 0.0});
    check_near(s.time_ns, line_ns(1024) + 100);
    // The burst holds three messages; the line cannot refill it in time for more.
    s = simulate_in(setup, {.calls = 4, .lead_in = 4});
    check_near(s.time_ns, line_ns(1024));
    CHECK(s.burst_share < 0.1);
}

static void small_calls_go_through_eager_slots() {
    Setup setup{.algorithm = "oneshot", .hosts = {0, 0}, .count = 64};
    setup.rates.local = {{.latency_ns = 500}, {}};
    setup.rates.eager = {{.latency_ns = 80}, {}};
    setup.eager = {.bytes = 4096};
    check_near(simulate_in(setup).time_ns, 80);
    setup.count = 2048; // does not fit
    check_near(simulate_in(setup).time_ns, 500);
    setup.count = 64;
    setup.algorithm = "ring"; // has two exchanges
    check_near(simulate_in(setup).time_ns, 1000);
}

// The network carries one piece while the processors handle others.
static void large_messages_go_piece_by_piece() {
    Setup setup{.collective = Collective::broadcast,
                .hosts = hosts_of(2),
                .count = (128 << 10) - header_bytes / 4};
    setup.rates.remote.alone.byte_ns = 0.125;
    const double all = static_cast<double>(setup.count) * 4 + header_bytes, piece = 128 << 10;
    CHECK_EQ(all, 4 * piece);
    check_near(simulate_in(setup).time_ns,
               piece * 0.125 + all / plain_rates.line_rate + 100 + piece * 0.125);
    setup.rates.line_rate = 1e6; // now the sender's processor takes longest
    const double time = simulate_in(setup).time_ns;
    CHECK(time > all * 0.125 + 100);
    CHECK(time < all * 0.125 + 200 + piece * 0.125);
    setup.speeds.network_byte_share = 0.5;
    CHECK(simulate_in(setup).time_ns < 0.6 * time);
}

static void messages_that_are_not_eager_wait_for_the_receiver() {
    Setup setup{.collective = Collective::broadcast, .hosts = hosts_of(2)};
    setup.rates.rendezvous_ns = 33;
    setup.rates.remote_eager_bytes = 1024 * 4 + header_bytes;
    check_near(simulate_in(setup).time_ns, line_ns(1024) + 100);
    setup.rates.remote_eager_bytes--;
    check_near(simulate_in(setup).time_ns, line_ns(1024) + 133);
}

// The tiles of a sum stay in the cache; only reads and writes of the call's memory count.
static void memory_is_passed_once_for_a_run_of_steps() {
    Setup setup{.collective = Collective::broadcast, .hosts = {0, 0}, .count = 4 << 10};
    setup.speeds.memory = 8;
    const double pass = static_cast<double>(setup.count) * 4 / 8;
    check_near(simulate_in(setup).time_ns, 4 * pass); // both ranks read the data and store it
    setup.with = "int8";
    check_near(simulate_in(setup).time_ns, 3 * pass); // encoded values take little memory
    setup.collective = Collective::reduce_scatter;
    setup.algorithm = "direct";
    setup.with = "none";
    setup.count /= 2;
    check_near(simulate_in(setup).time_ns, 3 * pass / 2); // two vectors are read and one is stored
}

// The results are equal, except for rounding, whether ranks that do the same are simulated once or
// each by itself.
static void merging_changes_nothing() {
    const std::vector<std::vector<uint32_t>> placements{
        hosts_of(8), hosts_of(16, 4), {0, 0, 0, 1, 1, 2}, {0, 1, 2, 0, 1, 2}, {0, 0, 0, 0}};
    const CostModel usual;
    uint32_t merged = 0;
    for (const auto &hosts : placements)
        for (const Algorithm &algorithm : algorithms())
            for (const Collective collective : collectives_of(algorithm))
                for (const double cores : {0.0, 2.0}) {
                    if (algorithm.name() == "hierarchy" && hosts[3] == 0 && hosts.size() == 4)
                        continue;
                    const std::string name = spec(algorithm);
                    Setup setup{.collective = collective,
                                .algorithm = name.c_str(),
                                .hosts = hosts,
                                .count = 1 << 18,
                                .with = "int8",
                                .rates = {.local = usual.local,
                                          .eager = usual.eager,
                                          .remote = usual.remote,
                                          .rank_rate = 9,
                                          .cores = cores},
                                .speeds = {.copy = 11,
                                           .outer = {3, 5, 4},
                                           .inner = {4, 6, 5},
                                           .memory = 20,
                                           .call_ns = 40,
                                           .chunk_ns = 9}};
                    setup.limits.segment_bytes = 32 << 10;
                    const auto each = simulate_in(setup, {.merging = Merging::none});
                    const auto once = simulate_in(setup, {.merging = Merging::alike});
                    const auto local = simulate_in(setup, {.merging = Merging::similar});
                    for (uint32_t rank = 0; rank < hosts.size(); rank++)
                        check_near(once.finish_ns[rank], each.finish_ns[rank]);
                    const double share = algorithm.name() == "halving" ? 0.3 : 0.07;
                    CHECK(std::abs(local.time_ns - each.time_ns) < share * each.time_ns);
                    CHECK_EQ(once.messages, each.messages);
                    CHECK_EQ(local.messages, each.messages);
                    CHECK_EQ(each.classes, hosts.size());
                    check_near(each.critical.sum(), each.time_ns);
                    check_near(local.critical.sum(), local.time_ns);
                    merged += once.classes < each.classes;
                }
    CHECK(merged > 20);
}

static void spans_fill_each_ranks_time() {
    Setup setup{.algorithm = "tree:shape=double",
                .hosts = hosts_of(6, 2),
                .count = 1 << 16,
                .with = "int4",
                .rates = {},
                .speeds = {}};
    setup.limits.segment_bytes = 64 << 10;
    std::vector<double> until(6), wire(6);
    const auto s =
        simulate_in(setup, {.merging = Merging::none, .trace = [&](const SimulatedSpan &span) {
                                if (span.kind == SimulatedSpan::Kind::wire) {
                                    wire[span.rank] += span.end_ns - span.begin_ns;
                                    return;
                                }
                                check_near(span.begin_ns, until[span.rank]);
                                until[span.rank] = span.end_ns;
                            }});
    for (uint32_t rank = 0; rank < 6; rank++) {
        check_near(until[rank], s.finish_ns[rank]);
        CHECK(wire[rank] > 0);
    }
}

static void runs_repeat_to_the_bit() {
    const Setup setup{.algorithm = "hierarchy",
                      .hosts = {0, 0, 0, 1, 1, 2, 2, 2, 2},
                      .count = 1 << 16,
                      .with = "int8",
                      .rates = {.cores = 2},
                      .speeds = {}};
    CHECK(simulate_in(setup).finish_ns == simulate_in(setup).finish_ns);
}

static void thousands_of_ranks_are_simulated() {
    for (const auto &[algorithm, ranks] : {std::pair("tree:shape=double", 4096U), {"ring", 1024}}) {
        const auto begin = std::chrono::steady_clock::now();
        const auto s = simulate_in({.algorithm = algorithm,
                                    .hosts = hosts_of(ranks, 8),
                                    .count = 1 << 22,
                                    .rates = {},
                                    .speeds = {}});
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        std::printf("%s of %u ranks: %u classes, %.1f s\n", algorithm, ranks, s.classes,
                    took.count());
        CHECK_EQ(s.finish_ns.size(), size_t{ranks});
        CHECK(s.time_ns > 0);
    }
}

static void a_fabric_of_other_ranks_is_refused() {
    const auto fabric = make_tiered_fabric(3, nullptr, {});
    const SimulatedCall call{.problem = all_reduce(100, 4),
                             .algorithm = algorithm_of("ring"),
                             .limits = inputs.limits,
                             .speeds = {}};
    const auto done = simulate(call, *fabric);
    CHECK(!done);
    CHECK_EQ(std::string(done.error().text), "the fabric has 3 ranks, and the call has 4");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_message_takes_its_bytes_and_the_latency),
        QTEST(messages_that_share_a_line_take_twice_as_long),
        QTEST(a_ring_takes_its_rounds),
        QTEST(segments_follow_each_other_down_a_chain),
        QTEST(a_slot_is_waited_for),
        QTEST(ranks_have_lanes_of_their_own),
        QTEST(what_peers_read_in_place_is_not_copied),
        QTEST(ranks_take_turns_on_a_core),
        QTEST(messages_take_time_of_both_ends),
        QTEST(calls_in_a_row_overlap),
        QTEST(a_call_ends_when_nobody_reads_its_buffers),
        QTEST(a_burst_passes_at_once),
        QTEST(small_calls_go_through_eager_slots),
        QTEST(large_messages_go_piece_by_piece),
        QTEST(messages_that_are_not_eager_wait_for_the_receiver),
        QTEST(memory_is_passed_once_for_a_run_of_steps),
        QTEST(merging_changes_nothing),
        QTEST(spans_fill_each_ranks_time),
        QTEST(runs_repeat_to_the_bit),
        QTEST(thousands_of_ranks_are_simulated),
        QTEST(a_fabric_of_other_ranks_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
