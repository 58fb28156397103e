// Tests the engine in calls with a guard: every rank learns the largest error that any rank has
// found, whatever the algorithm and wherever the ranks are, and the results are those without a
// guard.
#include "tests/kit/engine_ranks.hpp"
#include "tests/transport/memory_network.hpp"

using namespace qccl;
using namespace qtest;

namespace {

const std::vector<uint32_t> placements[] = {{0, 0},    {0, 0, 0},       {0, 1},
                                            {0, 0, 1}, {0, 1, 0, 1, 2}, {0, 0, 0, 1, 1, 2}};

uint16_t word_of(uint32_t rank, const TwinCall &call, uint32_t loudest) {
    if (row_of(call.collective).has_one_source && rank != call.root) return 0;
    return static_cast<uint16_t>(rank == loudest ? 0x7000 : 0x1000 + rank);
}

struct Heard {
    std::vector<uint16_t> words;
    std::vector<Bytes> outputs;
};

Heard run_guarded(Cluster &cluster, const TwinCall &call, const Chunking &cut, uint32_t loudest,
                  const std::vector<Bytes> &inputs) {
    Heard heard{std::vector<uint16_t>(call.ranks), std::vector<Bytes>(call.ranks)};
    cluster.on_each([&](uint32_t rank) {
        const auto program = compile_for(call, rank, cut);
        CHECK_OK(program);
        uint16_t word = word_of(rank, call, loudest);
        Bytes received(recv_count(call, rank) * type_bytes(call.type));
        EngineRank &mine = cluster.rank(rank);
        const Done done = mine.engine->run(*program, {.send = inputs[rank].data(),
                                                      .recv = received.data(),
                                                      .number = call.number,
                                                      .noise_seed = call.seed,
                                                      .tag = 5,
                                                      .timeout = cluster.timeout,
                                                      .sampled_nmse = &word});
        if (!done) mine.transport->fail(done.error());
        CHECK_OK(done);
        heard.words[rank] = word;
        heard.outputs[rank] = received;
    });
    return heard;
}

void check_call(Cluster &cluster, const TwinCall &call, const Chunking &cut) {
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const auto loudest = static_cast<uint32_t>(call.number % call.ranks);
    const Heard heard = run_guarded(cluster, call, cut, loudest, inputs);
    uint16_t largest = 0;
    for (uint32_t rank = 0; rank < call.ranks; rank++)
        largest = std::max(largest, word_of(rank, call, loudest));
    for (const uint16_t word : heard.words) CHECK_EQ(word, largest);
    CHECK(heard.outputs == slow_twin(call, inputs));
}

void all_ranks_hear_of_the_largest_error() {
    for (const auto &hosts : placements) {
        TransportOptions options = Cluster::test_options();
        if (hosts.back() != 0) {
            options.hosts = hosts;
            options.remote = remote_options(memory_network::module);
        }
        const auto ranks = static_cast<uint32_t>(hosts.size());
        Cluster cluster(ranks, options);
        const Chunking cut{.outbox_bytes = options.outbox_bytes,
                           .slots = options.slots,
                           .inbox_bytes = hosts.back() != 0 ? options.outbox_bytes : 0,
                           .segment_bytes = size_t{16} << 10};
        uint64_t number = 0;
        for (const Algorithm &algorithm : algorithms())
            for (const Collective collective : value_collectives)
                for (const char *codec : {"none", "int8"})
                    for (const uint64_t count : {uint64_t{3}, uint64_t{30011}})
                        if (algorithm.has(collective) && do_all_receive(collective))
                            check_call(cluster,
                                       {.collective = collective,
                                        .algorithm = spec(algorithm),
                                        .codec = *parse_codec(codec),
                                        .count = count,
                                        .ranks = ranks,
                                        .root = row_of(collective).has_root ? ranks - 1 : 0,
                                        .number = ++number,
                                        .seed = 7},
                                       cut);
    }
}

// Ranks that would go lossless at different times are refused in the first call that they make.
void other_tags_are_a_mismatch() {
    Cluster cluster(2);
    const TwinCall call{.algorithm = "direct",
                        .codec = *parse_codec("int8"),
                        .count = 1000,
                        .ranks = 2,
                        .number = 1};
    const Chunking cut{
        .outbox_bytes = size_t{4} << 20, .slots = 256, .segment_bytes = size_t{16} << 10};
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    cluster.on_each([&](uint32_t rank) {
        auto program = compile_for(call, rank, cut);
        CHECK_OK(program);
        program->asked_codec = "int8:guard=nmse:0.001";
        uint16_t word = 0;
        Bytes received(recv_count(call, rank) * type_bytes(call.type));
        Transport &transport = *cluster.rank(rank).transport;
        const Done done = cluster.rank(rank).engine->run(*program, {.send = inputs[rank].data(),
                                                                    .recv = received.data(),
                                                                    .number = 1,
                                                                    .tag = 10 + rank,
                                                                    .timeout = cluster.timeout,
                                                                    .sampled_nmse = &word});
        CHECK(!done);
        if (!transport.failure()) transport.fail(done.error());
        CHECK_EQ(std::string(transport.failure()->text),
                 "rank 1 calls all_reduce with codec int8:guard=nmse:0.001 of tag 11, rank 0 with "
                 "codec int8:guard=nmse:0.001 of tag 10, in call 1");
    });
}

} // namespace

int main() {
    static const CMUnitTest tests[] = {
        QTEST(all_ranks_hear_of_the_largest_error),
        QTEST(other_tags_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
