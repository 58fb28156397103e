// Tests trace/call_log and trace/call_summary: a written log is read back unchanged, a damaged
// log is refused in words, and the summary of several ranks' logs is right.
#include "tests/kit/qtest.hpp"

#include "trace/call_log.hpp"

#include <random>

using namespace qccl;

namespace {

CallLogHead head_of(uint32_t rank, const std::string &host = "n1") {
    return {.rank = rank,
            .ranks = 4,
            .pid = 4711,
            .epoch_ns = 1'795'392'000'000'000'000,
            .host = host,
            .library = "1.2.3"};
}

LoggedComm comm_of(uint32_t rank) {
    return {.id = 1,
            .session = 0xFEDCBA9876543210,
            .parent = 0,
            .origin = "init",
            .rank = rank,
            .node = {0, 0, 1, 1},
            .ranks_per_core = 2.5,
            .name = "dp 100%\n"};
}

LoggedShape shape_of() {
    return {.id = 1,
            .comm = 1,
            .collective = Collective::all_reduce,
            .type = DataType::float16,
            .op = RedOp::avg,
            .root = 0,
            .count = UINT64_MAX,
            .asked_codec = "int4:block=64",
            .asked_algorithm = "auto",
            .codec = "int4:block=64",
            .inner_codec = "none",
            .algorithm = "hierarchy:inner=direct,outer=ring",
            .bytes = 1 << 20,
            .wire_bytes = 12345};
}

LoggedCall call_of(uint64_t number, int64_t start_ns) {
    return {.comm = 1,
            .shape = 1,
            .number = number,
            .tag = UINT64_MAX,
            .start_ns = start_ns,
            .duration_ns = 1000,
            .queued_ns = 17,
            .has_failed = number == 2};
}

// A log of three calls, one of which failed, and of a communicator that was split off.
std::string whole_log() {
    std::string text;
    append_row(text, head_of(2));
    append_row(text, comm_of(2));
    append_row(text, shape_of());
    for (uint64_t number = 1; number <= 3; number++)
        append_row(text, call_of(number, static_cast<int64_t>(number) * 5000));
    LoggedComm child = comm_of(1);
    child.id = 2;
    child.parent = 1;
    child.origin = "split";
    child.node = {0, 1};
    append_row(text, child);
    append_lost(text, 1, 4);
    append_lost(text, 2, 1);
    append_end(text, 2, 30000);
    append_end(text, 1, 40000);
    return text;
}

std::string refusal_of(std::string_view text) {
    const auto log = parse_call_log(text);
    CHECK(!log);
    CHECK(log.error().code == Code::damaged_data);
    return log.error().text;
}

// Returns the log with its row number `row`, counted from 1, replaced by `other`.
std::string with_row(size_t row, const std::string &other) {
    std::string text = whole_log();
    size_t begin = 0;
    while (--row != 0) begin = text.find('\n', begin) + 1;
    return text.replace(begin, text.find('\n', begin) - begin, other);
}

} // namespace

static void what_is_written_is_read_back() {
    const auto log = parse_call_log(whole_log());
    CHECK_OK(log);
    CHECK(log->head.rank == 2 && log->head.ranks == 4 && log->head.pid == 4711);
    CHECK_EQ(log->head.host, "n1");
    CHECK_EQ(log->head.library, "1.2.3");
    CHECK_EQ(log->comms.size(), size_t{2});
    CHECK_EQ(log->comms[0].name, "dp 100%\n");
    CHECK(log->comms[0].session == 0xFEDCBA9876543210 && log->comms[0].rank == 2);
    CHECK(log->comms[0].node == std::vector<uint32_t>({0, 0, 1, 1}));
    CHECK_EQ(log->comms[0].ranks_per_core, 2.5);
    CHECK(log->comms[1].parent == 1 && log->comms[1].origin == "split");
    CHECK_EQ(log->shapes.size(), size_t{1});
    CHECK(log->shapes[0].count == UINT64_MAX && log->shapes[0].op == RedOp::avg);
    CHECK_EQ(log->shapes[0].algorithm, "hierarchy:inner=direct,outer=ring");
    CHECK_EQ(log->shapes[0].wire_bytes, uint64_t{12345});
    CHECK_EQ(log->calls.size(), size_t{3});
    CHECK(log->calls[1].has_failed && !log->calls[2].has_failed);
    CHECK(log->calls[2].number == 3 && log->calls[2].tag == UINT64_MAX);
    CHECK(log->calls[2].start_ns == 15000 && log->calls[2].queued_ns == 17);
    CHECK(log->lost == 5 && log->has_ended && !log->is_cut);

    // Rows written again give the same text.
    std::string again;
    append_row(again, log->head);
    append_row(again, log->comms[0]);
    append_row(again, log->shapes[0]);
    for (const LoggedCall &call : log->calls) append_row(again, call);
    CHECK(whole_log().starts_with(again));
}

static void a_log_that_was_cut_off_is_read_as_far_as_it_goes() {
    const std::string text = whole_log();
    size_t calls = 0;
    for (size_t bytes = 0; bytes < text.size(); bytes++) {
        const auto log = parse_call_log(std::string_view(text).substr(0, bytes));
        const bool has_head = text.find('\n') < bytes;
        CHECK_EQ(log.is_ok(), has_head);
        if (!has_head) continue;
        CHECK_EQ(log->is_cut, text[bytes - 1] != '\n');
        CHECK(!log->has_ended);
        CHECK(log->calls.size() >= calls);
        calls = log->calls.size();
    }
    CHECK_EQ(calls, size_t{3});
}

// Flips each bit of a log. Damage must not crash the reader, and a log that is still read must be
// consistent.
static void flipped_bits_do_no_harm() {
    const std::string text = whole_log();
    size_t refused = 0;
    for (size_t i = 0; i < text.size() * 8; i++) {
        std::string damaged = text;
        damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
        const auto log = parse_call_log(damaged);
        if (!log) {
            refused++;
            CHECK(std::string_view(log.error().text).starts_with("line "));
            continue;
        }
        for (const LoggedCall &call : log->calls)
            CHECK(call.shape <= log->shapes.size() && call.comm <= log->comms.size());
        const CallLog logs[] = {*log, *parse_call_log(text)};
        CHECK_EQ(summarize(logs).ranks.size(), size_t{2});
    }
    CHECK(refused > text.size() * 2);
}

static void what_is_wrong_is_said() {
    CHECK_EQ(refusal_of(""),
             "the first line is not whole; a record of calls begins with qccl-calls");
    CHECK_EQ(refusal_of("[\n"), "line 1: '[' stands where qccl-calls is expected");
    CHECK_EQ(refusal_of(with_row(1, "qccl-calls 1 rank=0")),
             "line 1: calls are recorded in version 1; this program reads version 2");
    CHECK_EQ(refusal_of(with_row(2, "comm 2")),
             "line 2: '2' stands where the next communicator's number is expected");
    CHECK_EQ(refusal_of(with_row(2, "comm 1 session=1 parent=0 origin=init rank=9 ranks=4")),
             "line 2: '4' stands where a number for ranks is expected");
    CHECK_EQ(refusal_of(with_row(2, "comm 1 session=1 parent=0 origin=init rank=0 ranks=4 "
                                    "nodes=0*2 name=")),
             "line 2: nodes are given for 2 of 4 ranks");
    CHECK_EQ(refusal_of(with_row(2, "comm 1 session=1 parent=0 origin=init rank=0 ranks=4 "
                                    "nodes=0*99999999999 name=")),
             "line 2: '99999999999' stands where how many of the ranks are on a node is expected");
    for (const char *wrong : {"0.5", "nan", "1e9", "two"})
        CHECK_EQ(refusal_of(with_row(2, "comm 1 session=1 parent=0 origin=init rank=0 ranks=1 "
                                        "nodes=0*1 ranks_per_core=" +
                                            std::string(wrong) + " name=")),
                 "line 2: '" + std::string(wrong) +
                     "' stands where a number for ranks_per_core is expected");
    CHECK_EQ(refusal_of(with_row(4, "call 1 1 2 0 0 0 0")),
             "line 4: '2' stands where the number of a shape above is expected");
    CHECK_EQ(refusal_of(with_row(5, "call 1 1 1 0 0 0 0")),
             "line 5: '1' stands where a call's number above that of the one before is expected");
    CHECK_EQ(refusal_of(with_row(5, "call 1 2 1 0 0 0 0 0")),
             "line 5: '0' stands where the row's end is expected");
    CHECK_EQ(refusal_of(with_row(5, "call 1 2 1 0 9223372036854775807 0 0")),
             "line 5: '9223372036854775807' stands where a time in ns is expected");
    CHECK_EQ(refusal_of(with_row(5, "cal")),
             "line 5: 'cal' stands where call, failed, shape, comm, lost or end is expected");
    CHECK_EQ(refusal_of(with_row(7, "call 2 1 1 0 0 0 0")),
             "line 7: '2' stands where the number of a communicator above is expected");
}

// Returns a rank's log of calls that start at these times and last 100 us.
static CallLog log_of(uint32_t rank, const std::string &host, std::vector<int64_t> starts_us,
                      Collective collective = Collective::all_reduce) {
    CallLog log;
    log.head = head_of(rank, host);
    log.comms = {comm_of(rank)};
    log.shapes = {shape_of()};
    log.shapes[0].collective = collective;
    for (size_t i = 0; i < starts_us.size(); i++) {
        LoggedCall call = call_of(i + 1, starts_us[i] * 1000);
        call.duration_ns = 100'000;
        call.has_failed = false;
        log.calls.push_back(call);
    }
    return log;
}

static void skew_is_from_the_first_rank_to_the_last() {
    const CallLog logs[] = {log_of(0, "n1", {0, 200, 400}), log_of(1, "n1", {30, 210, 450}),
                            log_of(3, "n1", {10, 220, 410})};
    const CallSummary summary = summarize(logs);
    CHECK_EQ(summary.shapes.size(), size_t{1});
    const ShapeSummary &shape = summary.shapes[0];
    CHECK(shape.calls == 3 && shape.failed == 0);
    CHECK_EQ(shape.median_skew_ns, int64_t{30'000});
    CHECK_EQ(shape.longest_skew_ns, int64_t{50'000});
    CHECK(shape.last_rank == 1 && shape.times_last == 2);
    CHECK_EQ(shape.median_ns, int64_t{100'000});
    CHECK_EQ(shape.comm, "dp 100%\n, 4 ranks");
    CHECK(summary.ranks[0].span_ns == 500'000 && summary.ranks[0].call_ns == 300'000);
    CHECK(clock_shifts(logs) == std::vector<int64_t>({0, 0, 0}));
}

// The clock of n2 is 70 ms behind, so every rank of n2 seems to end before those of n1 have
// started.
static void clocks_that_are_proven_wrong_are_moved() {
    const CallLog logs[] = {log_of(0, "n1", {100'000, 200'000}),
                            log_of(1, "n2", {30'000, 130'040})};
    const auto shifts = clock_shifts(logs);
    CHECK_EQ(shifts[0], int64_t{0});
    // The first call bounds the shift to 69.9 to 70.1 ms, the second to 69.86 to 70.06 ms.
    CHECK_EQ(shifts[1], int64_t{69'980'000});
    // A broadcast's root may end before others start, and a failed call proves nothing about
    // clocks.
    CallLog failed = log_of(1, "n2", {30'000});
    failed.calls[0].has_failed = true;
    const CallLog unproven[] = {log_of(0, "n1", {100'000}), failed};
    CHECK(clock_shifts(unproven) == std::vector<int64_t>({0, 0}));
    const CallLog broadcasts[] = {log_of(0, "n1", {100'000}, Collective::broadcast),
                                  log_of(1, "n2", {30'000}, Collective::broadcast)};
    CHECK(clock_shifts(broadcasts) == std::vector<int64_t>({0, 0}));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_written_is_read_back),
        QTEST(a_log_that_was_cut_off_is_read_as_far_as_it_goes),
        QTEST(flipped_bits_do_no_harm),
        QTEST(what_is_wrong_is_said),
        QTEST(skew_is_from_the_first_rank_to_the_last),
        QTEST(clocks_that_are_proven_wrong_are_moved),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
