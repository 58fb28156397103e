// Tests lib/engine/compile/program: what compile works out before any byte moves, which is the
// bytes that will be sent, the place of the accumulators, batches, waits, and the error if
// something does not fit.
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/forms.hpp"
#include "tests/transport/faulty_transport.hpp"

#include "base/types.hpp"
#include "plan/planner.hpp"

#include <string_view>

using namespace qtest;

namespace {

Program compiled(const TwinCall &call, uint32_t rank, const Chunking &cut = {}) {
    auto program = compile_for(call, rank, cut);
    CHECK_OK(program);
    return std::move(*program);
}

TwinCall call_of(const char *algorithm, const char *codec, uint64_t count, uint32_t ranks) {
    return {.algorithm = algorithm, .codec = *parse_codec(codec), .count = count, .ranks = ranks};
}

void counts_the_bytes_that_travel() {
    constexpr uint32_t ranks = 3;
    for (const Collective collective : value_collectives)
        for (const char *algorithm : {"ring", "direct", "oneshot"})
            for (const uint64_t count : {0, 1, 700, 5000}) {
                if (!parse_algorithm(algorithm)->has(collective)) continue;
                TwinCall call = call_of(algorithm, "int4", count, ranks);
                call.collective = collective;
                std::vector<uint64_t> sent(ranks, 0);
                const Wrap watch = [&](uint32_t rank, std::unique_ptr<Transport> transport) {
                    return std::make_unique<FaultyTransport>(
                        std::move(transport),
                        Faults{.sent = [&, rank](size_t bytes) { sent[rank] += bytes; }});
                };
                Cluster cluster(ranks, Cluster::test_options(), watch);
                const Chunking cut{.outbox_bytes = Cluster::test_options().outbox_bytes,
                                   .slots = Cluster::test_options().slots,
                                   .segment_bytes = 1024};
                cluster.run_all(call, {cut}, make_inputs(call, golden::Kind::spread), false);
                for (uint32_t r = 0; r < ranks; r++) {
                    const Counts counts = cluster.rank(r).engine->counts();
                    CHECK_EQ(counts.wire_bytes, sent[r]);
                    CHECK_EQ(counts.calls, 1U);
                    CHECK_EQ(counts.raw_bytes, 4 * vector_count(collective, count, ranks));
                }
            }
}

void plain_lines_carry_values_alone() {
    const Program program =
        compiled(call_of("oneshot", "none", 100, 4), 1, {.eager_slot_bytes = size_t{4} << 10});
    CHECK(program.fast_path.has_value());
    CHECK_EQ(program.fast_path->eager_slot_bytes, 400U);
    CHECK_EQ(program.wire_bytes, 3U * 400);
    const Program encoded =
        compiled(call_of("oneshot", "int8", 100, 4), 1, {.eager_slot_bytes = size_t{4} << 10});
    CHECK_EQ(encoded.fast_path->eager_slot_bytes,
             encoded_bytes(encoded.work.codec, DataType::float32, 100));
    CHECK_EQ(encoded.wire_bytes, 3 * encoded.fast_path->eager_slot_bytes);
}

void what_does_not_fit_a_line_takes_mailboxes() {
    for (const uint64_t count : {1024, 1025}) {
        const Program program = compiled(call_of("oneshot", "none", count, 2), 0,
                                         {.eager_slot_bytes = size_t{4} << 10});
        CHECK_EQ(program.fast_path.has_value(), count == 1024);
    }
}

// A line holds its own rank's part of an all-gather, and any rank may have the longest one.
void the_longest_part_has_to_fit_a_line() {
    constexpr uint32_t ranks = 3;
    for (uint32_t longest = 0; longest < ranks; longest++)
        for (const uint64_t count : {1024, 1025}) {
            VFormParts parts{.v_form = all_gather_v, .sent = {}, .received = {}};
            for (uint32_t rank = 0; rank < ranks; rank++) {
                const uint64_t here = rank == longest ? count : 0;
                parts.sent.push_back({.start = 0, .count = here});
                parts.received.push_back({.start = rank > longest ? count : 0, .count = here});
            }
            const Team team{.size = ranks, .rank = 0};
            const auto schedule = emit(*parse_algorithm("oneshot"), all_gather_v, team);
            CHECK_OK(schedule);
            const Work work{.collective = Collective::all_gather,
                            .codec = {},
                            .inner_codec = {},
                            .count = count,
                            .parts = std::make_shared<const VFormParts>(parts),
                            .team = team,
                            .algorithm = "oneshot"};
            const auto program = compile(*schedule, work, {.eager_slot_bytes = size_t{4} << 10});
            CHECK_OK(program);
            CHECK_EQ(program->fast_path.has_value(), count == 1024);
        }
}

void two_exchanges_go_over_lines_that_may_have_them() {
    struct Expected {
        Collective collective;
        size_t exchanges;
    };
    for (const Expected expected : {Expected{Collective::all_reduce, 2},
                                    {Collective::reduce_scatter, 1},
                                    {Collective::all_gather, 1}})
        for (const char *const codec : {"none", "int8"})
            for (uint32_t rank = 0; rank < 4; rank++) {
                TwinCall call = call_of("direct", codec, 100, 4);
                call.collective = expected.collective;
                const Program program = compiled(
                    call, rank, {.eager_slot_bytes = size_t{4} << 10, .eager_exchanges = 2});
                CHECK(program.fast_path.has_value());
                CHECK_EQ(program.fast_path->exchanges(), expected.exchanges);
                for (const auto &stage : program.fast_path->stages) CHECK(!stage.empty());
            }
}

// Compiles one call on all ranks, if they go over eager slots.
std::vector<Program> fast_programs(TwinCall call) {
    std::vector<Program> programs;
    for (uint32_t rank = 0; rank < call.ranks; rank++)
        programs.push_back(compiled(call, rank, {.eager_slot_bytes = size_t{64} << 10}));
    CHECK(programs.front().fast_path.has_value());
    return programs;
}

// Checks what each rank expects of the others' slots. Returns whether every slot can have one
// length only.
bool check_slot_lengths(const std::vector<Program> &programs) {
    bool is_exact = true;
    for (const Program &reader : programs) {
        const FastPathProgram &fast_path = *reader.fast_path;
        for (size_t i = 0; i < fast_path.reads.size(); i++) {
            const uint64_t posted = programs[fast_path.read_ranks[i]].fast_path->eager_slot_bytes;
            CHECK(posted >= fast_path.reads[i].bytes);
            CHECK(posted - fast_path.reads[i].bytes <= fast_path.reads[i].spare);
            if (fast_path.read_ranks[i] != reader.work.team.rank)
                is_exact = is_exact && fast_path.reads[i].spare == 0;
        }
    }
    return is_exact;
}

// Every length that a rank posts is accepted. Only slots that have parts for several ranks may
// be longer than what one rank reads of them.
void slots_are_as_long_as_their_readers_expect() {
    for (const Algorithm &algorithm : algorithms())
        for (const Collective collective : value_collectives)
            for (const char *codec : {"none", "int8"})
                for (const uint64_t count : {0, 1, 100, 700})
                    for (const uint32_t root : {0U, 2U, 4U}) {
                        if (!algorithm.has(collective) ||
                            !algorithm.fits_exchanges(collective, 5, 1))
                            continue;
                        TwinCall call = call_of(spec(algorithm).c_str(), codec, count, 5);
                        call.collective = collective;
                        call.root = root;
                        const bool has_parts_for_several =
                            collective == Collective::reduce_scatter ||
                            collective == Collective::scatter ||
                            collective == Collective::all_to_all;
                        const bool is_exact = check_slot_lengths(fast_programs(call));
                        CHECK(is_exact || has_parts_for_several);
                    }
}

void several_exchanges_do_not_go_over_lines() {
    for (const char *algorithm : {"ring", "direct"}) {
        const auto program =
            compile_for(call_of(algorithm, "none", 64, 3), 0, {.eager_slot_bytes = 4096});
        CHECK(!program);
        CHECK(program.error().code == Code::internal_error);
    }
}

// A lossless sum in the type of the tensor is accumulated where it is sent from. All other sums
// need one tile.
void joined_sums_need_no_segment() {
    const auto needs = [](const char *codec, DataType type, bool joins) {
        TwinCall call = call_of("direct", codec, 100000, 3);
        call.type = type;
        const Program program = compiled(call, 1, {.joins = joins});
        return std::pair(program.tile_buffers, program.segment_buffers);
    };
    CHECK(needs("none", DataType::float32, true) == std::pair(1U, 0U));
    CHECK(needs("none", DataType::float16, true) == std::pair(1U, 0U));
    CHECK(needs("int8", DataType::float32, true) == std::pair(1U, 0U));
    CHECK(needs("int8", DataType::float32, false) == std::pair(0U, 1U));
}

// A oneshot reduce-scatter passes the rank's own values through the codec. Without a codec the
// values are not copied.
void staying_values_are_not_copied_without_loss() {
    const auto ops = [](const char *algorithm, const char *codec, bool joins) {
        TwinCall call = call_of(algorithm, codec, 1000, 3);
        call.collective = Collective::reduce_scatter;
        std::vector<Op::What> kinds;
        for (const Op &op : compiled(call, 1, {.joins = joins}).ops) kinds.push_back(op.what);
        return kinds;
    };
    CHECK(ops("oneshot", "none", true) == ops("direct", "none", true));
    CHECK_EQ(ops("oneshot", "none", false).size(), ops("direct", "none", false).size() + 2);
    for (const bool joins : {true, false})
        CHECK_EQ(std::ranges::count(ops("oneshot", "int8", joins), Op::What::encode), 3);
}

// Sums that are computed one after the other share their accumulators, however many ranks there
// are.
void segments_of_accumulators_are_shared() {
    const Program program = compiled(call_of("ring", "int8", 1 << 20, 16), 3, {.joins = false});
    CHECK(program.segment_buffers <= 2);
}

// Each task comes after all tasks that it waits for, and no task waits for itself.
void tasks_wait_for_earlier_ones() {
    for (const char *algorithm : {"ring", "direct", "oneshot"})
        for (const bool joins : {true, false}) {
            const Program program =
                compiled(call_of(algorithm, "int4", 10000, 5), 2, {.joins = joins});
            std::vector<uint32_t> waits(program.tasks.size(), 0);
            for (uint32_t i = 0; i < program.tasks.size(); i++) {
                const Task &task = program.tasks[i];
                for (uint32_t k = task.next_first; k < task.next_last; k++) {
                    CHECK(program.next[k] > i);
                    waits[program.next[k]]++;
                }
            }
            CHECK(waits == program.waits);
        }
}

void tiles_are_cut_at_the_grain() {
    const auto tile = [](const char *codec) {
        return compiled(call_of("direct", codec, 1 << 20, 2), 0, {}).tile;
    };
    CHECK_EQ(tile("none"), 2048U);
    CHECK_EQ(tile("int8:block=100") % grain(*parse_codec("int8:block=100")), 0U);
    CHECK_EQ(tile("minmax:bucket=8192"), 8192U);
    CHECK_EQ(tile("minmax:bucket=all"), uint64_t{1} << 19);
}

// Codecs whose chunks cannot be cut have plans and programs for any size.
void no_size_is_too_large() {
    const PlannerInputs inputs{.speeds = {}, .limits = limits_of({})};
    for (const char *const codec : {"topk", "topk:ratio=1", "minmax:bucket=all",
                                    "int8:block=1073741824", "onebit", "terngrad"})
        for (const uint32_t ranks : {2U, 4U, 8U, 64U})
            for (const uint64_t count : {1ULL, 4ULL << 20, 256ULL << 20, 1ULL << 36})
                for (const Algorithm &algorithm : algorithms()) {
                    if (!algorithm.has(Collective::all_reduce)) continue;
                    TwinCall call = call_of(spec(algorithm).c_str(), codec, count, ranks);
                    call.inner_codec = call.codec;
                    const Problem problem{.count = count, .ranks = ranks, .codec = call.codec};
                    CHECK_OK(choose(problem, inputs, algorithm));
                    const Program program = compiled(call, 0, {});
                    CHECK(!program.overflows || program.geometry.lanes == 1);
                }
}

// A call that does not fit the arena gets one lane and is marked as overflowing; a call that fits
// is not.
void a_small_arena_is_said_to_overflow() {
    const TwinCall call = call_of("direct", "none", 100000, 8);
    const Program roomy = compiled(call, 0, {});
    CHECK(!roomy.overflows);
    const Program small = compiled(call, 0, {.outbox_bytes = 1024});
    CHECK(small.overflows);
    CHECK_EQ(small.geometry.lanes, 1U);
    CHECK(!compiled(call, 0, {.outbox_bytes = small.geometry.arena_bytes}).overflows);
    CHECK(compiled(call, 0, {.outbox_bytes = small.geometry.arena_bytes - 1}).overflows);
}

// A block that is larger than the data needs only the memory of the part that is filled.
void memory_is_as_large_as_what_there_is() {
    const TwinCall call = call_of("direct", "int8:block=1073741824", 1000000, 4);
    const Program program = compiled(call, 1, {.outbox_bytes = 65536});
    CHECK(program.overflows);
    CHECK(program.segment_values < 1000064 && program.tile <= program.segment_values);
    // The first of the four chunks holds all values.
    uint64_t bytes = 0;
    for (const ByteRange &place : overflow_places(program)) bytes += place.bytes;
    CHECK(bytes < program.geometry.wire_bytes + 4 * header_bytes);
}

// There are enough slots for every algorithm, for any number of ranks and any placement of them.
void every_algorithm_finds_slots() {
    for (const uint32_t ranks : {2U, 3U, 8U, 17U, 100U, 255U, 511U})
        for (const uint32_t per_host : {1U, 2U, 16U}) {
            std::vector<RankLocation> spots;
            for (uint32_t rank = 0; rank < ranks; rank++)
                spots.push_back({.node = rank, .host = rank / per_host, .rack = rank / 64});
            const RankTopology places(spots);
            for (const Algorithm &algorithm : algorithms())
                for (const Collective collective : value_collectives)
                    for (const uint32_t rank : {0U, ranks / 2, ranks - 1}) {
                        if (!algorithm.has(collective)) continue;
                        const auto author = emit(algorithm, collective,
                                                 {.size = ranks, .rank = rank, .places = &places});
                        CHECK_OK(author);
                        const auto placed = place_codec(*author);
                        CHECK_OK(placed);
                        CHECK(placed->outbox <= slots_for(ranks));
                        CHECK(placed->wires - placed->outbox <= slots_for(ranks));
                    }
        }
}

void says_what_does_not_fit() {
    const auto few = compile_for(call_of("direct", "none", 100000, 8), 0, {.slots = 7});
    CHECK(!few && few.error().code == Code::invalid_argument);
    CHECK(std::string_view(few.error().text).find("8 wire slots") != std::string_view::npos);
}

// Incomplete buckets travel as plain values here, so 233 values need more bytes than 256 values.
void slots_hold_the_largest_chunk_that_comes() {
    const char *const codec = "minmax:bits=6,bucket=64,skip_incomplete=1";
    for (uint64_t count = 1; count < 400; count++) {
        TwinCall call = call_of("direct", codec, count, 2);
        call.type = DataType::float16;
        const Program program = compiled(call, 0, {.segment_bytes = 512});
        for (uint64_t part = 0; part <= std::min(count, program.geometry.segment); part++)
            CHECK(encoded_bytes(call.codec, call.type, part) <= program.geometry.wire_bytes);
    }
}

// Planner and compiler cut calls alike.
void programs_are_cut_as_planned() {
    for (const Chunking &cut :
         {Chunking{}, Chunking{.outbox_bytes = 1 << 16, .slots = 9, .segment_bytes = 2048}})
        for (const char *codec : {"none", "int4", "minmax:bits=2,bucket=all",
                                  "minmax:bits=6,bucket=64,skip_incomplete=1"})
            for (const char *algorithm : {"ring", "direct", "oneshot"})
                for (const uint64_t count : {0, 1, 233, 4000, 100000})
                    for (const Collective collective : value_collectives) {
                        TwinCall call = call_of(algorithm, codec, count, 4);
                        call.collective = collective;
                        call.inner_codec = call.codec;
                        const Problem problem{.collective = collective,
                                              .count = count,
                                              .ranks = call.ranks,
                                              .codec = call.codec};
                        const PlannerInputs inputs{.speeds = {}, .limits = limits_of(cut)};
                        const auto plan = choose(problem, inputs, *parse_algorithm(algorithm));
                        const auto program = compile_for(call, 1, cut);
                        CHECK_EQ(plan.is_ok(), program.is_ok());
                        if (plan) CHECK(plan->geometry == program->geometry);
                    }
}

std::vector<const Task *> sends_of(const Program &program) {
    std::vector<const Task *> sends;
    for (const Task &task : program.tasks)
        if (task.kind == Task::Kind::send) sends.push_back(&task);
    return sends;
}

// In halving, rank 0 of 4 sends two chunks to rank 2, then one to rank 1, receives its own sum,
// sends it to rank 1, and at the end sends two chunks to rank 2.
void small_messages_to_one_peer_go_together() {
    const Chunking remote{.inbox_bytes = size_t{16} << 20};
    const TwinCall small = call_of("halving", "int4", 16384, 4);
    const Program program = compiled(small, 0, remote);
    const auto sends = sends_of(program);
    CHECK_EQ(sends.size(), 6U);
    const bool goes_with_next[] = {true, false, false, false, true, false};
    for (size_t i = 0; i < sends.size(); i++) CHECK_EQ(sends[i]->goes_with_next, goes_with_next[i]);
    // Of the last two sends, the second forwards what comes from rank 1, and both wait for that.
    const auto waits_of = [&](const Task *send) {
        return program.waits[static_cast<size_t>(send - program.tasks.data())];
    };
    CHECK(waits_of(sends[4]) > 1);
    // On one host, or if the messages are larger, each send goes as soon as it can.
    for (const Program &other :
         {compiled(small, 0), compiled(call_of("halving", "int4", 65536, 4), 0, remote)}) {
        for (const Task *send : sends_of(other)) CHECK(!send->goes_with_next);
        const Task *const last = sends_of(other)[4];
        CHECK_EQ(other.waits[static_cast<size_t>(last - other.tasks.data())], 1U);
    }
}

// Rank 0 of 16 first sends eight chunks to one peer: each batch has as many of them as fit into one
// network message.
void batches_are_no_longer_than_a_network_message() {
    const Chunking remote{.inbox_bytes = size_t{16} << 20};
    for (const uint64_t chunk_values : {4096, 3000, 1024}) {
        const Program program =
            compiled(call_of("halving", "int4", 16 * chunk_values, 16), 0, remote);
        const auto sends = sends_of(program);
        const uint64_t bytes =
            most_encoded_bytes(*parse_codec("int4"), DataType::float32, chunk_values);
        const uint64_t at_once = messages_per_batch(bytes);
        CHECK(at_once > 1);
        for (size_t i = 0; i < 8; i++)
            CHECK_EQ(sends[i]->goes_with_next, i % at_once != at_once - 1 && i != 7);
    }
}

// The root of a broadcast receives nothing, so it has no receive buffers.
void a_root_batches_what_it_sends() {
    TwinCall call = call_of("direct", "int4", 4096, 2);
    call.collective = Collective::broadcast;
    call.inner_codec = call.codec;
    const Program program = compiled(call, 0, {.inbox_bytes = size_t{16} << 20});
    CHECK_EQ(program.recv_buffers(), 0U);
    const auto sends = sends_of(program);
    CHECK(sends.size() > 1);
    for (const Task *send : sends) CHECK_EQ(send->goes_with_next, send != sends.back());
}

// Two long codec specs with the same beginning must have different hashes.
void long_specs_are_told_apart() {
    TwinCall call = call_of("direct", "minmax:bits=5,bucket=100000,round=stochastic,seed=1", 64, 2);
    const Program one = compiled(call, 0);
    call.codec.seed = 2;
    const Program two = compiled(call, 0);
    CHECK(one.shape.fingerprint() != two.shape.fingerprint());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(counts_the_bytes_that_travel),
        QTEST(plain_lines_carry_values_alone),
        QTEST(what_does_not_fit_a_line_takes_mailboxes),
        QTEST(the_longest_part_has_to_fit_a_line),
        QTEST(two_exchanges_go_over_lines_that_may_have_them),
        QTEST(slots_are_as_long_as_their_readers_expect),
        QTEST(several_exchanges_do_not_go_over_lines),
        QTEST(joined_sums_need_no_segment),
        QTEST(staying_values_are_not_copied_without_loss),
        QTEST(segments_of_accumulators_are_shared),
        QTEST(tasks_wait_for_earlier_ones),
        QTEST(tiles_are_cut_at_the_grain),
        QTEST(no_size_is_too_large),
        QTEST(a_small_arena_is_said_to_overflow),
        QTEST(memory_is_as_large_as_what_there_is),
        QTEST(every_algorithm_finds_slots),
        QTEST(says_what_does_not_fit),
        QTEST(slots_hold_the_largest_chunk_that_comes),
        QTEST(programs_are_cut_as_planned),
        QTEST(small_messages_to_one_peer_go_together),
        QTEST(batches_are_no_longer_than_a_network_message),
        QTEST(a_root_batches_what_it_sends),
        QTEST(long_specs_are_told_apart),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
