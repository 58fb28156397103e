// Tests the engine with processes on hosts of every shape, over UCX: they end with the same bytes
// as over shared memory on one host, and with the slow twin's, for every algorithm and codec.
// QTEST_FULL=1 runs the whole table, otherwise a fair sample.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/sample.hpp"

#include "codec/codec_names.hpp"

#include <cstdio>

using namespace qtest;

#ifndef QCCL_UCX_MODULE
int main() {
    printf("skipped: without UCX there are no processes on several hosts\n");
    return 77;
}
#else

namespace {

using Spots = std::vector<RankLocation>;

// Returns spots with `sizes[host]` ranks on each host.
Spots hosts_of(const std::vector<uint32_t> &sizes) {
    Spots spots;
    for (uint32_t host = 0; host < sizes.size(); host++)
        spots.insert(spots.end(), sizes[host], {.node = 0, .host = host, .rack = 0});
    return spots;
}

// Returns even and uneven hosts, ranks dealt out to the hosts in turn, nodes within hosts, and
// hosts within racks.
std::vector<Spots> placements() {
    std::vector<Spots> all;
    for (uint32_t hosts = 2; hosts <= 5; hosts++)
        for (uint32_t ranks = 1; ranks <= 3; ranks++)
            all.push_back(hosts_of(std::vector(hosts, ranks)));
    for (const auto &sizes : {std::vector<uint32_t>{1, 2}, {3, 1}, {1, 2, 3}, {2, 1, 3, 1, 2}})
        all.push_back(hosts_of(sizes));
    all.push_back(spots_on({0, 1, 0, 1, 2, 0, 1}));
    all.push_back({{0, 0, 0}, {1, 0, 0}, {0, 0, 0}, {1, 1, 0}, {0, 1, 0}, {1, 1, 0}});
    all.push_back({{0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 0}, {0, 2, 1}, {0, 3, 1}, {0, 3, 1}});
    all.push_back(
        {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}, {0, 2, 1}});
    return all;
}

std::vector<std::string> algorithm_specs() {
    std::vector<std::string> all{"direct",   "ring",     "halving",  "tree",  "tree:shape=double",
                                 "oneshot",  "doubling", "pairwise", "bruck", "chain",
                                 "neighbour"};
    for (const AlgorithmRow &row : algorithm_table()) {
        if (row.name != "hierarchy") continue;
        for (const auto inner : row.keys[0].words)
            for (const auto outer : row.keys[1].words)
                for (const auto share : row.keys[2].words)
                    all.push_back("hierarchy:inner=" + std::string(inner) +
                                  ",outer=" + std::string(outer) + ",share=" + std::string(share));
    }
    return all;
}

constexpr const char *codecs[] = {"none",
                                  "fp16",
                                  "bf16",
                                  "fp8e4m3",
                                  "fp8e5m2",
                                  "fp8e4m3:block=32",
                                  "fp8e5m2:block=64,round=stochastic",
                                  "mxfp8e4m3",
                                  "mxfp6e2m3",
                                  "mxfp4",
                                  "nvfp4",
                                  "onebit",
                                  "terngrad",
                                  "topk:ratio=0.02",
                                  "dummy:ratio=0.3",
                                  "tbq:threshold=0.5",
                                  "dgc:ratio=0.03",
                                  "graddrop",
                                  "norm:bits=6,norm=linf",
                                  "lossless",
                                  "bound",
                                  "bound:abs=0.01,entropy=1",
                                  "bound:pw=0.02",
                                  "minmax:bits=5,entropy=1",
                                  "int8",
                                  "int12:block=8",
                                  "int10",
                                  "int6:block=1",
                                  "int5",
                                  "int4",
                                  "int3:block=100",
                                  "int2",
                                  "int8:round=stochastic",
                                  "int4:block=64,round=stochastic",
                                  "minmax",
                                  "minmax:bits=1,bucket=64",
                                  "minmax:bits=2,bucket=all",
                                  "minmax:bits=3",
                                  "minmax:bits=4,bucket=64",
                                  "minmax:bits=5,bucket=100,skip_incomplete=1",
                                  "minmax:bits=6",
                                  "minmax:bits=7,round=stochastic",
                                  "minmax:bits=8,bucket=33"};
constexpr const char *inner_codecs[] = {"none", "none", "fp16", "bf16", "int8", "int4", "minmax"};
constexpr DataType types[] = {DataType::float32, DataType::bfloat16,   DataType::float16,
                              DataType::float64, DataType::float8e5m2, DataType::int32};
constexpr RedOp ops[] = {RedOp::sum, RedOp::avg, RedOp::max, RedOp::prod};
constexpr uint64_t counts[] = {1, 33, 1001, 5003, 20011};

// Draws what the table leaves open. An impossible combination becomes a sum of fp32.
TwinCall drawn(TwinCall call, uint64_t number) {
    uint64_t draw = splitmix64(number);
    const auto pick = [&](const auto &from) {
        const auto chosen = from[draw % std::size(from)];
        draw /= std::size(from);
        return chosen;
    };
    call.type = pick(types);
    call.op = reduces(call.collective) ? pick(ops) : RedOp::sum;
    call.count = pick(counts);
    if (has_part_per_rank(call.collective)) call.count = call.count / 4 + 1;
    const Codec inner = *parse_codec(pick(inner_codecs));
    const auto can = [&](const Codec &codec) {
        return check_codec(codec, call.collective, call.type, call.op).is_ok();
    };
    if (!can(call.codec)) {
        call.type = DataType::float32;
        call.op = RedOp::sum;
    }
    if (!call.codec.is_lossless() && can(inner) && call.algorithm.starts_with("hierarchy"))
        call.inner_codec = inner;
    return call;
}

// The slow twin computes stochastic noise for flat teams only.
bool has_twin(const TwinCall &call) {
    return call.codec.rounding == Rounding::nearest || !call.algorithm.starts_with("hierarchy");
}

uint64_t hash_of(const Bytes &bytes) {
    uint64_t hash = 0xCBF29CE484222325; // FNV-1a
    for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
    return hash;
}

std::string describe(const TwinCall &call, bool in_place) {
    std::string text = std::string(name(call.collective)) + " " + call.algorithm + " " +
                       name(call.type) + " " + name(call.op) + " " + spec(call.codec) + " inside " +
                       spec(call.inner_codec) + " count " + std::to_string(call.count) +
                       (in_place ? " in place" : "") + " on";
    for (const RankLocation &spot : call.spots)
        text += " " + std::to_string(spot.rack) + "." + std::to_string(spot.host) + "." +
                std::to_string(spot.node);
    return text;
}

// One rank with two transports: one with all ranks on one host, one with the ranks on several.
class Pair {
public:
    Pair(const Rank &rank, const Spots &spots) : rank_(rank) {
        local_ = end_of(rank);
        Rank apart = rank;
        for (const RankLocation &spot : spots) apart.options.hosts.push_back(spot.host);
        apart.options.remote = over_ucx();
        remote_ = end_of(apart);
    }

    void check(TwinCall call, bool in_place) {
        call.number = ++calls_;
        const auto &inputs = inputs_of(call);
        const bool is_one = call.algorithm == "oneshot";
        const TransportOptions &options = rank_.options;
        Chunking local{.outbox_bytes = options.outbox_bytes, .slots = options.slots};
        if (is_one) local.eager_slot_bytes = options.eager_slot_bytes;
        Chunking remote = local;
        remote.inbox_bytes = remote_.transport->inbox().size();
        remote.segment_bytes = size_t{8} << 10;
        const Bytes here = run(local_, call, local, inputs, in_place);
        const Bytes there = run(remote_, call, remote, inputs, in_place);
        if (here != there) throw Failure{describe(call, in_place) + ": not the bytes of one host"};
        compare_with_twin(call, in_place, inputs, there);
    }

private:
    static EngineRank end_of(const Rank &rank) {
        EngineRank end;
        auto transport = rank.create();
        CHECK_OK(transport);
        end.transport = std::move(*transport);
        end.open_local_resources(rank.rank);
        return end;
    }

    Bytes run(EngineRank &end, const TwinCall &call, const Chunking &cut,
              const std::vector<Bytes> &inputs, bool in_place) {
        const auto program = compile_for(call, rank_.rank, cut);
        CHECK_OK(program);
        auto output = end.run(call, rank_.rank, *program, inputs[rank_.rank], in_place, patience);
        if (!output) throw Failure{describe(call, in_place) + ": " + output.error().text};
        return *output;
    }

    // The ranks take turns in computing the slow twin, which they compare with all ranks' results.
    void compare_with_twin(const TwinCall &call, bool in_place, const std::vector<Bytes> &inputs,
                           const Bytes &mine) {
        if (!has_twin(call)) return;
        const uint64_t hash = hash_of(mine);
        std::vector<uint64_t> all(rank_.size);
        CHECK_OK(rank_.meeting.all_gather(rank_.rank, &hash, all.data(), sizeof hash));
        if (call.number % rank_.size != rank_.rank) return;
        const auto expected = slow_twin(call, inputs);
        for (uint32_t rank = 0; rank < rank_.size; rank++)
            if (hash_of(expected[rank]) != all[rank])
                throw Failure{describe(call, in_place) + ": rank " + std::to_string(rank) +
                              " has not the slow twin's bytes"};
    }

    const std::vector<Bytes> &inputs_of(const TwinCall &call) {
        const auto key = std::tuple(call.type, send_count(call));
        const auto [at, is_new] = inputs_.try_emplace(key);
        if (is_new) at->second = make_inputs(call, golden::Kind::few_specials);
        return at->second;
    }

    const Rank &rank_;
    EngineRank local_, remote_;
    std::map<std::tuple<DataType, uint64_t>, std::vector<Bytes>> inputs_;
    uint64_t calls_ = 0;
};

// Calls visit(call, in_place) for the table's cases of the placement, the same on all ranks.
template <class Visitor> void each_case(const Spots &spots, Sample &sample, Visitor visit) {
    for (const Collective collective : value_collectives)
        for (const std::string &algorithm : algorithm_specs()) {
            if (!parse_algorithm(algorithm)->has(collective)) continue;
            for (const char *codec : codecs) {
                const uint64_t number = sample.cases;
                if (!sample.takes(150)) continue;
                TwinCall call{.collective = collective,
                              .algorithm = algorithm,
                              .codec = *parse_codec(codec),
                              .ranks = static_cast<uint32_t>(spots.size()),
                              .seed = 7,
                              .spots = spots};
                if (row_of(collective).has_root)
                    call.root = static_cast<uint32_t>(number % spots.size());
                visit(drawn(call, number), number % 3 == 0);
            }
        }
}

TransportOptions roomy_options() {
    TransportOptions options;
    options.outbox_bytes = size_t{4} << 20;
    options.slots = 256;
    options.eager_slot_bytes = size_t{16} << 10;
    return options;
}

void hosts_make_no_difference() {
    Sample sample;
    for (const Spots &spots : placements()) {
        const Sample before = sample;
        const auto ranks = static_cast<uint32_t>(spots.size());
        const Shared<Meeting> meeting(ranks);
        run_ranks(
            *meeting, Kind::shm,
            [&](const Rank &rank) {
                Sample mine = before;
                Pair pair(rank, spots);
                each_case(spots, mine,
                          [&](const TwinCall &call, bool in_place) { pair.check(call, in_place); });
            },
            roomy_options());
        each_case(spots, sample, [](const TwinCall &, bool) {});
        if (sample.is_full)
            printf("%u ranks: %llu cases so far\n", ranks,
                   static_cast<unsigned long long>(sample.taken));
        std::fflush(stdout);
    }
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(sample.taken),
           static_cast<unsigned long long>(sample.cases));
    CHECK(sample.taken > 200 / thinning());
}

// A new codec or algorithm must be added to the table.
void the_table_has_every_codec_and_algorithm() {
    for (const CodecName &known : codec_names())
        CHECK(std::any_of(std::begin(codecs), std::end(codecs), [&](const char *codec) {
            return std::string_view(codec).starts_with(known.name);
        }));
    const auto specs = algorithm_specs();
    for (const AlgorithmRow &row : algorithm_table())
        CHECK(std::any_of(specs.begin(), specs.end(),
                          [&](const std::string &spec) { return spec.starts_with(row.name); }));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {QTEST(hosts_make_no_difference),
                                QTEST(the_table_has_every_codec_and_algorithm)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
#endif
