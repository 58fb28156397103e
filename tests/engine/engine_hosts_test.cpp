// Tests lib/engine between hosts: ranks on several hosts get the same bytes as ranks on one host,
// in every placement, while messages above the network's eager limit wait at the sender.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/sample.hpp"
#include "tests/transport/faulty_transport.hpp"

#include "engine/compile/program.hpp"
#include "memory/large_calls.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <optional>

using namespace qccl;
using namespace qtest;

namespace {

// The host of each rank. The last placement alternates, as launchers do that place ranks round
// robin.
const std::vector<uint32_t> placements[] = {
    {0, 1},       {0, 0, 1},       {0, 1, 1},          {0, 1, 2},
    {0, 0, 1, 1}, {0, 1, 2, 3, 4}, {0, 0, 0, 1, 1, 2}, {0, 1, 0, 1, 0},
};

// Uses small segments in several lanes. Some messages stay below the network's eager limit.
Chunking cut_of(const TransportOptions &options, bool is_one_exchange) {
    return {.outbox_bytes = options.outbox_bytes,
            .slots = options.slots,
            .inbox_bytes = options.outbox_bytes,
            .segment_bytes = size_t{16} << 10,
            .eager_slot_bytes = is_one_exchange ? options.eager_slot_bytes : 0};
}

void check_call(Cluster &cluster, TwinCall call, const Chunking &cut, bool in_place) {
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const auto outputs = cluster.run_all(call, {cut}, inputs, in_place);
    CHECK(outputs[0] == slow_twin(call, inputs));
}

constexpr const char *codecs[] = {"none",
                                  "int8",
                                  "int8:owner=exact",
                                  "int4:round=stochastic",
                                  "lossless",
                                  "exact",
                                  "bound:abs=0.01",
                                  "bound:rel=0.01,entropy=1",
                                  "int4:entropy=1",
                                  "int4:round=dither,entropy=1",
                                  "minmax:bits=6,bucket=all,entropy=1",
                                  "bf16:entropy=1"};
constexpr uint64_t counts[] = {0, 3, 100003};

// Calls visit(placement, algorithm, call) for the table's cases, without their ranks.
template <class Visitor> void each_case(Visitor visit) {
    for (size_t placement = 0; placement < std::size(placements); placement++)
        for (const Algorithm &algorithm : algorithms())
            for (const Collective collective : value_collectives)
                for (const char *codec : codecs)
                    for (const uint64_t count : counts) {
                        const TwinCall call{.collective = collective,
                                            .algorithm = spec(algorithm),
                                            .codec = *parse_codec(codec),
                                            .count = count,
                                            .seed = 7};
                        if (call.codec.sums_exactly && algorithm.sums_on_the_way()) continue;
                        if (algorithm.has(collective) &&
                            check_codec(call.codec, collective, call.type, call.op))
                            visit(placement, algorithm, call);
                    }
}

// Of the table every algorithm runs every collective in every placement, every codec and every
// count.
ChosenCases choose_cases() {
    PairSample<4> sample;
    each_case([&](size_t placement, const Algorithm &, const TwinCall &call) {
        sample.offer(call.count > 1000, {placement, form_of(call),
                                         PairSample<4>::value(spec(call.codec)), call.count});
    });
    return sample.choose();
}

void hosts_make_no_difference() {
    ChosenCases cases = choose_cases();
    std::optional<Cluster> cluster;
    size_t of = std::size(placements);
    each_case([&](size_t placement, const Algorithm &algorithm, TwinCall call) {
        if (!cases.takes()) return;
        const TransportOptions options = on_hosts(placements[placement]);
        call.ranks = static_cast<uint32_t>(placements[placement].size());
        if (row_of(call.collective).has_root) call.root = call.ranks - 1;
        if (of != placement) cluster.emplace(call.ranks, options);
        of = placement;
        check_call(*cluster, call, cut_of(options, algorithm.is_one_exchange()),
                   cases.taken % 2 == 0);
    });
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(cases.taken),
           static_cast<unsigned long long>(cases.cases));
}

// A program uses fewer lanes if the inbox cannot hold the messages of all lanes.
void a_small_inbox_costs_lanes() {
    const TransportOptions options = on_hosts({0, 1, 2, 3});
    Chunking cut = cut_of(options, false);
    const TwinCall call{
        .algorithm = "direct", .codec = *parse_codec("none"), .count = 500000, .ranks = 4};
    const auto roomy = compile_for(call, 0, cut);
    CHECK_OK(roomy);
    CHECK_EQ(roomy->geometry.lanes, 4U);
    const size_t lane_bytes = roomy->recv_buffers() * roomy->geometry.wire_bytes;
    cut.inbox_bytes = 2 * lane_bytes;
    const auto small = compile_for(call, 0, cut);
    CHECK_OK(small);
    CHECK_EQ(small->geometry.lanes, 2U);
    CHECK_EQ(small->geometry.segment, roomy->geometry.segment);
    cut.inbox_bytes = lane_bytes - 1;
    const auto large = compile_for(call, 0, cut);
    CHECK_OK(large);
    CHECK_EQ(large->geometry.lanes, 1U);
    CHECK(large->overflows && !small->overflows);

    Cluster cluster(4, options);
    for (const size_t bytes : {lane_bytes, lane_bytes - 1, size_t{100}}) {
        cut.inbox_bytes = bytes;
        check_call(cluster, call, cut, false);
    }
}

// network_ns counts only the network's share of waiting and transfer, and is 0 on one host.
void the_networks_share_of_the_time_is_known() {
    const TwinCall call{
        .algorithm = "ring", .codec = *parse_codec("int8"), .count = 500000, .ranks = 2};
    for (const bool are_apart : {false, true}) {
        const TransportOptions options = are_apart ? on_hosts({0, 1}) : Cluster::test_options();
        Cluster cluster(2, options);
        for (int i = 0; i < 10; i++) check_call(cluster, call, cut_of(options, false), false);
        const Counts seen = cluster.rank(0).engine->counts();
        CHECK_EQ(seen.network_ns > 0, are_apart);
        CHECK(seen.network_ns < seen.wait_ns + seen.wire_ns);
    }
}

// The memory of a large call stays for the next one, and goes after some calls that do not need it,
// also if these are on the fast path.
void memory_of_large_calls_is_kept_for_some_calls() {
    constexpr size_t always_kept = size_t{16} << 20;
    const TransportOptions options = on_hosts({0, 1});
    TwinCall large{.algorithm = "direct",
                   .codec = *parse_codec("bound:rel=0.01,entropy=1"),
                   .count = 9 << 20, // chunks of 18 MiB
                   .ranks = 2};
    const auto inputs = make_inputs(large, golden::Kind::few_specials);
    for (const char *algorithm : {"oneshot", "direct"}) {
        const bool is_one_exchange = std::string_view(algorithm) == "oneshot";
        const TwinCall small{
            .algorithm = algorithm, .codec = *parse_codec("none"), .count = 3, .ranks = 2};
        CHECK_EQ(compile_for(small, 0, cut_of(options, is_one_exchange))->fast_path.has_value(),
                 is_one_exchange);
        Cluster cluster(2, options);
        cluster.run_all(large, {cut_of(options, false)}, inputs, false);
        const Engine &engine = *cluster.rank(0).engine;
        const size_t kept = engine.kept_bytes();
        CHECK(kept > always_kept);
        for (uint32_t call = 1; call < large_calls_kept; call++)
            check_call(cluster, small, cut_of(options, is_one_exchange), false);
        CHECK(engine.kept_bytes() >= kept);
        check_call(cluster, small, cut_of(options, is_one_exchange), false);
        CHECK(engine.kept_bytes() < always_kept);
    }
}

// A scatter_v as one rank knows it. Rank 2 has many values for rank 1, one for itself, and none for
// rank 0.
Program scatter_v_on(uint32_t rank, const Chunking &cut) {
    const std::array<uint64_t, 3> lengths{0, 200000, 1};
    VFormParts parts{.v_form = scatter_v, .sent = {}, .received = {}};
    parts.sent.resize(lengths.size());
    parts.received.resize(lengths.size());
    for (uint64_t to = 0, start = 0; rank == 2 && to < lengths.size(); start += lengths[to++])
        parts.sent[to] = {.start = start, .count = lengths[to]};
    parts.received[rank] = {.start = 0, .count = lengths[rank]};
    const Team team{.size = static_cast<uint32_t>(lengths.size()), .rank = rank, .root = 2};
    const auto schedule = emit(*parse_algorithm("direct"), scatter_v, team);
    CHECK_OK(schedule);
    const Work work{.collective = Collective::scatter,
                    .codec = {},
                    .inner_codec = {},
                    .count = 0,
                    .parts = std::make_shared<const VFormParts>(parts),
                    .team = team,
                    .algorithm = "direct"};
    auto program = compile(*schedule, work, cut);
    CHECK_OK(program);
    return std::move(*program);
}

// A rank that met others would wait for ranks that do not: these do not tell it of the call.
void ranks_meet_only_if_all_do() {
    const TransportOptions options = on_hosts({0, 1, 2});
    std::array<std::atomic<int>, 3> meetings{};
    Cluster cluster(3, options, [&](uint32_t rank, std::unique_ptr<Transport> transport) {
        const auto count = [&meetings, rank](const char *operation) -> Done {
            if (std::string_view(operation) == "meet") meetings[rank]++;
            return {};
        };
        return std::make_unique<FaultyTransport>(std::move(transport), Faults{.before = count});
    });
    cluster.on_each([&](uint32_t rank) {
        const Program program = scatter_v_on(rank, cut_of(options, false));
        std::vector<float> send(200001, static_cast<float>(rank)), recv(200001);
        CHECK_OK(cluster.rank(rank).engine->run(
            program,
            {.send = send.data(), .recv = recv.data(), .number = 1, .timeout = cluster.timeout}));
        CHECK_EQ(recv[0], rank == 0 ? 0.F : 2.F);
    });
    CHECK_EQ(meetings[0], meetings[1]);
    CHECK_EQ(meetings[0], meetings[2]);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(hosts_make_no_difference),
        QTEST(a_small_inbox_costs_lanes),
        QTEST(ranks_meet_only_if_all_do),
        QTEST(memory_of_large_calls_is_kept_for_some_calls),
        QTEST(the_networks_share_of_the_time_is_known),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
