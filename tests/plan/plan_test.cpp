// Tests lib/plan: step counts of the algorithms, costs that follow from them, and choices that
// follow from costs and rules.
#include "tests/kit/plan_kit.hpp"

#include "codec/chunk.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qccl;
using namespace qtest;

static void step_counts_count_steps() {
    const auto ring = step_counts(algorithm_of("ring"), all_reduce(1000, 4));
    CHECK_OK(ring);
    CHECK_EQ(ring->busiest.sends, 6.0);
    CHECK_EQ(ring->busiest.recvs, 6.0);
    CHECK_EQ(ring->busiest.encodes, 4.0);
    CHECK_EQ(ring->busiest.decodes, 7.0); // 3 partial sums, the own result and 3 others
    CHECK_EQ(ring->busiest.decode_adds, 0.0);
    CHECK_EQ(ring->busiest.copies, 3.0);
    CHECK_EQ(ring->turns, 6U);
    const auto direct = step_counts(algorithm_of("direct"), all_reduce(1000, 4));
    CHECK_OK(direct);
    CHECK_EQ(direct->busiest.sends, 6.0);
    CHECK_EQ(direct->busiest.encodes, 4.0);
    CHECK_EQ(direct->turns, 2U);
    CHECK_EQ(direct->busiest.decodes,
             5.0); // if the rank's own part is not the first; other ranks add 3
    CHECK_EQ(direct->busiest.decode_adds, 3.0);
    // The root sends and the others receive; the busiest rank combines both counts.
    Problem broadcast = all_reduce(1000, 4);
    broadcast.collective = Collective::broadcast;
    broadcast.root = 2;
    const auto oneshot = step_counts(algorithm_of("oneshot"), broadcast);
    CHECK_OK(oneshot);
    CHECK_EQ(oneshot->busiest.sends, 3.0);
    CHECK_EQ(oneshot->busiest.recvs, 1.0);
}

static void the_busiest_rank_is_tallied() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (uint32_t P = 1; P <= 40; P++) {
                Problem problem = all_reduce(1000, P);
                problem.collective = collective;
                problem.root = row_of(collective).has_root ? P / 3 : 0;
                uint64_t sends = 0, recvs = 0;
                for (const Schedule &s :
                     make_all(ScheduleForm::author, a, collective, P, problem.root)) {
                    const auto count = [&](Verb verb) {
                        return static_cast<uint64_t>(
                            std::ranges::count(s.steps, verb, &Step::verb));
                    };
                    sends = std::max(sends, count(Verb::send));
                    recvs = std::max(recvs, count(Verb::recv));
                }
                const auto tallied = step_counts(a, problem);
                CHECK_OK(tallied);
                if (tallied->busiest.sends != static_cast<double>(sends) ||
                    tallied->busiest.recvs != static_cast<double>(recvs))
                    throw qtest::Failure{spec(a) + ", " + name(collective) + " of " +
                                         std::to_string(P) + " ranks"};
            }
}

// A tree places the ranks of a host next to each other, so it crosses hosts in as few rounds as a
// tree of one rank per host.
static void trees_cross_hosts_in_few_rounds() {
    for (const uint32_t each : {1U, 2U, 8U})
        for (const uint32_t depth : {1U, 2U, 3U, 6U}) {
            std::vector<uint32_t> hosts;
            for (uint32_t rank = 0; rank < each << depth; rank++) hosts.push_back(rank / each);
            const RankTopology places = places_on(hosts);
            Problem problem = all_reduce(1000, places.ranks());
            for (const bool is_placed : {false, true}) {
                problem.places = is_placed ? &places : nullptr;
                problem.collective = Collective::all_reduce;
                const auto up_and_down = step_counts(algorithm_of("tree"), problem);
                problem.collective = Collective::broadcast;
                const auto down = step_counts(algorithm_of("tree"), problem);
                CHECK_OK(up_and_down);
                CHECK_OK(down);
                CHECK_EQ(up_and_down->remote_rounds, is_placed ? 2.0 * depth : 0);
                CHECK_EQ(down->remote_rounds, is_placed ? 1.0 * depth : 0);
            }
        }
}

static double remote_rounds(const char *algorithm, const std::vector<uint32_t> &hosts,
                            Collective collective = Collective::all_reduce, uint32_t root = 0) {
    const RankTopology places = places_on(hosts);
    Problem problem = all_reduce(1000, places.ranks());
    problem.collective = collective;
    problem.root = root;
    problem.places = &places;
    const auto tallied = step_counts(algorithm_of(algorithm), problem);
    CHECK_OK(tallied);
    return tallied->remote_rounds;
}

// A tree starts at the root and follows the order of the ring.
static void trees_cross_hosts_by_root_and_ring() {
    CHECK_EQ(remote_rounds("tree", {0, 0, 1, 1}, Collective::broadcast, 0), 1.0);
    CHECK_EQ(remote_rounds("tree", {0, 0, 1, 1}, Collective::broadcast, 1), 2.0);
    CHECK_EQ(remote_rounds("tree", {0, 1, 0, 1}, Collective::broadcast, 0), 1.0);
    CHECK_EQ(remote_rounds("tree", {0, 1, 2, 3, 0, 1, 2, 3}), 4.0);
}

// The counts are exact for any number of ranks, although not all ranks are examined.
static void rings_cross_each_host_once() {
    for (const uint32_t hosts : {2U, 4U, 16U})
        for (const uint32_t each : {1U, 2U, 8U, 32U}) {
            std::vector<uint32_t> blocks, dealt;
            for (uint32_t rank = 0; rank < hosts * each; rank++) {
                blocks.push_back(rank / each);
                dealt.push_back(rank % hosts);
            }
            const uint32_t rounds = 2 * (hosts * each - 1), expected = (rounds + each - 1) / each;
            CHECK_EQ(remote_rounds("ring", blocks), static_cast<double>(expected));
            CHECK_EQ(remote_rounds("ring", dealt), static_cast<double>(expected));
        }
}

// There are two racks of four hosts. With one rank on each host every round crosses hosts; with
// two, the rounds within a host do not.
static void hierarchies_cross_hosts_at_every_level_that_has_some() {
    const auto of_racks = [](uint32_t ranks_per_host) {
        std::vector<RankLocation> spots;
        for (uint32_t rank = 0; rank < 8 * ranks_per_host; rank++) {
            const uint32_t host = rank / ranks_per_host;
            spots.push_back({.node = host, .host = host, .rack = host / 4});
        }
        const RankTopology places(spots);
        Problem problem = all_reduce(1000, places.ranks());
        problem.places = &places;
        const auto tallied = step_counts(algorithm_of("hierarchy"), problem);
        CHECK_OK(tallied);
        const uint32_t rounds =
            algorithm_of("hierarchy").rounds(problem.collective, problem.team());
        return std::pair(static_cast<double>(rounds), tallied->remote_rounds);
    };
    const auto [all, remote] = of_racks(1);
    CHECK_EQ(remote, all);
    const auto [more, still_far] = of_racks(2);
    CHECK(still_far >= remote && still_far < more);
}

// In a oneshot reduce-scatter the rank's own part costs an encode only with a codec.
static void what_stays_costs_nothing_without_loss() {
    for (const auto &[codec, encodes] : {std::pair("none", 3U), std::pair("int8", 4U)}) {
        Problem problem = all_reduce(1000, 4, DataType::float32, codec);
        problem.collective = Collective::reduce_scatter;
        const auto tallied = step_counts(algorithm_of("oneshot"), problem);
        CHECK_OK(tallied);
        CHECK_EQ(tallied->busiest.encodes, static_cast<double>(encodes));
    }
}

static void costs_are_the_counts_times_the_model() {
    const Problem problem = all_reduce(4 << 20, 4, DataType::float32, "int8");
    const Plan plan = chosen(problem, "ring");
    const uint64_t chunk = problem.count / 4;
    const auto bytes = static_cast<double>(chunk * 4);
    const CostModel &s = inputs.speeds;
    const CodecRate &rate = s.codec_rates.of(problem.codec);
    CHECK_EQ(plan.cost.rounds, 6U);
    const double copying = s.copy.at(static_cast<double>(vector_bytes(problem)));
    CHECK(std::abs(plan.cost.compute_ns -
                   bytes * (4.0 / rate.encode + 7.0 / rate.decode + 3 / copying)) < 1);
    const size_t segment = encoded_bytes(problem.codec, problem.type, plan.geometry.segment);
    CHECK_EQ(plan.cost.wire_bytes, 6 * plan.geometry.instances * segment);
    CHECK(std::abs(plan.cost.noise.first - 2.5) < 1e-12);
    CHECK(plan.cost.time_ns > plan.cost.compute_ns);
    CHECK(plan.cost.time_ns < plan.cost.compute_ns + plan.cost.messages_ns + plan.cost.latency_ns +
                                  plan.cost.wire_ns + 1);
    CHECK(std::abs(predicted_nmse(plan, problem.type) / unit_nmse(problem.codec, problem.type) -
                   2.5) < 1e-12);
}

// Sums of integers travel with a codec that loses none of them, and lose what one encode of blocks
// of all ranks loses, by every algorithm.
static void integers_travel_without_loss() {
    const auto codec_of_integers = [](const Plan &plan) { return spec(plan.codec.without_use()); };
    for (const auto &[bits, ranks, wanted] :
         {std::tuple("4", 2U, "fp8e4m3"), std::tuple("4", 3U, "fp16"), std::tuple("8", 16U, "fp16"),
          std::tuple("8", 17U, "none"), std::tuple("2", 16U, "fp8e4m3")}) {
        const std::string text = std::string("shared:bits=") + bits;
        for (const DataType type : {DataType::float32, DataType::bfloat16})
            for (const char *const algorithm : {"ring", "direct"}) {
                const Problem problem = all_reduce(1 << 20, ranks, type, text.c_str());
                const Plan plan = chosen(problem, algorithm);
                CHECK_EQ(codec_of_integers(plan), wanted);
                CHECK(plan.codec.loses() && plan.codec.shares_scales());
                Codec of_all = problem.codec;
                of_all.shared_block *= ranks;
                CHECK_EQ(predicted_nmse(plan, type), unit_nmse(of_all, type));
            }
    }
    const RankTopology places = places_on({0, 1});
    Problem problem = all_reduce(1 << 20, 2, DataType::float32, "shared:min=0");
    problem.places = &places;
    CHECK_EQ(codec_of_integers(chosen(problem, "ring")), "bound:abs=0.502");
    CHECK_EQ(
        codec_of_integers(chosen(all_reduce(100, 2, DataType::float32, "shared:min=1K"), "ring")),
        "none");
}

static void small_is_oneshot_and_large_is_not() {
    for (const uint32_t ranks : {2U, 4U, 8U}) {
        CHECK_EQ(chosen_name(all_reduce(1, ranks)), "oneshot");
        CHECK(chosen_name(all_reduce(64 << 20, ranks)) != "oneshot");
    }
}

// A GPU starts operations more slowly and computes faster than a CPU. It sends larger vectors in
// one exchange, and a codec pays only if bytes pass through the host.
static void gpus_have_other_sizes() {
    const auto on_gpus = [](const Problem &problem, GpuReach reach, double ranks_per_gpu = 1) {
        PlannerInputs of_gpus = inputs;
        of_gpus.limits.segment_bytes = 4 * mebibyte;
        of_gpus.limits.arena_bytes = 64 * mebibyte;
        of_gpus.usual_limits = of_gpus.limits;
        of_gpus.speeds = gpu_cost_model_by({}, ranks_per_gpu, reach);
        const auto plan = choose(problem, of_gpus, {});
        CHECK_OK(plan);
        return *plan;
    };
    const Problem medium = all_reduce(64 << 10, 4), large = all_reduce(64 << 20, 4);
    CHECK(chosen_name(medium) != "oneshot");
    CHECK_EQ(spec(on_gpus(medium, GpuReach::gpus).algorithm), "oneshot");
    CHECK(spec(on_gpus(large, GpuReach::gpus).algorithm) != "oneshot");
    const Problem coded = all_reduce(64 << 20, 4, DataType::float32, "int4");
    CHECK(on_gpus(large, GpuReach::host).cost.time_ns >
          2 * on_gpus(coded, GpuReach::host).cost.time_ns);
    CHECK(on_gpus(large, GpuReach::gpus, 4).cost.time_ns >
          on_gpus(large, GpuReach::gpus, 1).cost.time_ns);
}

// The planner takes the rank-ordered sum with one rounding, unless the caller names an algorithm.
static void lossless_narrow_floats_are_summed_by_rank() {
    for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float8e4m3})
        for (uint64_t count = 1; count < 1 << 28; count *= 8)
            for (const uint32_t ranks : {3U, 8U, 64U}) {
                CHECK(!chosen(all_reduce(count, ranks, type)).algorithm.sums_on_the_way());
                const Plan forced = chosen(all_reduce(count, ranks, type), "ring");
                CHECK(forced.algorithm.sums_on_the_way());
            }
}

static void of_equal_times_the_less_noisy_wins() {
    const Problem problem = all_reduce(16 << 20, 8, DataType::float32, "int4");
    const Plan best = chosen(problem);
    const auto candidates = find_candidates(problem, inputs);
    CHECK_OK(candidates);
    for (const Candidate &candidate : *candidates) {
        const Cost &cost = candidate.plan.cost;
        if (!candidate.refusal.empty()) continue;
        CHECK(cost.time_ns * equal_time >= best.cost.time_ns);
        if (cost.time_ns < best.cost.time_ns) CHECK(cost.noise.first >= best.cost.noise.first);
    }
}

static void too_little_travels_lossless() {
    Problem problem = all_reduce(1000, 4, DataType::float32, "int8");
    problem.codec.min_bytes = 4001;
    CHECK(chosen(problem).codec == Codec{});
    const auto text = explain_in_text(problem, inputs);
    CHECK_OK(text);
    CHECK(text->find("travels with none: smaller than the codec's 3.907 KiB") != std::string::npos);
    problem.codec.min_bytes = 4000;
    CHECK(chosen(problem).codec == codec("int8"));
    problem.collective = Collective::all_gather; // its vector is four times as large
    problem.codec.min_bytes = 4001;
    CHECK(chosen(problem).codec == codec("int8"));
}

static void somebody_may_say_what_is_sent_whole() {
    PlannerInputs said = inputs;
    for (const uint64_t limit : {uint64_t{0}, uint64_t{4000}, uint64_t{1} << 40}) {
        said.whole_up_to_bytes = limit;
        for (const uint64_t count : {1ULL, 1000ULL, 1001ULL, 64ULL << 20}) {
            const auto plan = choose(all_reduce(count, 4), said);
            CHECK_OK(plan);
            CHECK_EQ(plan->algorithm.is_one_exchange(), count * 4 <= limit);
            CHECK_OK(choose(all_reduce(count, 4), said, algorithm_of("ring")));
        }
        Problem barrier = all_reduce(0, 4);
        barrier.collective = Collective::barrier;
        CHECK_OK(choose(barrier, said));
    }
}

static void what_does_not_fit_is_refused() {
    PlannerInputs cramped = inputs;
    cramped.limits.slots = 999;
    const auto direct = choose(all_reduce(1 << 20, 1000), cramped, algorithm_of("direct"));
    CHECK(!direct);
    CHECK(std::strstr(direct.error().text, "direct: 1000 wire slots"));
    const auto any = choose(all_reduce(1 << 20, 1000), cramped);
    CHECK_OK(any);
    CHECK(any->algorithm != algorithm_of("direct"));
    Problem nobody = all_reduce(1, 0);
    CHECK(!choose(nobody, inputs));
    Problem barrier = all_reduce(0, 4);
    barrier.collective = Collective::barrier;
    CHECK(!choose(barrier, inputs, algorithm_of("ring")));
    CHECK_EQ(chosen_name(barrier), "oneshot");
}

static void every_collective_has_a_plan_for_every_size() {
    for (int c = 0; c < 5; c++)
        for (const uint32_t ranks : {1U, 2U, 3U, 17U})
            for (const uint64_t count : {0U, 1U, 1000U, 1000000U}) {
                Problem problem = all_reduce(count, ranks, DataType::float64, "int4");
                problem.collective = static_cast<Collective>(c);
                const Plan plan = chosen(problem);
                CHECK(std::isfinite(plan.cost.time_ns));
                CHECK(plan.geometry.arena_bytes <= inputs.limits.arena_bytes);
                if (ranks == 1) CHECK(plan.cost.noise.first == 0);
            }
}

// Ranks that share a core take turns in every round, so a saved round is worth more bytes.
static void ranks_that_share_a_core_take_fewer_rounds() {
    PlannerInputs alone = inputs;
    alone.speeds.eager_bytes = 32 << 10;
    PlannerInputs crowded = alone;
    crowded.speeds.ranks_per_core = 4;
    const auto largest_oneshot = [](const PlannerInputs &with) {
        uint64_t largest = 0;
        for (uint64_t count = 1; count <= 1 << 20; count *= 2) {
            const auto plan = choose(all_reduce(count, 8), with);
            CHECK_OK(plan);
            if (plan->algorithm.is_one_exchange()) largest = count;
        }
        return largest;
    };
    CHECK(largest_oneshot(crowded) > largest_oneshot(alone));
    CHECK(largest_oneshot(crowded) < 1 << 20);

    const auto text = explain_in_text(all_reduce(1, 8), crowded);
    CHECK_OK(text);
    CHECK(text->find("4 ranks share a core") != std::string::npos);
    CHECK(explain_in_text(all_reduce(1, 8), inputs)->find("share") == std::string::npos);
}

// A ring leaves each host through one rank's NIC, a hierarchy through the NICs of all ranks.
static void what_one_rank_sends_goes_by_its_own_nic() {
    std::vector<RankLocation> spots(16);
    for (uint32_t rank = 8; rank < 16; rank++) spots[rank].host = 1;
    const RankTopology places(spots);
    Problem problem = all_reduce(16 << 20, 16);
    problem.places = &places;
    PlannerInputs shared = inputs;
    shared.speeds.remote_bytes_per_ns = 8;
    PlannerInputs own = shared;
    own.speeds.remote_rank_bytes_per_ns = 1;
    const auto wire = [&](const PlannerInputs &with, const char *algorithm) {
        const auto plan = choose(problem, with, algorithm_of(algorithm));
        CHECK_OK(plan);
        return plan->cost.wire_ns;
    };
    CHECK_EQ(wire(own, "ring"), 8 * wire(shared, "ring"));
    CHECK_EQ(wire(own, "hierarchy"), wire(shared, "hierarchy"));
}

// Links of five GPUs: each has four links, one to every other GPU, or one link to a switch.
static LocalLinks links_of_five(bool is_switched) {
    LocalLinks::Kind kind{.parts = 5, .byte_ns = std::vector<double>(20, 0.01), .ways = {}};
    for (uint32_t from = 0; from < 5; from++)
        for (uint32_t to = 0; to < 5; to++) {
            auto &way = kind.ways.emplace_back();
            if (from == to) continue;
            if (is_switched)
                way = {from, 5 + to};
            else
                way = {from * 4 + (to < from ? to : to - 1)};
        }
    return {.kinds = {kind}, .kind_of = {0, 0, 0, 0, 0}, .part_of = {0, 1, 2, 3, 4}};
}

// Between the hosts of a rack a hierarchy sends partial sums losslessly, and the cost counts them
// at full size.
static void what_racks_keep_lossless_is_counted_so() {
    const RankTopology racks({{.host = 0, .rack = 0},
                              {.host = 1, .rack = 0},
                              {.host = 2, .rack = 1},
                              {.host = 3, .rack = 1}});
    Problem problem = all_reduce(2 << 20, 4, DataType::float32, "int8:min=0");
    problem.places = &racks;
    const Plan plan = chosen(problem, "hierarchy");
    CHECK(plan.inner_codec.is_lossless());
    CHECK_EQ(plan.cost.host_bytes, plan.cost.wire_bytes); // one rank on each host
    CHECK(plan.cost.time_ns > 1.5 * chosen(problem, "direct").cost.time_ns);
}

// With four rings a rank sends over four links, each of which carries a quarter of the bytes.
static void several_rings_share_the_work() {
    const RankTopology places(std::vector<RankLocation>(5),
                              {{0, 1, 2, 3, 4}, {0, 2, 4, 1, 3}, {0, 3, 1, 4, 2}, {0, 4, 3, 2, 1}});
    Problem problem = all_reduce(64 << 20, 5);
    PlannerInputs linked = inputs;
    linked.speeds = gpu_cost_model_by({}, 1, GpuReach::gpus);
    linked.links.local = std::make_shared<const LocalLinks>(links_of_five(false));
    const auto candidate = [&](const char *name) -> std::optional<Cost> {
        const auto candidates = find_candidates(problem, linked);
        CHECK_OK(candidates);
        for (const Candidate &each : *candidates)
            if (each.plan.algorithm == algorithm_of(name)) return each.plan.cost;
        return std::nullopt;
    };
    CHECK(candidate("ring") && !candidate("ring:rings=all"));
    problem.places = &places;
    const auto one = candidate("ring"), all = candidate("ring:rings=all");
    const double bytes = 2.0 * 4 / 5 * 4 * (64 << 20);
    CHECK(std::abs(one->wire_ns / (bytes * 0.01) - 1) < 1e-3);
    CHECK(std::abs(all->wire_ns / (bytes * 0.01 / 4) - 1) < 1e-3);
    CHECK(all->time_ns < one->time_ns / 2);
    CHECK_EQ(all->rounds, one->rounds);
    CHECK(std::abs(candidate("direct")->wire_ns / all->wire_ns - 1) < 1e-3);
    const auto text = explain_in_text(problem, linked);
    CHECK_OK(text);
    CHECK(text->find("rings go by 0 1 2 3 4\n  rings=all also by 0 2 4 1 3\n") !=
          std::string::npos);
    // A switch has one link to each GPU, so more rings gain nothing.
    linked.links.local = std::make_shared<const LocalLinks>(links_of_five(true));
    CHECK(std::abs(candidate("ring:rings=all")->wire_ns / candidate("ring")->wire_ns - 1) < 1e-3);
    // The caller may name rings=all even if there is no second ring.
    problem.places = nullptr;
    CHECK_EQ(spec(chosen(problem, "ring:rings=all").algorithm), "ring:rings=all");
}

// The root of a tree has the work of several ranks. Ranks that share its core must not lower the
// predicted cost.
static void a_rank_too_many_makes_no_call_faster() {
    PlannerInputs crowded = inputs;
    crowded.speeds.ranks_per_core = 1.01;
    for (const char *name : {"tree", "tree:shape=double", "direct", "ring"}) {
        const auto alone = choose(all_reduce(4 << 20, 80), inputs, algorithm_of(name)),
                   beside = choose(all_reduce(4 << 20, 80), crowded, algorithm_of(name));
        CHECK_OK(alone);
        CHECK_OK(beside);
        CHECK(beside->cost.compute_ns >= alone->cost.compute_ns);
    }
}

static void reasons_are_given() {
    const auto text = explain_in_text(all_reduce(1 << 20, 4, DataType::float16), inputs);
    CHECK_OK(text);
    CHECK(text->find("all_reduce of 1048576 half (2 MiB) on 4 ranks with none") == 0);
    CHECK(text->find("would round the sum at every rank") != std::string::npos);
    CHECK(text->find("* direct") != std::string::npos ||
          text->find("* oneshot") != std::string::npos);
    const auto forced = explain_in_text(all_reduce(1 << 20, 4), inputs, algorithm_of("ring"));
    CHECK_OK(forced);
    CHECK(forced->find("ring: it was asked for") != std::string::npos);
    CHECK(forced->find("* ring") != std::string::npos);
}

// There are two hosts with two ranks each: a ring sends one and a half vectors from each host, a
// hierarchy one.
static void hosts_are_taken_into_account() {
    const RankTopology places = places_on({0, 1, 0, 1});
    for (const char *codec : {"none", "int4"}) {
        Problem problem = all_reduce(16 << 20, 4, DataType::float32, codec);
        problem.places = &places;
        const Plan hierarchy = chosen(problem, "hierarchy"), ring = chosen(problem, "ring");
        const auto bytes = static_cast<double>(hierarchy.cost.host_bytes);
        CHECK(std::abs(static_cast<double>(ring.cost.host_bytes) / bytes - 1.5) < 1e-3);
        CHECK(std::abs(bytes / static_cast<double>(
                                   encoded_bytes(problem.codec, problem.type, problem.count)) -
                       1) < 0.01);
        CHECK(hierarchy.cost.time_ns * 1.4 < ring.cost.time_ns);
        CHECK(hierarchy.cost.noise.first < ring.cost.noise.first || ring.cost.noise.first == 0);
        CHECK(chosen(problem).cost.host_bytes == hierarchy.cost.host_bytes);
    }
    const auto text = explain_in_text(all_reduce(1000, 4), inputs);
    CHECK_OK(text);
    CHECK(text->find("all ranks are on one host") != std::string::npos);
    Problem problem = all_reduce(1000, 4);
    problem.places = &places;
    const auto of_hosts = explain_in_text(problem, inputs);
    CHECK_OK(of_hosts);
    CHECK(of_hosts->find("2 hosts with 2 and 2 ranks; between them 5 us, and 0.125 GB/s") !=
          std::string::npos);
    CHECK(of_hosts->find("rings go by 0 2 1 3\n") != std::string::npos);
    CHECK(of_hosts->find("below the outermost tier") == std::string::npos);
    const auto says = [&](const char *algorithm, const char *sentence) {
        problem.codec = *parse_codec("int4");
        const auto said = explain_in_text(problem, inputs, algorithm_of(algorithm));
        CHECK_OK(said);
        return said->find(sentence) != std::string::npos;
    };
    CHECK(says("hierarchy", "; none below the outermost tier; NMSE"));
    CHECK(says("hierarchy:inner_codec=int8", "; int8 below the outermost tier; NMSE"));
    CHECK(of_hosts->find("leave a host") != std::string::npos);
}

// There are four hosts with one rank each: the algorithms differ only in error and in the number of
// streams between hosts.
static void of_equals_those_with_fewer_streams_are_chosen() {
    const RankTopology places = places_on({0, 1, 2, 3});
    for (const auto &[codec, algorithm, streams] :
         {std::tuple("none", "ring", 1), std::tuple("int8", "direct", 3)}) {
        Problem problem = all_reduce(64 << 20, 4, DataType::float32, codec);
        problem.places = &places;
        CHECK_EQ(spec(chosen(problem).algorithm), std::string(algorithm));
        CHECK_EQ(chosen(problem).cost.remote_peers, static_cast<uint64_t>(streams));
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(step_counts_count_steps),
        QTEST(the_busiest_rank_is_tallied),
        QTEST(trees_cross_hosts_in_few_rounds),
        QTEST(trees_cross_hosts_by_root_and_ring),
        QTEST(rings_cross_each_host_once),
        QTEST(hierarchies_cross_hosts_at_every_level_that_has_some),
        QTEST(what_stays_costs_nothing_without_loss),
        QTEST(costs_are_the_counts_times_the_model),
        QTEST(integers_travel_without_loss),
        QTEST(small_is_oneshot_and_large_is_not),
        QTEST(gpus_have_other_sizes),
        QTEST(lossless_narrow_floats_are_summed_by_rank),
        QTEST(of_equal_times_the_less_noisy_wins),
        QTEST(too_little_travels_lossless),
        QTEST(somebody_may_say_what_is_sent_whole),
        QTEST(what_does_not_fit_is_refused),
        QTEST(every_collective_has_a_plan_for_every_size),
        QTEST(ranks_that_share_a_core_take_fewer_rounds),
        QTEST(what_one_rank_sends_goes_by_its_own_nic),
        QTEST(what_racks_keep_lossless_is_counted_so),
        QTEST(several_rings_share_the_work),
        QTEST(a_rank_too_many_makes_no_call_faster),
        QTEST(reasons_are_given),
        QTEST(hosts_are_taken_into_account),
        QTEST(of_equals_those_with_fewer_streams_are_chosen),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
