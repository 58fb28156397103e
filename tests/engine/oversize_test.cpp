// Tests the engine with calls that need more memory than the outbox and the inbox: they give the
// same bytes as other calls, for every codec, algorithm, collective and placement of the ranks.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/forms.hpp"
#include "tests/kit/sample.hpp"

#include <cstdio>
#include <optional>

using namespace qtest;

namespace {

constexpr const char *codecs[] = {"none",
                                  "bf16",
                                  "int8",
                                  "int8:block=1073741824",
                                  "int4:block=4096,round=stochastic",
                                  "minmax:bucket=all",
                                  "minmax:bits=3,bucket=all,round=stochastic",
                                  "nvfp4:bucket=all",
                                  "onebit:bucket=65536",
                                  "terngrad:bucket=100000",
                                  "norm:bucket=100000",
                                  "topk",
                                  "topk:ratio=1"};

// Returns cuts into small segments, for the transport's arena and for smaller and smaller ones.
// From one cut to the next, slots move.
std::vector<Chunking> cuts_of(const TransportOptions &options, uint64_t wire_bytes) {
    std::vector<Chunking> cuts;
    for (const size_t arena : {options.outbox_bytes, wire_bytes, size_t{1} << 10})
        cuts.push_back({.outbox_bytes = arena,
                        .slots = options.slots,
                        .inbox_bytes = options.hosts.empty() ? 0 : arena,
                        .segment_bytes = size_t{8} << 10});
    cuts.back().has_checksums = true;
    cuts.push_back(cuts.back());
    cuts.back().joins = false;
    cuts.push_back(cuts.front());
    return cuts;
}

struct Coverage {
    size_t calls = 0, overflowing = 0;
};

void check_call(Cluster &cluster, const TransportOptions &options, TwinCall call, bool in_place,
                Coverage &seen) {
    const auto roomy = compile_for(call, 0, {.outbox_bytes = SIZE_MAX, .slots = options.slots});
    CHECK_OK(roomy);
    const auto cuts = cuts_of(options, roomy->geometry.wire_bytes);
    for (const Chunking &cut : cuts) {
        const auto program = compile_for(call, 0, cut);
        CHECK_OK(program);
        seen.calls++;
        seen.overflowing += program->overflows;
    }
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const auto expected = slow_twin(call, inputs);
    for (const auto &outputs : cluster.run_all(call, cuts, inputs, in_place))
        CHECK(outputs == expected);
}

// The host of each rank; on one host all have the same.
const std::vector<uint32_t> placements[] = {
    {0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 1}, {0, 0, 1, 1, 2},
};

// Calls visit(placement, call) for the table's cases.
template <class Visitor> void each_case(Visitor visit) {
    uint64_t number = 0;
    for (size_t placement = 0; placement < std::size(placements); placement++)
        for (const Algorithm &algorithm : algorithms())
            for (const Collective collective : value_collectives)
                for (const char *const codec : codecs) {
                    if (!algorithm.has(collective)) continue;
                    const bool is_half = ++number % 3 == 0;
                    TwinCall call{.collective = collective,
                                  .algorithm = spec(algorithm),
                                  .type = is_half ? DataType::float16 : DataType::float32,
                                  .codec = *parse_codec(codec),
                                  .count = number % 5 == 0 ? 1000U : 10007U,
                                  .ranks = static_cast<uint32_t>(placements[placement].size()),
                                  .seed = 7};
                    call.inner_codec = call.codec;
                    if (row_of(collective).has_root) call.root = call.ranks - 1;
                    visit(placement, call);
                }
}

// Every algorithm of every collective meets every codec and every placement.
ChosenCases choose_cases() {
    PairSample<3> sample;
    each_case([&](size_t placement, const TwinCall &call) {
        sample.offer(false, {placement, form_of(call), PairSample<3>::value(spec(call.codec))});
    });
    return sample.choose();
}

void calls_beyond_the_arena_end_like_others() {
    ChosenCases cases = choose_cases();
    std::optional<Cluster> cluster;
    size_t of = std::size(placements);
    Coverage seen;
    each_case([&](size_t placement, const TwinCall &call) {
        if (!cases.takes()) return;
        const TransportOptions options = on_hosts(placements[placement]);
        if (of != placement) cluster.emplace(call.ranks, options);
        of = placement;
        cluster->timeout = std::chrono::minutes(2); // some codecs are slow
        check_call(*cluster, options, call, cases.taken % 2 == 0, seen);
    });
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(cases.taken),
           static_cast<unsigned long long>(cases.cases));
    CHECK(seen.overflowing * 8 > seen.calls);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {QTEST(calls_beyond_the_arena_end_like_others)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
