// Tests programs with feedback: calls that follow one another give the slow twin's results and
// residuals byte for byte, for every algorithm that sums, every codec and every type of floats,
// however the calls are cut and whichever path they take. QTEST_FULL=1 runs the whole table,
// otherwise a pair sample.
#include "tests/kit/case_table.hpp"
#include "tests/kit/engine_ranks.hpp"
#include "tests/engine/state_twin.hpp"

#include <cmath>
#include <cstdio>
#include <optional>

using namespace qtest;

namespace {

constexpr uint32_t sizes[] = {1, 2, 3, 5, 8};
constexpr Collective sums[] = {Collective::all_reduce, Collective::reduce,
                               Collective::reduce_scatter};
constexpr const char *lossy_codecs[] = {"none",
                                        "fp16",
                                        "fp8e4m3",
                                        "int8",
                                        "int3:block=100",
                                        "int2:round=stochastic",
                                        "mxfp4:scale=ocp,round=stochastic",
                                        "nvfp4:bucket=all",
                                        "onebit:bucket=100",
                                        "terngrad:bucket=100,clip=1.5",
                                        "norm:bits=4,bucket=100,round=nearest",
                                        "norm:bits=5,norm=linf,levels=exponential",
                                        "topk:ratio=0.01",
                                        "dgc:ratio=0.02",
                                        "minmax:bits=2,bucket=all",
                                        "minmax:bits=5,bucket=100,skip_incomplete=1"};
constexpr uint64_t value_counts[] = {0, 1, 33, 1000, 4097, 20011};

struct Case {
    TwinCall call;
    Feedback feedback = Feedback::all;

    // A state of the codec has its momentum.
    uint32_t momentum() const { return call.codec.momentum; }
};

// Ranks of a hierarchy are on hosts of two; other algorithms have all ranks in one place.
std::vector<RankLocation> spots_of(const Algorithm &algorithm, uint32_t ranks) {
    if (!spec(algorithm).starts_with("hierarchy")) return {};
    std::vector<uint32_t> hosts;
    for (uint32_t rank = 0; rank < ranks; rank++) hosts.push_back(rank / 2);
    return spots_on(hosts);
}

template <class Visitor> void each_sum(uint32_t ranks, const Codec &codec, Visitor visit) {
    for (const Algorithm &algorithm : algorithms())
        for (const Collective collective : sums) {
            if (!algorithm.has(collective)) continue;
            TwinCall call{.collective = collective,
                          .algorithm = spec(algorithm),
                          .codec = codec,
                          .ranks = ranks,
                          .seed = 77,
                          .inner_codec = *parse_codec("int8"),
                          .spots = spots_of(algorithm, ranks)};
            if (codec.is_lossless()) call.inner_codec = {};
            for (const TypeInfo &type : type_table)
                for (const RedOp op : {RedOp::sum, RedOp::avg}) {
                    if (!type.is_float || !check_codec(codec, collective, type.type, op)) continue;
                    call.type = type.type;
                    call.op = op;
                    for (const uint64_t count : value_counts) {
                        call.count = count;
                        if (row_of(collective).has_root)
                            call.root = static_cast<uint32_t>(count % ranks);
                        visit(std::as_const(call));
                    }
                }
        }
}

template <class Visitor> void each_state_case(uint32_t ranks, Visitor visit) {
    for (const char *codec : lossy_codecs)
        each_sum(ranks, *parse_codec(codec), [&](const TwinCall &call) {
            for (const Feedback feedback : {Feedback::first, Feedback::all})
                visit(Case{call, feedback});
        });
}

std::vector<Chunking> cuts_of(bool is_one_exchange, bool has_hosts) {
    const TransportOptions options = Cluster::test_options();
    const Chunking base{.outbox_bytes = options.outbox_bytes,
                        .slots = options.slots,
                        .inbox_bytes = has_hosts ? options.outbox_bytes : 0};
    std::vector<Chunking> cuts(3, base);
    cuts[0].segment_bytes = 4096;
    cuts[0].lanes = 3;
    cuts[1].joins = false;
    cuts[1].segment_bytes = 16384;
    cuts[1].lanes = 2;
    cuts[2].lanes = 1;
    if (is_one_exchange) {
        cuts.push_back(base);
        cuts.back().eager_slot_bytes = options.eager_slot_bytes;
    }
    return cuts;
}

void check_bytes(const Case &tested, const Bytes &got, const Bytes &want, const char *what,
                 size_t cut, uint32_t rank, int nth) {
    if (got == want) return;
    const auto at = std::mismatch(want.begin(), want.end(), got.begin());
    throw Failure{words_of(tested.call, false) + ": cut " + std::to_string(cut) + ", rank " +
                  std::to_string(rank) + ", call " + std::to_string(nth) + " of the state: byte " +
                  std::to_string(at.first - want.begin()) + " of the " + what +
                  " is not the slow twin's"};
}

// The slow twin of collectives, which shares no schedules with the library, gives the same results.
// It has no noise of groups.
void check_twin(const TwinCall &call, const std::vector<Bytes> &inputs,
                const std::vector<Bytes> &outputs) {
    const bool draws = call.codec.draws_noise();
    if (call.ranks == 1 || accumulator_of(call.type) != call.type) return;
    if (draws && !call.spots.empty()) return;
    CHECK(slow_twin(call, inputs) == outputs);
}

// Makes calls one after the other with one state for each rank, anew with each cut.
void check_states(Cluster &cluster, Case tested, golden::Kind kind, bool in_place, uint64_t &made,
                  bool has_hosts = false) {
    constexpr int calls = 2;
    TwinCall &call = tested.call;
    const auto inputs = make_inputs(call, kind);
    const size_t bytes = send_count(call) * type_bytes(accumulator_of(call.type));
    const auto cuts = cuts_of(call.algorithm == "oneshot", has_hosts);
    std::vector<TwinStates> expected;
    std::vector<Bytes> owed(call.ranks, Bytes(bytes));
    std::vector<TwinVelocities> velocities;
    TwinVelocities velocity{tested.momentum(), owed};
    for (int nth = 1; nth <= calls; nth++) {
        call.number = static_cast<uint64_t>(nth);
        const auto sums_of_both = with_residuals(call, inputs, owed, velocity);
        expected.push_back(state_twin(call, sums_of_both, tested.feedback));
        check_twin(call, sums_of_both, expected.back().outputs);
        owed = expected.back().residuals;
        velocity.mask(call, expected.back());
        velocities.push_back(velocity);
    }
    const size_t behind = velocity.momentum != 0 ? bytes : 0;
    cluster.on_each([&](uint32_t rank) {
        TwinCall mine = call;
        mine.number = made;
        for (size_t cut = 0; cut < cuts.size(); cut++) {
            const auto program = compile_for(mine, rank, cuts[cut], tested.feedback);
            CHECK_OK(program);
            Bytes before(bytes + behind), after(bytes + behind, std::byte{0x5A});
            for (int nth = 1; nth <= calls; nth++) {
                mine.number++;
                const CallFeedback feedback{.owed = before.data(),
                                            .residual = after.data(),
                                            .call = static_cast<uint64_t>(nth),
                                            .momentum = velocity.momentum,
                                            .velocity = behind};
                const auto output =
                    cluster.run(rank, mine, *program, inputs[rank], in_place, &feedback);
                CHECK_OK(output);
                const TwinStates &want = expected[static_cast<size_t>(nth) - 1];
                check_bytes(tested, *output, want.outputs[rank], "result", cut, rank, nth);
                const auto end = after.begin() + static_cast<long>(bytes);
                check_bytes(tested, Bytes(after.begin(), end), want.residuals[rank], "residual",
                            cut, rank, nth);
                if (behind != 0)
                    check_bytes(tested, Bytes(end, after.end()),
                                velocities[static_cast<size_t>(nth) - 1].values[rank], "velocity",
                                cut, rank, nth);
                std::swap(before, after);
            }
        }
    });
    made += cuts.size() * calls;
}

void every_case_gives_the_slow_twins_results_and_residuals() {
    PairSample<7> sample;
    uint64_t all = 0;
    const auto team_of = [](uint64_t number) { return splitmix64(number) % std::size(sizes); };
    each_state_case(1, [&](const Case &tested) {
        const TwinCall &call = tested.call;
        sample.offer(call.count > 4000,
                     {team_of(all++), form_of(call), static_cast<uint64_t>(call.type),
                      static_cast<uint64_t>(call.op), PairSample<7>::value(spec(call.codec)),
                      call.count, static_cast<uint64_t>(tested.feedback)});
    });
    const ChosenCases chosen = sample.choose();
    uint64_t taken = 0;
    for (size_t team = 0; team < std::size(sizes); team++) {
        Cluster cluster(sizes[team]);
        ChosenCases cases = chosen;
        uint64_t made = 0;
        each_state_case(sizes[team], [&](const Case &tested) {
            const bool is_its_own = is_full() || team_of(cases.cases) == team;
            if (!cases.takes() || !is_its_own) return;
            taken++;
            const auto kind = taken % 4 == 0 ? golden::Kind::few_specials : golden::Kind::spread;
            check_states(cluster, tested, kind, taken % 3 == 0, made);
        });
    }
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(taken),
           static_cast<unsigned long long>(all * std::size(sizes)));
    CHECK(taken > 200 / thinning());
}

void hosts_make_no_difference() {
    const std::vector<uint32_t> hosts{0, 0, 1, 1, 2};
    Cluster cluster(5, on_hosts(hosts));
    uint64_t made = 0;
    for (const char *codec : {"int4", "terngrad", "topk:ratio=0.01", "dgc:ratio=0.01"})
        for (const char *algorithm : {"ring", "direct", "oneshot", "tree", "hierarchy"}) {
            const TwinCall call{.algorithm = algorithm,
                                .op = RedOp::avg,
                                .codec = *parse_codec(codec),
                                .count = 20011,
                                .ranks = 5,
                                .seed = 6,
                                .spots = spots_on(hosts)};
            check_states(cluster, {.call = call}, golden::Kind::spread, false, made, true);
        }
}

float value_at(const Bytes &bytes, size_t i) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
}

// The sum of all results and of what the ranks still owe is the sum of all inputs, up to the
// rounding of sums: no codec loses anything for ever. With avg this holds for what the ranks owe
// divided by their number.
void nothing_is_lost_for_ever() {
    constexpr uint32_t ranks = 4;
    constexpr int calls = 20;
    for (const char *codec : {"int2", "onebit", "terngrad", "topk:ratio=0.01"})
        for (const char *algorithm : {"ring", "direct", "oneshot", "doubling", "tree", "halving"})
            for (const RedOp op : {RedOp::sum, RedOp::avg}) {
                TwinCall call{.algorithm = algorithm,
                              .op = op,
                              .codec = *parse_codec(codec),
                              .count = 1000,
                              .ranks = ranks,
                              .seed = 3};
                if (!check_codec(call.codec, call.collective, call.type, call.op)) continue;
                const auto inputs = make_inputs(call, golden::Kind::spread);
                std::vector<Bytes> owed(ranks, Bytes(call.count * sizeof(float)));
                std::vector<double> got(call.count);
                for (int nth = 1; nth <= calls; nth++) {
                    call.number = static_cast<uint64_t>(nth);
                    TwinStates states =
                        state_twin(call, with_residuals(call, inputs, owed), Feedback::all);
                    owed = std::move(states.residuals);
                    for (size_t i = 0; i < call.count; i++)
                        got[i] += double{value_at(states.outputs[0], i)};
                }
                const double share = op == RedOp::avg ? ranks : 1;
                for (size_t i = 0; i < call.count; i++) {
                    double wanted = 0, kept = 0, size = 0;
                    for (uint32_t rank = 0; rank < ranks; rank++) {
                        wanted += calls * double{value_at(inputs[rank], i)} / share;
                        kept += double{value_at(owed[rank], i)} / share;
                        size += std::abs(double{value_at(inputs[rank], i)}) +
                                std::abs(double{value_at(owed[rank], i)});
                    }
                    CHECK(std::abs(got[i] + kept - wanted) <= 1e-4 * calls * size + 1e-30);
                }
            }
}

// What is not finite leaves no error, and takes none of others with it.
void values_that_are_not_finite_leave_no_error() {
    TwinCall call{.algorithm = "oneshot",
                  .codec = *parse_codec("int8:block=32"),
                  .count = 96,
                  .ranks = 2,
                  .number = 1};
    std::vector<Bytes> inputs = make_inputs(call, golden::Kind::spread);
    const float infinite = INFINITY;
    std::memcpy(inputs[0].data() + 40 * sizeof infinite, &infinite, sizeof infinite);
    const std::vector<Bytes> nothing(2, Bytes(call.count * sizeof(float)));
    const TwinStates states =
        state_twin(call, with_residuals(call, inputs, nothing), Feedback::all);
    bool has_error = false;
    for (size_t i = 0; i < call.count; i++) {
        const float error = value_at(states.residuals[0], i);
        CHECK(std::isfinite(error));
        if (i >= 32 && i < 64) CHECK_EQ(error, 0.F);
        has_error |= i < 32 && error != 0;
    }
    CHECK(has_error);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_case_gives_the_slow_twins_results_and_residuals),
        QTEST(hosts_make_no_difference),
        QTEST(nothing_is_lost_for_ever),
        QTEST(values_that_are_not_finite_leave_no_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
