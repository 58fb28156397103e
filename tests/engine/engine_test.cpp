// Tests the engine with real bytes over ranks as threads: every case of the table gives the slow
// twin's bytes, however the call is cut. QTEST_FULL=1 runs the whole table, otherwise a fair
// sample.
#include "tests/kit/case_table.hpp"
#include "tests/kit/engine_ranks.hpp"

#include <atomic>
#include <cstdio>

using namespace qtest;

namespace {

constexpr uint32_t sizes[] = {1, 2, 3, 4, 5, 8};

// Cuts that must not change a byte: many small segments in few or many lanes, one large one, tiles
// or whole segments, eager slots or mailboxes, checksums.
std::vector<Chunking> cuts_of(const TransportOptions &options, bool is_one_exchange) {
    const Chunking base{.outbox_bytes = options.outbox_bytes, .slots = options.slots};
    std::vector<Chunking> cuts(4, base);
    cuts[0].segment_bytes = 4096;
    cuts[0].lanes = 3;
    cuts[1].joins = false;
    cuts[1].segment_bytes = 16384;
    cuts[1].lanes = 2;
    cuts[2].has_checksums = true;
    cuts[2].segment_bytes = 1;
    cuts[2].lanes = 5;
    cuts[3].lanes = 1;
    if (is_one_exchange) {
        cuts.push_back(base);
        cuts.back().eager_slot_bytes = options.eager_slot_bytes;
    }
    return cuts;
}

void check_case(Cluster &cluster, TwinCall call, golden::Kind kind, bool in_place) {
    const auto inputs = make_inputs(call, kind);
    const auto cuts = cuts_of(Cluster::test_options(), call.algorithm == "oneshot");
    const auto outputs = cluster.run_all(call, cuts, inputs, in_place);
    auto expected = slow_twin(call, inputs);
    for (size_t i = 0; i < cuts.size(); i++, call.number++) {
        if (i != 0 && call.codec.draws_noise()) expected = slow_twin(call, inputs);
        for (uint32_t r = 0; r < call.ranks; r++) {
            if (outputs[i][r] == expected[r]) continue;
            const auto at =
                std::mismatch(expected[r].begin(), expected[r].end(), outputs[i][r].begin());
            throw Failure{words_of(call, in_place) + ": cut " + std::to_string(i) + ", rank " +
                          std::to_string(r) + ": byte " +
                          std::to_string(at.first - expected[r].begin()) +
                          " is not the slow twin's"};
        }
    }
}

void every_case_gives_the_slow_twins_bytes() {
    const DealtCases cases(std::size(sizes), true);
    uint64_t taken = 0;
    for (size_t team = 0; team < std::size(sizes); team++) {
        Cluster cluster(sizes[team]);
        cases.each(team, sizes[team], [&](const TwinCall &call) {
            const bool in_place = ++taken % 3 == 0;
            const auto kind = taken % 5 == 0 ? golden::Kind::few_specials : golden::Kind::spread;
            check_case(cluster, call, kind, in_place);
        });
    }
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(taken),
           static_cast<unsigned long long>(cases.all() * std::size(sizes)));
    CHECK(taken > 400 / thinning());
}

// A NaN among the values of an incomplete bucket is only copied, so it keeps its bits.
void raw_values_keep_their_bits() {
    Cluster cluster(2);
    check_case(cluster,
               {.collective = Collective::all_gather,
                .algorithm = "direct",
                .type = DataType::float16,
                .codec = *parse_codec("minmax:bits=5,bucket=100,skip_incomplete=1"),
                .count = 4097,
                .ranks = 2},
               golden::Kind::few_specials, false);
}

// The contract in plain C++: the inputs are added one after the other, and nothing else happens.
void direct_without_codec_is_the_ordered_sum() {
    constexpr uint32_t ranks = 5;
    TwinCall call{.algorithm = "direct", .count = 10007, .ranks = ranks};
    const auto inputs = make_inputs(call, golden::Kind::spread);
    Cluster cluster(ranks);
    const auto outputs =
        cluster.run_all(call, cuts_of(Cluster::test_options(), false), inputs, false);
    const auto at = [](const Bytes &bytes, uint64_t i) {
        float value;
        std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        return value;
    };
    for (const auto &of_cut : outputs)
        for (const Bytes &output : of_cut)
            for (uint64_t i = 0; i < call.count; i++) {
                float sum = at(inputs[0], i);
                for (uint32_t r = 1; r < ranks; r++) sum += at(inputs[r], i);
                CHECK(at(output, i) == sum);
            }
}

// The calls have so many tasks that a trial of the other way of storing lies within the call
// (pipeline_lane.hpp).
void past_the_cache_and_through_it_bytes_are_the_same() {
    constexpr uint32_t ranks = 3;
    const TransportOptions options = Cluster::test_options();
    for (const char *codec : codecs)
        for (const char *algorithm : {"ring", "direct"}) {
            Cluster cluster(ranks);
            TwinCall call{.algorithm = algorithm,
                          .codec = *parse_codec(codec),
                          .count = 120011,
                          .ranks = ranks,
                          .seed = 5};
            const Chunking cut{.outbox_bytes = options.outbox_bytes,
                               .slots = options.slots,
                               .segment_bytes = 1024};
            const auto inputs = make_inputs(call, golden::Kind::few_specials);
            if (!check_codec(call.codec, call.collective, call.type, call.op)) continue;
            if (call.codec.sums_exactly && call.algorithm == "ring") continue; // rounds on the way
            const std::vector<Chunking> cuts{cut};
            const auto expected = slow_twin(call, inputs);
            const auto outputs = cluster.run_all(call, cuts, inputs, false);
            CHECK(outputs[0] == expected);
        }
}

// Calls of many sizes follow each other: slots move in the outbox while slower ranks still read.
void sizes_may_change_from_call_to_call() {
    constexpr uint32_t ranks = 3;
    Cluster cluster(ranks);
    const TransportOptions options = Cluster::test_options();
    std::vector<TwinCall> calls;
    for (uint64_t i = 0; i < 200; i++)
        calls.push_back({.algorithm = i % 3 == 0 ? "ring" : "direct",
                         .codec = *parse_codec(i % 2 == 0 ? "none" : "int8"),
                         .count = splitmix64(i) % 5000,
                         .ranks = ranks,
                         .number = i + 1});
    cluster.on_each([&](uint32_t rank) {
        for (size_t i = 0; i < calls.size(); i++) {
            const Chunking cut{.outbox_bytes = options.outbox_bytes,
                               .slots = options.slots,
                               .segment_bytes = size_t{256} << i % 5,
                               .lanes = static_cast<uint32_t>(1 + i % 4)};
            const auto program = compile_for(calls[i], rank, cut);
            CHECK_OK(program);
            const auto inputs = make_inputs(calls[i], golden::Kind::spread);
            const auto output = cluster.run(rank, calls[i], *program, inputs[rank], false);
            CHECK_OK(output);
            CHECK(*output == slow_twin(calls[i], inputs)[rank]);
        }
    });
}

void nobody_leaves_a_barrier_before_all_have_come() {
    const size_t usual = Cluster::test_options().eager_slot_bytes;
    for (const auto &way :
         {std::pair("oneshot", size_t{0}), {"oneshot", usual}, {"doubling", size_t{0}}})
        for (const uint32_t ranks : {1, 2, 5}) {
            // Clang 14 captures no structured bindings.
            const char *const algorithm = way.first;
            const size_t eager_slot_bytes = way.second;
            Cluster cluster(ranks);
            std::atomic<uint64_t> arrivals{0};
            cluster.on_each([&](uint32_t rank) {
                TwinCall call{
                    .collective = Collective::barrier, .algorithm = algorithm, .ranks = ranks};
                const auto program =
                    compile_for(call, rank, {.eager_slot_bytes = eager_slot_bytes});
                CHECK_OK(program);
                CHECK_EQ(program->fast_path.has_value(), eager_slot_bytes != 0);
                for (call.number = 1; call.number <= 50; call.number++) {
                    arrivals++;
                    CHECK_OK(cluster.run(rank, call, *program, {}, false));
                    CHECK(arrivals >= call.number * ranks);
                }
            });
        }
}

// One thread reads a rank's counts while another thread runs its calls.
void counts_may_be_read_at_any_time() {
    TwinCall call{.algorithm = "direct", .count = 50000, .ranks = 2};
    Cluster cluster(2);
    std::atomic<bool> is_over{false};
    bool went_back = false;
    std::thread reader([&] {
        uint64_t calls = 0;
        while (!is_over) {
            const Counts seen = cluster.rank(0).engine->counts();
            went_back |= seen.calls < calls;
            calls = seen.calls;
        }
    });
    const auto inputs = make_inputs(call, golden::Kind::spread);
    for (int i = 0; i < 20; i++)
        cluster.run_all(call, {Chunking{.outbox_bytes = 4 << 20}}, inputs, false);
    is_over = true;
    reader.join();
    CHECK(!went_back);
    const Counts seen = cluster.rank(0).engine->counts();
    CHECK_EQ(seen.calls, 20U);
    CHECK_EQ(seen.raw_bytes, 20U * 50000 * 4);
    CHECK(seen.encode_ns > 0 && seen.copy_ns > 0 && seen.wire_ns > 0 && seen.wait_ns > 0);
}

// What a tick takes is known better from look to look.
void no_time_goes_back() {
    Counters counters;
    counters.encode_ticks.add(uint64_t{1} << 40);
    uint64_t told = 0;
    for (int look = 0; look < 10000; look++) {
        const uint64_t now = counters.read().encode_ns;
        CHECK(now >= told);
        told = now;
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_case_gives_the_slow_twins_bytes),
        QTEST(raw_values_keep_their_bits),
        QTEST(direct_without_codec_is_the_ordered_sum),
        QTEST(past_the_cache_and_through_it_bytes_are_the_same),
        QTEST(sizes_may_change_from_call_to_call),
        QTEST(nobody_leaves_a_barrier_before_all_have_come),
        QTEST(counts_may_be_read_at_any_time),
        QTEST(no_time_goes_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
