// Tests lib/plan: the traffic on the links between racks is counted from the schedules, and decides
// the choice of an algorithm.
#include "tests/kit/plan_kit.hpp"

#include "codec/chunk.hpp"
#include "coll/algorithm.hpp"
#include "plan/step_counts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qccl;
using namespace qtest;

namespace {

// Returns racks of `hosts` hosts, each of `ranks` ranks.
std::vector<RankLocation> spots_in(uint32_t racks, uint32_t hosts, uint32_t ranks) {
    std::vector<RankLocation> spots;
    for (uint32_t host = 0; host < racks * hosts; host++)
        spots.insert(spots.end(), ranks, {.host = host, .rack = host / hosts});
    return spots;
}

// Gives each rack a link to one network.
RackLines lines_of(const std::vector<RankLocation> &spots, double byte_ns = 1) {
    RackLines lines{.parent = {0}, .byte_ns = {0}, .rack_of = {}};
    for (const RankLocation &spot : spots) {
        lines.rack_of.push_back(1 + spot.rack);
        lines.parent.resize(std::max<size_t>(lines.parent.size(), 2 + spot.rack));
        lines.byte_ns.resize(lines.parent.size(), byte_ns);
    }
    return lines;
}

// Counts on the schedules of all ranks what the busiest rack sends to or receives from others.
double most_chunks(const Algorithm &algorithm, Collective collective, const Team &team,
                   const std::vector<RankLocation> &spots) {
    std::vector<double> up(1 + spots.back().rack), down(up.size());
    for (uint32_t rank = 0; rank < team.size; rank++) {
        Team own = team;
        own.rank = rank;
        const auto author = emit(algorithm, collective, own);
        CHECK_OK(author);
        for (const Step &step : author->steps) {
            const uint32_t from = spots[rank].rack, to = spots[step.peer].rack;
            if (step.verb != Verb::send || from == to) continue;
            up[from]++;
            down[to]++;
        }
    }
    return std::max(*std::ranges::max_element(up), *std::ranges::max_element(down));
}

void check_sample(const std::vector<RankLocation> &spots, const RankTopology &places,
                  size_t most_steps) {
    const Team team{.size = places.ranks(), .root = 1, .places = &places};
    for (const Algorithm &algorithm : algorithms_for(team))
        for (const Collective collective : collectives_of(algorithm)) {
            const auto load = rack_load(algorithm, collective, team, lines_of(spots), most_steps);
            CHECK_OK(load);
            const double all = most_chunks(algorithm, collective, team, spots);
            CHECK(all > 0 || collective == Collective::send);
            // In an all-to-all that passes parts on, ranks differ more than the sample knows.
            const double close = row_of(collective).exchanges ? 0.2 : 0.02;
            CHECK(all == 0 ? *load == 0 : std::abs(*load / all - 1) < close);
        }
}

// With many ranks only some are counted; the result holds for all.
void the_sample_speaks_for_all() {
    for (const auto &[racks, hosts, ranks] :
         {std::tuple(2U, 4U, 1U), {3U, 5U, 2U}, {2U, 32U, 8U}, {7U, 9U, 8U}, {2U, 32U, 6U}}) {
        const auto spots = spots_in(racks, hosts, ranks);
        check_sample(spots, RankTopology(spots), 1 << 17);
    }
}

// A ring may begin in the middle of a rack, and other rings leave a rack at other ranks.
void ranks_where_rings_leave_a_rack_are_counted() {
    const auto spots = spots_in(2, 8, 4);
    const auto turned = [&](uint32_t by) {
        std::vector<uint32_t> ring(spots.size());
        std::iota(ring.begin(), ring.end(), 0U);
        // Clang 14 does not compile ranges::rotate.
        std::rotate(ring.begin(), ring.begin() + by, ring.end());
        std::rotate(ring.begin(), std::ranges::find(ring, 0U), ring.end());
        return ring;
    };
    std::vector<uint32_t> back = turned(0);
    std::ranges::reverse(back.begin() + 1, back.end());
    std::vector<uint32_t> other = turned(0);
    std::swap(other[31], other[17]);
    std::swap(other[32], other[44]);
    // Fewer steps than the 24,000 that the largest algorithm has here.
    for (const size_t most_steps : {size_t{8000}, size_t{4000}}) {
        check_sample(spots, RankTopology(spots, {back, other}), most_steps);
        check_sample(spots, RankTopology(spots, {other, turned(0), back}), most_steps);
    }
}

// Two sites of two racks each: a message from site to site crosses the links of both racks and of
// both sites.
void what_contains_racks_has_lines_too() {
    const auto spots = spots_in(4, 1, 1);
    const RankTopology places(spots);
    const Team team{.size = 4, .places = &places};
    RackLines lines{.parent = {0, 0, 1, 1, 0, 4, 4},
                    .byte_ns = {0, 10, 1, 1, 10, 1, 1},
                    .rack_of = {2, 3, 5, 6}};
    const auto chunks = [&](const char *algorithm) {
        const auto load = rack_load(algorithm_of(algorithm), Collective::all_gather, team, lines);
        CHECK_OK(load);
        return *load;
    };
    // Two ranks are on each side, so each side sends two values to two ranks. Along a ring three
    // values cross each link.
    CHECK_EQ(chunks("oneshot"), 4 * 10.0);
    CHECK_EQ(chunks("ring"), 3 * 10.0);
    std::ranges::fill(lines.byte_ns, 1);
    CHECK_EQ(chunks("oneshot"), 4.0);
    lines.byte_ns = {0, 0, 1, 1, 0, 1, 1};
    CHECK_EQ(chunks("oneshot"), 3.0);
}

// Between racks of four hosts, direct sends half of all, and hierarchy only as much as one host
// would.
void what_crosses_slow_lines_decides() {
    const RankTopology places(spots_in(2, 4, 1));
    Problem problem = all_reduce(16 << 20, 8, DataType::float32, "int8");
    problem.places = &places;
    PlannerInputs wide = inputs;
    wide.speeds.remote_bytes_per_ns = 1.25;
    CHECK_EQ(spec(choose(problem, wide)->algorithm), "direct");
    PlannerInputs narrow = wide;
    Settings settings;
    settings.rack_rate = 125'000'000;
    take_settings(settings, &places, narrow.links);
    const auto by = [&](const char *algorithm) {
        const auto plan = choose(problem, narrow, algorithm_of(algorithm));
        CHECK_OK(plan);
        return plan->cost;
    };
    const auto vector = static_cast<double>(encoded_bytes(problem.codec, problem.type, 16 << 20));
    CHECK(std::abs(by("direct").rack_ns / (4 * vector / 0.125) - 1) < 0.01);
    CHECK(std::abs(by("hierarchy").rack_ns / (vector / 0.125) - 1) < 0.01);
    CHECK_EQ(by("direct").wire_ns, by("direct").rack_ns);
    const auto plan = choose(problem, narrow);
    CHECK_OK(plan);
    CHECK(plan->cost.rack_ns < 1.01 * by("hierarchy").rack_ns);
    const auto text = explain_in_text(problem, narrow);
    CHECK_OK(text);
    CHECK(text->find(" GB/s for all of a host; 0.125 GB/s for all of a rack\n"
                     "  2 racks with 4 and 4 ranks\n") != std::string::npos);
    CHECK(text->find(" ms on the line of a rack;") != std::string::npos);
    // A chain crosses the link only once, independent of the number of ranks in it.
    Problem small = with_codec(problem, {});
    small.count = 16 << 10;
    const Algorithm tree = algorithm_of("tree");
    const Cost crossing = choose(small, narrow, tree)->cost,
               within = choose(small, wide, tree)->cost;
    CHECK(crossing.time_ns < within.time_ns + 1.1 * crossing.rack_ns);
    // A rack rate that was not measured is as doubtful as the rate between hosts.
    narrow.speeds.remote_rate_source = RateSource::stated;
    CHECK(by("direct").slow_network_ns > 3.9 * by("direct").time_ns);
}

void racks_that_are_one_have_no_line() {
    Settings settings;
    settings.rack_rate = 125'000'000;
    SharedLinks links;
    const RankTopology one(spots_in(1, 4, 2));
    take_settings(settings, &one, links);
    take_settings(settings, nullptr, links);
    CHECK(!links.racks);
    const RankTopology two(spots_in(2, 1, 2));
    take_settings({}, &two, links);
    CHECK(!links.racks);
    take_settings(settings, &two, links);
    CHECK(links.racks && links.racks->slowest_bytes_per_ns().value() == 0.125);
    // Known links keep their places in the tree; only their rates change.
    links.racks = std::make_shared<const RackLines>(
        RackLines{.parent = {0, 0, 1, 1}, .byte_ns = {0, 10, 1, 1}, .rack_of = {2, 2, 3, 3}});
    take_settings(settings, &two, links);
    CHECK(links.racks->parent == std::vector<uint32_t>({0, 0, 1, 1}));
    CHECK(links.racks->byte_ns == std::vector<double>({0, 8, 8, 8}));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_sample_speaks_for_all),         QTEST(ranks_where_rings_leave_a_rack_are_counted),
        QTEST(what_contains_racks_has_lines_too), QTEST(what_crosses_slow_lines_decides),
        QTEST(racks_that_are_one_have_no_line),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
