// Tests calls whose buffers peers read in place: they give the slow twin's bytes whichever ranks
// expose their buffers, no call returns while a peer still reads, and no result is wrong if a call
// fails. Every rank scribbles over its buffers as soon as its call has returned. QTEST_FULL=1 runs
// the whole table of cases, otherwise a pair sample.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/sample.hpp"
#include "tests/transport/faulty_transport.hpp"

#include "codec/chunk.hpp"

#include <atomic>
#include <cstdio>
#include <random>

using namespace qtest;

namespace {

constexpr RedOp ops[] = {RedOp::sum, RedOp::avg, RedOp::prod, RedOp::max, RedOp::min};

// No elements, fewer than one for each rank, and counts that leave an odd rest; last so many that
// no segment is empty, with a last chunk that is a little shorter.
std::vector<uint64_t> counts(uint32_t ranks) {
    return {0, 1, ranks - 1, 1001, 4097, uint64_t{6720} * ranks - 3};
}

Chunking zero_copy_cut(size_t segment_bytes, uint32_t lanes) {
    const TransportOptions options = Cluster::test_options();
    return {.outbox_bytes = options.outbox_bytes,
            .slots = options.slots,
            .segment_bytes = segment_bytes,
            .lanes = lanes,
            .zero_copy_bytes = 0,
            .overwriting_bytes = 0};
}

// Many small segments, few large ones, no tiles, and no zero copy.
std::vector<Chunking> cuts() {
    std::vector<Chunking> cuts{zero_copy_cut(4096, 3), zero_copy_cut(65536, 2),
                               zero_copy_cut(16384, 4), zero_copy_cut(4096, 2)};
    cuts[2].joins = false;
    cuts[3].zero_copy_bytes = ~uint64_t{0};
    return cuts;
}

// Shakes the order of events, and counts the messages that consist of a header alone.
Wrap shaken(std::atomic<uint64_t> &headers) {
    return [&headers](uint32_t rank, std::unique_ptr<Transport> transport) {
        const auto random = std::make_shared<std::minstd_rand>(rank + 1);
        Faults faults;
        faults.holds = [random](uint32_t, MessageTag) { return (*random)() % 4 == 0; };
        // Long enough for other messages to come and go.
        const auto full_until = std::make_shared<Clock::time_point>();
        faults.is_full = [=](uint32_t) {
            const auto now = Clock::now();
            if (now < *full_until) return true;
            if ((*random)() % 16 == 0) *full_until = now + 300us;
            return now < *full_until;
        };
        faults.sent = [&headers](size_t bytes) { headers += bytes == header_bytes; };
        return std::make_unique<FaultyTransport>(std::move(transport), faults);
    };
}

void check_case(Cluster &cluster, TwinCall call, bool in_place) {
    const auto inputs = make_inputs(call, golden::Kind::few_specials);
    const auto expected = slow_twin(call, inputs);
    const auto outputs = cluster.run_all(call, cuts(), inputs, in_place);
    for (size_t i = 0; i < outputs.size(); i++)
        for (uint32_t r = 0; r < call.ranks; r++)
            if (outputs[i][r] != expected[r])
                throw Failure{std::string(name(call.collective)) + " " + call.algorithm + " " +
                              name(call.type) + " " + name(call.op) + " count " +
                              std::to_string(call.count) + " ranks " + std::to_string(call.ranks) +
                              (in_place ? " in place" : "") + ": cut " + std::to_string(i) +
                              ", rank " + std::to_string(r) + ": not the slow twin's bytes"};
}

// Calls visit(call) for every combination that the library accepts.
template <class Visitor> void each_call(uint32_t ranks, Visitor visit) {
    for (const Collective collective : value_collectives)
        for (const Algorithm &algorithm : algorithms())
            for (const TypeInfo &type : type_table)
                for (const RedOp op : ops)
                    for (const uint64_t count : counts(ranks)) {
                        if (!takes_op(collective, op)) continue;
                        if (!algorithm.has(collective)) continue;
                        const TwinCall call{.collective = collective,
                                            .algorithm = spec(algorithm),
                                            .type = type.type,
                                            .op = op,
                                            .count = count,
                                            .ranks = ranks,
                                            .root = row_of(collective).has_root
                                                        ? static_cast<uint32_t>(count % ranks)
                                                        : 0};
                        if (check_codec(call.codec, collective, call.type, op)) visit(call);
                    }
}

enum class Exposing { none, some, all };

struct Team {
    uint32_t ranks;
    Exposing exposing;
};

std::vector<Team> teams() {
    std::vector<Team> all;
    for (const uint32_t ranks : {2, 3, 4, 5})
        for (const Exposing exposing : {Exposing::none, Exposing::some, Exposing::all})
            all.push_back({ranks, exposing});
    return all;
}

// In the large calls peers read something in place for certain.
ChosenCases choose_cases() {
    PairSample<7> sample;
    for (const Team &team : teams())
        each_call(team.ranks, [&](const TwinCall &call) {
            const auto all = counts(team.ranks);
            const auto nth = std::ranges::find(all, call.count) - all.begin();
            for (const uint64_t in_place : {0, 1})
                sample.offer(false,
                             {team.ranks * 3 + static_cast<uint64_t>(team.exposing),
                              PairSample<7>::value(call.algorithm),
                              static_cast<uint64_t>(call.collective),
                              static_cast<uint64_t>(call.type), static_cast<uint64_t>(call.op),
                              static_cast<uint64_t>(nth), in_place});
        });
    return sample.choose();
}

void check_calls(ChosenCases &cases, const Team &team) {
    const auto exposes = [=](uint32_t rank) {
        return team.exposing == Exposing::all || (team.exposing == Exposing::some && rank % 2 == 1);
    };
    std::atomic<uint64_t> headers{0};
    Cluster cluster(team.ranks, Cluster::test_options(), shaken(headers), exposes);
    each_call(team.ranks, [&](const TwinCall &call) {
        const bool is_large = call.count == counts(team.ranks).back();
        for (const bool in_place : {false, true}) {
            if (!cases.takes()) continue;
            const uint64_t before = headers;
            check_case(cluster, call, in_place);
            if (!is_large) continue; // a header alone may also be that of an empty chunk
            // In place, two ranks that exchange parts would each wait for the other to read first.
            const bool may_copy = in_place && row_of(call.collective).exchanges;
            if (team.exposing == Exposing::all && !may_copy) CHECK(headers > before);
            if (team.exposing == Exposing::none) CHECK_EQ(headers.load(), before);
        }
    });
}

void every_call_gives_the_slow_twins_bytes() {
    ChosenCases cases = choose_cases();
    for (const Team &team : teams()) check_calls(cases, team);
    printf("%llu of %llu cases\n", static_cast<unsigned long long>(cases.taken),
           static_cast<unsigned long long>(cases.cases));
    CHECK(cases.taken > 200 / thinning());
}

// Makes two calls on every rank. In the first one the ranks open each other's windows. `arm` is
// called before the second one, and check(rank, output, expected) gets what a rank has of it, and
// the slow twin's bytes.
template <class Arm, class Check>
void make_two_calls(Cluster &cluster, TwinCall call, const Chunking &cut, Arm arm, Check check) {
    const auto inputs = make_inputs(call, golden::Kind::spread);
    (void)cluster.run_all(call, {cut}, inputs, false);
    call.number = 2;
    const auto expected = slow_twin(call, inputs);
    arm();
    cluster.on_each([&](uint32_t rank) {
        const auto program = compile_for(call, rank, cut);
        CHECK_OK(program);
        check(rank, cluster.run(rank, call, *program, inputs[rank], false), expected[rank]);
    });
}

// Rank 2 reads the buffer of rank 0, slowly.
constexpr uint32_t reader = 2;
const TwinCall small_broadcast{
    .collective = Collective::broadcast, .algorithm = "oneshot", .count = 5000, .ranks = 3};

// The root has finished its steps once peers may read its buffer, but its call returns only after
// the last reader has finished.
void nobody_returns_while_a_peer_reads() {
    std::atomic<bool> is_slow{false}, has_returned{false}, returned_early{false};
    const auto holds = [&](uint32_t, MessageTag) {
        if (!is_slow) return false;
        std::this_thread::sleep_for(50ms);
        returned_early = has_returned.load();
        is_slow = false;
        return false;
    };
    Cluster cluster(small_broadcast.ranks, Cluster::test_options(),
                    inject_at(reader, {.holds = holds}), [](uint32_t) { return true; });
    make_two_calls(
        cluster, small_broadcast, zero_copy_cut(65536, 1), [&] { is_slow = true; },
        [&](uint32_t rank, const Result<Bytes> &output, const Bytes &expected) {
            if (rank == 0) has_returned = true;
            CHECK_OK(output);
            CHECK(*output == expected);
        });
    CHECK(!is_slow && !returned_early);
}

// The reader is slow enough to see what the rank whose buffer it reads does after that rank's call
// has failed.
void bytes_of_a_failed_rank_are_not_believed() {
    std::atomic<bool> is_armed{false}, has_returned{false};
    std::unique_ptr<Cluster> cluster;
    const auto damage = [&](Bytes &) {
        if (!is_armed) return;
        cluster->rank(0).transport->fail(Error::make(Code::revoked, "rank 0 has had enough"));
        await([&] { return has_returned.load(); });
    };
    cluster = std::make_unique<Cluster>(small_broadcast.ranks, Cluster::test_options(),
                                        inject_at(reader, {.damage = damage}),
                                        [](uint32_t) { return true; });
    make_two_calls(
        *cluster, small_broadcast, zero_copy_cut(65536, 1), [&] { is_armed = true; },
        [&](uint32_t rank, const Result<Bytes> &output, const Bytes &) {
            if (rank == 0) has_returned = true;
            if (rank != 1) CHECK(!output);
        });
}

// The n-th operation of one rank fails, for every n until none does. The rank returns at once and
// scribbles over what its peers read. A peer that has read the scribbled bytes must fail: a call
// that succeeds has the right result.
void check_failed_rank(Collective collective, const char *algorithm, bool all_expose) {
    constexpr uint32_t ranks = 3, injected = 1;
    const TwinCall call{.collective = collective,
                        .algorithm = algorithm,
                        .count = collective == Collective::all_reduce ? 200000U : 60000U,
                        .ranks = ranks};
    for (uint64_t n = 1, operations = n; operations >= n; n++) {
        operations = 0;
        bool is_armed = false;
        const Faults faults{.before = [&](const char *operation) -> Done {
            if (!is_armed || ++operations != n) return {};
            return Error::make(Code::system_error, "%s is made to fail", operation);
        }};
        Cluster cluster(ranks, Cluster::test_options(), inject_at(injected, faults),
                        [=](uint32_t rank) { return all_expose || rank == injected; });
        make_two_calls(
            cluster, call, zero_copy_cut(65536, 2), [&] { is_armed = true; },
            [&](uint32_t, const Result<Bytes> &output, const Bytes &expected) {
                if (output) CHECK(*output == expected);
            });
    }
}

// If one rank exposes its buffers, a peer that has read scribbled bytes passes them on to ranks
// that have read nothing in place.
void no_result_is_made_of_what_a_failed_rank_exposed() {
    for (const bool all_expose : {false, true})
        for (const char *algorithm : {"direct", "ring"})
            for (const Collective collective :
                 {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
                check_failed_rank(collective, algorithm, all_expose);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_call_gives_the_slow_twins_bytes),
        QTEST(nobody_returns_while_a_peer_reads),
        QTEST(bytes_of_a_failed_rank_are_not_believed),
        QTEST(no_result_is_made_of_what_a_failed_rank_exposed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
