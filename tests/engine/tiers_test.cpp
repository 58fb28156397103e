// Tests the engine with real bytes through the tiers of a hierarchy: they are the slow twin's, on
// hosts of all shapes, with one codec between hosts and another inside.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/forms.hpp"
#include "tests/kit/sample.hpp"

#include <cstdio>
#include <optional>
#include <utility>

using namespace qtest;

namespace {

constexpr const char *inners[] = {"direct", "ring", "halving", "tree"};
constexpr const char *outers[] = {"", ",outer=halving", ",outer=direct", ",outer=tree"};
constexpr const char *shares[] = {"", ",share=leader"};
constexpr const char *codecs[] = {"none",
                                  "fp16",
                                  "fp8e5m2",
                                  "int8",
                                  "fp8e4m3:block=128",
                                  "mxfp8e4m3",
                                  "nvfp4:bucket=96",
                                  "int4:block=100",
                                  "minmax:bits=4,bucket=64",
                                  "minmax:bits=3,bucket=all"};
constexpr const char *inner_codecs[] = {"none", "int8", "bf16", "minmax"};
constexpr uint64_t counts[] = {0, 1, 33, 1001, 20011};

using Spots = std::vector<RankLocation>;

// Spots by rank: hosts one after the other, ranks dealt out to hosts, nodes in hosts, hosts in
// racks, and all three.
const std::vector<Spots> shapes{
    spots_on({0, 0, 1, 1}),
    spots_on({0, 1, 0, 1}),
    spots_on({0, 1, 1}),
    spots_on({0, 1, 2, 0}),
    spots_on({0, 0, 0, 1, 1}),
    spots_on({0, 1, 0, 1, 2, 2}),
    spots_on({0, 1, 2}),
    {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}},
    {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}, {0, 1, 0}, {1, 1, 0}, {1, 1, 0}},
    {{0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 0}, {0, 2, 1}, {0, 2, 1}, {0, 3, 1}},
    {{0, 0, 0},
     {0, 0, 0},
     {1, 0, 0},
     {1, 0, 0},
     {0, 1, 1},
     {0, 1, 1},
     {1, 1, 1},
     {0, 2, 1},
     {0, 2, 1}},
};

void check_case(Cluster &cluster, TwinCall call, bool in_place) {
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const TransportOptions options = Cluster::test_options();
    const Chunking base{.outbox_bytes = options.outbox_bytes, .slots = options.slots};
    std::vector<Chunking> cuts(4, base);
    cuts[0].segment_bytes = 4096;
    cuts[0].lanes = 3;
    cuts[1].joins = false;
    cuts[2].has_checksums = true;
    cuts[2].segment_bytes = 1;
    const auto outputs = cluster.run_all(call, cuts, inputs, in_place);
    const auto expected = slow_twin(call, inputs);
    for (size_t i = 0; i < cuts.size(); i++)
        for (uint32_t r = 0; r < call.ranks; r++)
            if (outputs[i][r] != expected[r])
                throw Failure{call.algorithm + " " + name(call.collective) + " " + name(call.type) +
                              " " + name(call.op) + " " + spec(call.codec) + " inside " +
                              spec(call.inner_codec) + " count " + std::to_string(call.count) +
                              " of " + std::to_string(call.ranks) + " ranks, cut " +
                              std::to_string(i) + ", rank " + std::to_string(r) +
                              ": not the slow twin's bytes"};
}

template <class Visitor> void each_algorithm(Visitor visit) {
    for (const char *inner : inners)
        for (const char *outer : outers)
            for (const char *share : shares)
                visit(std::string("hierarchy:inner=") + inner + outer + share);
}

template <class Visitor> void each_case(const TwinCall &shape, Visitor visit) {
    TwinCall call = shape;
    for (const char *codec : codecs)
        for (const char *inner : inner_codecs) {
            call.codec = *parse_codec(codec);
            call.inner_codec = *parse_codec(inner);
            for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::int32})
                for (const RedOp op : {RedOp::sum, RedOp::avg, RedOp::max}) {
                    if (!reduces(call.collective) && op != RedOp::sum) continue;
                    if (!check_codec(call.codec, call.collective, type, op) ||
                        !check_codec(call.inner_codec, call.collective, type, op))
                        continue;
                    call.type = type;
                    call.op = op;
                    for (const uint64_t count : counts) {
                        call.count = count;
                        visit(std::as_const(call));
                    }
                }
        }
}

// Calls visit(shape, call) for the cases of all shapes.
template <class Visitor> void each_case_of_shapes(Visitor visit) {
    for (size_t shape = 0; shape < shapes.size(); shape++) {
        TwinCall call{.ranks = static_cast<uint32_t>(shapes[shape].size()), .spots = shapes[shape]};
        for (const Collective collective : collectives_of(*parse_algorithm("hierarchy")))
            each_algorithm([&](const std::string &algorithm) {
                call.collective = collective;
                call.algorithm = algorithm;
                call.root = row_of(collective).has_root ? call.ranks / 2 : 0;
                each_case(call, [&](const TwinCall &one) { visit(shape, one); });
            });
    }
}

// Each case is dealt to one shape, of those a pair sample is taken; in a full run all cases.
bool is_of(size_t shape, uint64_t number) {
    return is_full() || splitmix64(number) % shapes.size() == shape;
}

ChosenCases choose_cases() {
    PairSample<8> sample;
    uint64_t number = 0;
    each_case_of_shapes([&](size_t shape, const TwinCall &call) {
        if (is_of(shape, number++))
            sample.offer(call.count > 4000, {shape, PairSample<8>::value(call.algorithm),
                                             static_cast<uint64_t>(call.collective),
                                             PairSample<8>::value(spec(call.codec)),
                                             PairSample<8>::value(spec(call.inner_codec)),
                                             static_cast<uint64_t>(call.type),
                                             static_cast<uint64_t>(call.op), call.count});
    });
    return sample.choose();
}

void every_tier_gives_the_slow_twins_bytes() {
    ChosenCases cases = choose_cases();
    std::optional<Cluster> cluster;
    size_t of = shapes.size();
    uint64_t number = 0;
    each_case_of_shapes([&](size_t shape, const TwinCall &call) {
        if (!is_of(shape, number++) || !cases.takes()) return;
        if (of != shape) cluster.emplace(call.ranks);
        of = shape;
        check_case(*cluster, call, cases.taken % 3 == 0);
    });
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(cases.taken),
           static_cast<unsigned long long>(number));
    CHECK(cases.taken > 100 / thinning());
}

// Peers read the callers' buffers in place, in both tiers.
void zero_copy_gives_the_same_bytes() {
    const auto shows = [](uint32_t) { return true; };
    for (const Spots &spots : shapes) {
        TwinCall call{.ranks = static_cast<uint32_t>(spots.size()), .spots = spots};
        Cluster cluster(call.ranks, Cluster::test_options(), {}, shows);
        const TransportOptions options = Cluster::test_options();
        Chunking cut{.outbox_bytes = options.outbox_bytes, .slots = options.slots};
        cut.segment_bytes = 4096;
        cut.zero_copy_bytes = 0;
        cut.overwriting_bytes = 0;
        for (const Collective collective : collectives_of(*parse_algorithm("hierarchy")))
            each_algorithm([&](const std::string &algorithm) {
                call.collective = collective;
                call.algorithm = algorithm;
                call.count = 5003;
                for (const bool in_place : {false, true}) {
                    const auto inputs = make_inputs(call, golden::Kind::spread);
                    const auto expected = slow_twin(call, inputs);
                    const auto outputs = cluster.run_all(call, {cut}, inputs, in_place)[0];
                    CHECK(outputs == expected);
                }
            });
        CHECK(cluster.rank(0).engine->counts().lent_bytes > 0);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {QTEST(every_tier_gives_the_slow_twins_bytes),
                                QTEST(zero_copy_gives_the_same_bytes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
