// Tests the engine with several rings at once: the output bytes equal those of the slow reference,
// independent of how calls are cut.
#include "tests/kit/case_table.hpp"
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/forms.hpp"

using namespace qtest;

namespace {

// Links that are used in both directions, rings without a common link, and more rings than ranks.
const std::vector<std::vector<std::vector<uint32_t>>> rings_of_ranks = {
    {{0, 1, 2}, {0, 2, 1}},
    {{0, 1, 2, 3, 4}, {0, 2, 4, 1, 3}, {0, 3, 1, 4, 2}, {0, 4, 3, 2, 1}},
    {{0, 1, 3, 2}, {0, 2, 1, 3}, {0, 3, 1, 2}, {0, 1, 2, 3}, {0, 2, 3, 1}}};

std::vector<Chunking> cuts() {
    const TransportOptions options = Cluster::test_options();
    const Chunking base{.outbox_bytes = options.outbox_bytes, .slots = options.slots};
    std::vector<Chunking> all(3, base);
    all[0].segment_bytes = 4096;
    all[0].lanes = 3;
    all[1].joins = false;
    all[1].segment_bytes = 1;
    all[2].lanes = 1;
    all[2].has_checksums = true;
    return all;
}

void check_case(Cluster &cluster, TwinCall call, bool in_place) {
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const auto outputs = cluster.run_all(call, cuts(), inputs, in_place);
    for (const auto &of_cut : outputs) {
        if (of_cut != slow_twin(call, inputs))
            throw Failure{words_of(call, in_place) + " by " + std::to_string(call.rings.size()) +
                          " rings is not the slow twin's"};
        call.number++; // stochastic rounding depends on the number
    }
}

void several_rings_give_the_slow_twins_bytes() {
    for (const auto &rings : rings_of_ranks) {
        const auto ranks = static_cast<uint32_t>(rings[0].size());
        Cluster cluster(ranks);
        bool in_place = false;
        for (const Collective collective : collectives_of(*parse_algorithm("ring")))
            for (const DataType type : {DataType::float32, DataType::bfloat16})
                for (const char *codec : {"none", "int8", "int4:round=stochastic",
                                          "minmax:bits=4,bucket=64", "topk:ratio=0.01"})
                    for (const uint64_t count : {0, 1, 33, 4097, 50021}) {
                        in_place = !in_place;
                        check_case(cluster,
                                   {.collective = collective,
                                    .algorithm = "ring:rings=all",
                                    .type = type,
                                    .op = reduces(collective) ? RedOp::avg : RedOp::sum,
                                    .codec = *parse_codec(codec),
                                    .count = count,
                                    .ranks = ranks,
                                    .root = row_of(collective).has_root ? ranks - 1 : 0,
                                    .seed = 5,
                                    .rings = rings},
                                   in_place);
                    }
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {QTEST(several_rings_give_the_slow_twins_bytes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
