// Tests lib/engine/run/call_in_flight: a call that its thread only moves on ends with the bytes of
// any other call, on one host and between hosts, where nobody else moves its messages; and it ends
// no earlier than its messages have left.
#include "tests/kit/engine_ranks.hpp"
#include "tests/transport/faulty_transport.hpp"

#include "engine/run/call_in_flight.hpp"

#include <chrono>

using namespace qccl;
using namespace qtest;

namespace {

// Small segments: messages below and above the network's eager limit, and several for each peer.
Chunking small_cut() {
    const TransportOptions options = Cluster::test_options();
    return {.outbox_bytes = options.outbox_bytes,
            .slots = options.slots,
            .inbox_bytes = options.outbox_bytes,
            .segment_bytes = size_t{16} << 10,
            .eager_slot_bytes = 0};
}

Bytes move_to_the_end(Engine &engine, const Program &program, const Bytes &input) {
    Bytes result(program.recv_bytes);
    const Call call{.send = input.data(),
                    .recv = result.data(),
                    .number = 1,
                    .timeout = std::chrono::seconds(20)};
    const auto flight = CallInFlight::begin(engine, program, call);
    CHECK_OK(flight);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!(*flight)->has_ended()) {
        CHECK(std::chrono::steady_clock::now() < deadline);
        CHECK_OK((*flight)->move_on());
    }
    return result;
}

void check_moves(Cluster &cluster, const char *algorithm, const char *codec, uint64_t count) {
    const TwinCall call{.algorithm = algorithm,
                        .codec = *parse_codec(codec),
                        .count = count,
                        .ranks = cluster.size()};
    const auto inputs = make_inputs(call, golden::Kind::spread);
    const auto expected = slow_twin(call, inputs);
    cluster.on_each([&](uint32_t rank) {
        const auto program = compile_for(call, rank, small_cut());
        CHECK_OK(program);
        CHECK(move_to_the_end(*cluster.rank(rank).engine, *program, inputs[rank]) ==
              expected[rank]);
    });
}

void a_call_moves_to_its_end() {
    const std::vector<uint32_t> placements[] = {{0, 0}, {0, 1}, {0, 1, 1}, {0, 1, 2, 3}};
    for (const auto &hosts : placements)
        for (const char *const algorithm : {"direct", "ring"})
            for (const uint64_t count : {uint64_t{300}, uint64_t{100003}}) {
                Cluster cluster(static_cast<uint32_t>(hosts.size()), on_hosts(hosts));
                check_moves(cluster, algorithm, "int8", count);
            }
}

// Messages to other hosts leave late, as if a link were full.
void a_call_ends_when_its_messages_have_left() {
    uint32_t asked = 0;
    const auto leave_late = [&](uint32_t rank, std::unique_ptr<Transport> transport) {
        Faults faults;
        if (rank == 0) faults.keeps_messages = [&] { return ++asked < 4; };
        return std::make_unique<FaultyTransport>(std::move(transport), faults);
    };
    Cluster cluster(2, on_hosts({0, 1}), leave_late);
    check_moves(cluster, "ring", "none", 300);
    CHECK_EQ(asked, 4U);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_call_moves_to_its_end),
        QTEST(a_call_ends_when_its_messages_have_left),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
