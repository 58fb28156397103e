// Tests collectives against golden hashes of inputs and outputs, per collective, algorithm, ranks,
// codec, type and op. The slow twin must match all of them, and the engine a pair sample; with
// QTEST_FULL=1 the engine must match all, too. `golden_collectives_test
// --print` prints the contents of tests/data/collective_hashes.txt as computed by the slow twin.
// Lines may be added there, but never changed.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/sample.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>

using namespace qtest;

namespace {

constexpr uint64_t counts[] = {0, 1, 33, 1001};
constexpr golden::Kind kinds[] = {golden::Kind::spread, golden::Kind::few_specials};
constexpr uint64_t seed = 7;

// FNV-1a with 64 bits.
struct Hash {
    uint64_t value = 0xCBF29CE484222325ULL;
    void add(const std::vector<Bytes> &of_all) {
        for (const Bytes &bytes : of_all)
            for (const std::byte b : bytes)
                value = (value ^ std::to_integer<uint64_t>(b)) * 0x100000001B3ULL;
    }
};

// Calls visit(call, inputs) for every call that one line covers. Calls are numbered from 1.
template <class Visitor> void each_call(TwinCall call, Visitor visit) {
    call.seed = seed;
    call.number = 0;
    for (const golden::Kind kind : kinds)
        for (const uint64_t count : counts) {
            call.number++;
            call.count = count;
            visit(call, make_inputs(call, kind));
        }
}

std::string line_of(const TwinCall &call, const Hash &inputs, const Hash &outputs) {
    char line[200];
    std::string ranks = std::to_string(call.ranks), codec = spec(call.codec);
    if (!call.spots.empty()) {
        for (const RankLocation &spot : call.spots)
            ranks.append(1, '@').append(std::to_string(spot.host));
        codec.append(1, '+').append(spec(call.inner_codec));
    }
    snprintf(line, sizeof line, "%s %s %s %s %s %s %016llx %016llx", name(call.collective),
             call.algorithm.c_str(), ranks.c_str(), codec.c_str(), name(call.type), name(call.op),
             static_cast<unsigned long long>(inputs.value),
             static_cast<unsigned long long>(outputs.value));
    return line;
}

std::string by_slow_twin(const TwinCall &line) {
    Hash given, taken;
    each_call(line, [&](const TwinCall &call, const std::vector<Bytes> &inputs) {
        given.add(inputs);
        taken.add(slow_twin(call, inputs));
    });
    return line_of(line, given, taken);
}

std::string by_engine(const TwinCall &line) {
    Hash given, taken;
    Cluster cluster(line.ranks);
    const TransportOptions options = Cluster::test_options();
    const Chunking cut{
        .outbox_bytes = options.outbox_bytes, .slots = options.slots, .segment_bytes = 1024};
    each_call(line, [&](TwinCall call, const std::vector<Bytes> &inputs) {
        given.add(inputs);
        taken.add(cluster.run_all(call, {cut}, inputs, false)[0]);
    });
    return line_of(line, given, taken);
}

constexpr const char *codecs[] = {"none",
                                  "fp16",
                                  "bf16",
                                  "int8",
                                  "int6",
                                  "int5",
                                  "int4",
                                  "int3",
                                  "int2",
                                  "int4:round=stochastic",
                                  "minmax:bits=8",
                                  "minmax:bits=4",
                                  "minmax:bits=2,bucket=all",
                                  "minmax:bits=3,bucket=100,round=stochastic",
                                  "minmax:bits=6,bucket=64,skip_incomplete=1",
                                  "fp8e4m3",
                                  "fp8e5m2",
                                  "mxfp8e4m3",
                                  "mxfp4:round=stochastic",
                                  "nvfp4:bucket=64",
                                  "onebit",
                                  "terngrad:bucket=100",
                                  "topk:ratio=0.05",
                                  "int12",
                                  "int10:block=16",
                                  "mxfp6e2m3",
                                  "norm:bits=4,bucket=64",
                                  "dgc:ratio=0.05",
                                  "dummy:ratio=0.3",
                                  "tbq:threshold=0.5",
                                  "lossless",
                                  "bound",
                                  "bound:abs=0.01,entropy=1",
                                  "int5:entropy=1"};

using AlgorithmNames = std::vector<const char *>;

void add(std::vector<TwinCall> &lines, TwinCall line, const AlgorithmNames &names) {
    if (!check_codec(line.codec, line.collective, line.type, line.op)) return;
    if (!takes_op(line.collective, line.op)) return;
    for (const char *const name : names)
        for (const uint32_t ranks : {2, 3, 5}) {
            const auto algorithm = parse_algorithm(name);
            CHECK_OK(algorithm);
            if (!algorithm->has(line.collective)) continue;
            line.algorithm = name;
            line.ranks = ranks;
            line.root = row_of(line.collective).has_root ? ranks / 2 : 0;
            lines.push_back(line);
        }
}

void add_all(std::vector<TwinCall> &lines, const AlgorithmNames &names) {
    for (const char *codec : codecs) {
        TwinCall line{.codec = *parse_codec(codec)};
        for (const DataType type : golden::float_types) {
            line.type = type;
            add(lines, line, names);
        }
        line.type = DataType::float32;
        for (const RedOp op : {RedOp::avg, RedOp::max}) {
            line.op = op;
            add(lines, line, names);
        }
        line.op = RedOp::sum;
        for (const Collective collective :
             {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
            line.collective = collective;
            add(lines, line, names);
        }
    }
    for (const DataType type : {DataType::int8, DataType::uint32, DataType::int64})
        for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg})
            add(lines, {.type = type, .op = op}, names);
}

// Adds lines with ranks on several hosts, assigned to the hosts in turn.
void add_tiers(std::vector<TwinCall> &lines) {
    for (const char *algorithm : {"hierarchy", "hierarchy:inner=ring,outer=halving,share=leader",
                                  "hierarchy:inner=halving"})
        for (const char *codec : {"none", "int8", "int4", "fp16", "minmax:bits=4"})
            for (const char *inner : {"none", "int8"})
                for (const Collective collective :
                     {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                      Collective::broadcast})
                    for (const DataType type : {DataType::float32, DataType::bfloat16})
                        lines.push_back({.collective = collective,
                                         .algorithm = algorithm,
                                         .type = type,
                                         .codec = *parse_codec(codec),
                                         .ranks = 5,
                                         .root = collective == Collective::broadcast ? 3U : 0U,
                                         .inner_codec = *parse_codec(inner),
                                         .spots = spots_on({0, 1, 0, 1, 0})});
}

// Adds the collectives that gather or spread values at a root.
void add_rooted(std::vector<TwinCall> &lines) {
    const AlgorithmNames names{"direct", "ring", "oneshot", "halving", "tree", "tree:shape=double"};
    for (const Collective collective :
         {Collective::reduce, Collective::gather, Collective::scatter}) {
        for (const char *codec : codecs)
            for (const DataType type : {DataType::float32, DataType::bfloat16})
                add(lines, {.collective = collective, .type = type, .codec = *parse_codec(codec)},
                    names);
        add(lines, {.collective = collective, .type = DataType::int32}, names);
    }
    for (const RedOp op : {RedOp::avg, RedOp::max})
        for (const char *codec : {"none", "int8", "fp16"})
            add(lines, {.collective = Collective::reduce, .op = op, .codec = *parse_codec(codec)},
                names);
    for (const char *algorithm : {"hierarchy", "hierarchy:inner=ring,outer=halving,share=leader",
                                  "hierarchy:inner=halving"})
        for (const char *codec : {"none", "int8", "fp16"})
            for (const char *inner : {"none", "int8"})
                lines.push_back({.collective = Collective::reduce,
                                 .algorithm = algorithm,
                                 .codec = *parse_codec(codec),
                                 .ranks = 5,
                                 .root = 3,
                                 .inner_codec = *parse_codec(inner),
                                 .spots = spots_on({0, 1, 0, 1, 0})});
}

void add_exchanges(std::vector<TwinCall> &lines) {
    const AlgorithmNames names{"direct", "oneshot", "pairwise", "bruck"};
    for (const char *codec : codecs)
        for (const DataType type : {DataType::float32, DataType::bfloat16})
            add(lines,
                {.collective = Collective::all_to_all, .type = type, .codec = *parse_codec(codec)},
                names);
    add(lines, {.collective = Collective::all_to_all, .type = DataType::int32}, names);
    for (const char *codec : {"none", "int8", "topk:ratio=0.05"})
        add(lines, {.collective = Collective::all_gather, .codec = *parse_codec(codec)}, {"bruck"});
    for (const char *codec : {"none", "int8", "fp16"})
        lines.push_back({.collective = Collective::all_to_all,
                         .algorithm = "hierarchy",
                         .codec = *parse_codec(codec),
                         .ranks = 5,
                         .spots = spots_on({0, 1, 0, 1, 0})});
}

void add_prefixes(std::vector<TwinCall> &lines) {
    for (const Collective collective : {Collective::scan, Collective::exscan}) {
        for (const char *codec : codecs)
            for (const DataType type : {DataType::float32, DataType::bfloat16})
                add(lines, {.collective = collective, .type = type, .codec = *parse_codec(codec)},
                    {"oneshot", "doubling", "chain"});
        for (const RedOp op : {RedOp::prod, RedOp::max})
            add(lines, {.collective = collective, .type = DataType::int32, .op = op},
                {"oneshot", "doubling", "chain"});
    }
    for (const char *codec : {"none", "int8", "mxfp4:round=stochastic", "topk:ratio=0.05"})
        add(lines, {.collective = Collective::send, .codec = *parse_codec(codec)}, {"direct"});
    for (const char *codec : {"none", "int8", "mxfp4:round=stochastic"})
        add(lines, {.collective = Collective::reduce, .codec = *parse_codec(codec)}, {"chain"});
}

// The types that the table had not had before, with every operation that they take.
void add_elements(std::vector<TwinCall> &lines) {
    for (size_t number = 12; number < 22; number++)
        for (const RedOp op : all_ops) {
            const DataType type = type_table[number].type;
            if (!takes(type, op)) continue;
            add(lines, {.type = type, .op = op}, {"ring"});
            add(lines, {.collective = Collective::scan, .type = type, .op = op}, {"doubling"});
        }
    for (const RedOp op : {RedOp::bit_and, RedOp::bit_or, RedOp::bit_xor, RedOp::logical_and,
                           RedOp::logical_or, RedOp::logical_xor})
        add(lines, {.type = DataType::int64, .op = op}, {"direct"});
}

// Along the ring, where the ranks are no pairs.
void add_neighbours(std::vector<TwinCall> &lines) {
    for (const char *codec : {"none", "int8", "topk:ratio=0.05"})
        add(lines, {.collective = Collective::all_gather, .codec = *parse_codec(codec)},
            {"neighbour"});
    for (const std::vector<uint32_t> &hosts :
         {std::vector<uint32_t>{0, 1, 0, 1}, std::vector<uint32_t>{0, 1, 0, 1, 0, 1}})
        lines.push_back({.collective = Collective::all_gather,
                         .algorithm = "neighbour",
                         .codec = *parse_codec("int8"),
                         .ranks = static_cast<uint32_t>(hosts.size()),
                         .spots = spots_on(hosts)});
}

// Roundings that codecs of the table had not had before.
void add_roundings(std::vector<TwinCall> &lines) {
    for (const char *codec : {"bf16:round=stochastic", "fp8e5m2:round=stochastic",
                              "int4:round=dither", "minmax:bits=8,bucket=100,round=dither",
                              "int4:rotate=128", "minmax:bits=6,bucket=64,rotate=64"})
        for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64})
            for (const RedOp op : {RedOp::sum, RedOp::max})
                add(lines, {.type = type, .op = op, .codec = *parse_codec(codec)},
                    {"direct", "ring", "doubling"});
}

void add_scaled_casts(std::vector<TwinCall> &lines) {
    for (const char *codec : {"fp8e4m3:block=32", "fp8e5m2:block=128,round=stochastic"})
        for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64})
            add(lines, {.type = type, .codec = *parse_codec(codec)},
                {"direct", "ring", "doubling"});
}

// Returns the lines in the order in which the algorithms were added to the library.
std::vector<TwinCall> all_lines() {
    std::vector<TwinCall> lines;
    add_all(lines, {"direct", "ring", "oneshot"});
    add_all(lines, {"halving"});
    add_all(lines, {"tree", "tree:shape=double"});
    add_tiers(lines);
    add_all(lines, {"doubling"});
    add_rooted(lines);
    add_exchanges(lines);
    add_prefixes(lines);
    add_elements(lines);
    add_neighbours(lines);
    add_roundings(lines);
    add_scaled_casts(lines);
    return lines;
}

std::vector<std::string> stored_lines() {
    std::ifstream file(QCCL_TEST_DATA "/collective_hashes.txt");
    CHECK(file.is_open());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

template <class Compute> void check_stored(Compute compute, ChosenCases cases) {
    const auto stored = stored_lines();
    const auto lines = all_lines();
    CHECK_EQ(stored.size(), lines.size());
    for (size_t i = 0; i < lines.size(); i++)
        if (cases.takes()) CHECK_EQ(compute(lines[i]), stored[i]);
}

ChosenCases all_cases() {
    ChosenCases cases;
    const size_t count = all_lines().size();
    for (size_t i = 0; i < count; i++) cases.chosen.push_back(is_chosen(i));
    return cases;
}

ChosenCases pairs_of_cases() {
    PairSample<5> sample;
    for (const TwinCall &line : all_lines())
        sample.offer(
            false, {form_of(line), static_cast<uint64_t>(line.type), static_cast<uint64_t>(line.op),
                    PairSample<5>::value(spec(line.codec) + spec(line.inner_codec)), line.ranks});
    return sample.choose();
}

// A new codec must be added to `codecs`, and a new algorithm to all_lines().
void the_table_has_every_codec_and_algorithm() {
    const auto lines = all_lines();
    for (const CodecRow &row : codec_table)
        if (std::ranges::none_of(lines,
                                 [&](const TwinCall &line) { return line.codec.id == row.id; }))
            throw Failure{std::string(row.name) + " has no golden collectives"};
    for (const AlgorithmRow &row : algorithm_table())
        if (std::ranges::none_of(
                lines, [&](const TwinCall &line) { return line.algorithm.starts_with(row.name); }))
            throw Failure{std::string(row.name) + " has no golden collectives"};
}

void slow_twin_gives_the_goldens() { check_stored(by_slow_twin, all_cases()); }
void engine_gives_the_goldens() { check_stored(by_engine, pairs_of_cases()); }

} // namespace

int main(int count, char **arguments) {
    if (count == 2 && std::string_view(arguments[1]) == "--print") {
        for (const TwinCall &line : all_lines()) puts(by_slow_twin(line).c_str());
        return 0;
    }
    const CMUnitTest tests[] = {QTEST(the_table_has_every_codec_and_algorithm),
                                QTEST(slow_twin_gives_the_goldens),
                                QTEST(engine_gives_the_goldens)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
