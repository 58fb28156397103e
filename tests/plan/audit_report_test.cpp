// Tests the audits of lib/plan/sampled_error: the findings that follow from samples, and their
// presentation as a table and as JSON.
#include "tests/kit/qtest.hpp"

#include "plan/sampled_error.hpp"

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

using namespace qccl;

namespace {

const std::vector<Codec> codecs{*parse_codec("int8"), *parse_codec("int4")};

AuditedShape shape_of(uint64_t tag, uint64_t count) { return {.tag = tag, .count = count}; }

// An entry with one sample of one of `ranks` ranks. The power of the sum is `power` times that of a
// sum of independent values.
AuditEntry sampled(double ranks, double power) {
    AuditEntry entry{.calls = 10, .samples = 0, .by_codec = {}};
    const std::vector<SampledLoss> input{{100, 0, 0.002}, {100, 0, 0.8}},
        sum{{100 * ranks * power, 0, 0.004 * ranks * power}, {100 * ranks * power, 0, 0.1}};
    entry.add_sample(input, sum, ranks, false);
    return entry;
}

AuditRow row_of(const AuditedShape &shape, const AuditEntry &entry, uint32_t ranks) {
    Problem usual;
    usual.ranks = ranks;
    auto row = audit_row(shape, entry, codecs, usual, {}, *parse_algorithm("ring"));
    CHECK_OK(row);
    row->comm = "init, 4 ranks";
    return *row;
}

bool is_local(double a, double b) { return std::abs(a - b) < 1e-9 * b; }

// The NMSE that is expected of a ring of 4 whose partial sums lose between what the input and the
// sum lose. The worst is the worse one of these two times the number of encodes. Both are larger if
// the ranks' values cancel each other out.
void findings_follow_from_samples() {
    const AuditRow row = row_of(shape_of(7, 1 << 20), sampled(4, 1), 4);
    CHECK_EQ(row.calls, 10U);
    CHECK_EQ(row.samples, 1U);
    CHECK_EQ(row.bytes, uint64_t{4} << 20);
    CHECK(is_local(row.findings[0].worst, 4e-5 * 2.5));
    CHECK(is_local(row.findings[1].worst, 8e-3 * 2.5));
    CHECK_EQ(row.findings[0].bits, 8.5);
    CHECK_EQ(row.findings[0].algorithm, "ring");
    CHECK(row.findings[0].ns > 0 && row.findings[0].lossless_ns > 0);
    CHECK(is_local(row_of(shape_of(7, 1 << 20), sampled(4, 3), 4).findings[1].worst, 8e-3 * 2.5));
    CHECK(is_local(row_of(shape_of(7, 1 << 20), sampled(4, 0.1), 4).findings[1].worst, 8e-2 * 2.5));
    for (const double power : {1.0, 3.0, 0.1}) {
        // Of the mean square of a sum of k of 4, this part is that of independent values.
        const double free = (4 / power - 1) / 3;
        double expected = 0;
        for (int k = 1; k <= 4; k++)
            expected += (free * k / 4 + (1 - free) * k * k / 16) * (2e-5 + 2e-5 * (k - 1) / 3);
        CHECK(is_local(row_of(shape_of(7, 1 << 20), sampled(4, power), 4).findings[0].nmse,
                       expected));
    }
}

void the_worst_sample_stays() {
    AuditEntry entry = sampled(4, 1);
    std::vector<SampledLoss> input{{100, 0, 5}, {100, 0, 0.8}};
    entry.add_sample(input, {}, 4, false);
    entry.add_sample(std::vector<SampledLoss>{{100, 0, 0.002}, {100, 0, 0.8}}, {}, 4, false);
    const AuditRow row = row_of(shape_of(0, 1 << 20), entry, 4);
    CHECK(is_local(row.findings[0].worst, 0.05 * 2.5));
    CHECK(row.findings[0].nmse < row.findings[0].worst / 2);
    AuditRow both = row_of(shape_of(0, 1 << 20), sampled(4, 1), 4);
    merge(both, row);
    CHECK_EQ(both.calls, 20U);
    CHECK_EQ(both.samples, 4U);
    CHECK(is_local(both.findings[0].worst, row.findings[0].worst));
}

void an_average_is_of_the_sum() {
    AuditEntry entry;
    const std::vector<SampledLoss> input{{100, 0, 0.002}}, mean{{25, 0, 0.0005}};
    entry.add_sample(input, mean, 4, true);
    CHECK_EQ(entry.sum_square, 400.0);
    CHECK_EQ(entry.by_codec[0].worst_cancellation, 1.0);
}

bool has(const std::string &text, const char *part) { return text.find(part) != text.npos; }

void the_table_says_what_is_safe() {
    const std::vector<AuditRow> rows{row_of(shape_of(0, 1000), sampled(4, 1), 4),
                                     row_of(shape_of(7, 1 << 20), sampled(4, 0.1), 4)};
    const AuditHead head{.rank = 0, .ranks = 4, .pid = 5, .host = "h", .codecs = codecs};
    const std::string table = audit_table(head, rows);
    CHECK(has(table, "QCCL_AUDIT of rank 0 of 4, process 5 on h\n"));
    CHECK(has(table, "  NMSE up to 1e-01: int8 for tag 7; int4 for tag -\n"));
    CHECK(has(table, "  NMSE up to 1e-02: int8\n"));
    CHECK(has(table, "  NMSE up to 1e-04: int8 for tag -; none of them for tag 7\n"));
    CHECK(has(table, "  NMSE up to 1e-05: none of them\n"));
    CHECK(!has(table, "other calls"));
    CHECK(has(audit_table(head, {}), "no call could have been encoded"));
}

// Samples of zeros say nothing about other values, so the table does not call any codec safe.
void of_zeros_nothing_is_known() {
    AuditEntry entry{.calls = 1, .samples = 0, .by_codec = {}};
    const std::vector<SampledLoss> lost_nothing{{100, 0, 0}, {100, 0, 0}};
    entry.add_sample(lost_nothing, lost_nothing, 4, false);
    const AuditRow row = row_of(shape_of(0, 1000), entry, 4);
    const AuditHead head{.rank = 0, .ranks = 4, .pid = 5, .host = "h", .codecs = codecs};
    const std::string table = audit_table(head, {&row, 1});
    CHECK(has(table, "safe, by the worst sample: not known") && !has(table, "NMSE up to"));
}

nlohmann::json json_of(const AuditHead &head, const AuditRow &row) {
    return nlohmann::json::parse(audit_json(head, {&row, 1}));
}

// Marks the gain with "?" if the rate between hosts is assumed rather than measured. On one host
// that rate does not matter.
void a_guessed_gain_is_marked() {
    AuditRow row = row_of(shape_of(0, 1000), sampled(4, 1), 4);
    const AuditHead head{.rank = 0, .ranks = 4, .pid = 5, .host = "h", .codecs = codecs};
    CHECK(!has(audit_table(head, {&row, 1}), "?"));
    CHECK(json_of(head, row)["rows"][0]["rate_known"] == true);
    const std::vector<RankLocation> spots{{.host = 0}, {.host = 1}};
    const RankTopology places(spots);
    Problem remote;
    remote.ranks = 2;
    remote.places = &places;
    for (const bool is_known : {true, false}) {
        PlannerInputs inputs;
        inputs.speeds.remote_rate_source = is_known ? RateSource::measured : RateSource::assumed;
        const auto found = audit_row(shape_of(0, 1000), sampled(4, 1), codecs, remote, inputs,
                                     *parse_algorithm("ring"));
        CHECK_OK(found);
        CHECK_EQ(found->guessed_bytes_per_ns, is_known ? 0 : inputs.speeds.remote_bytes_per_ns);
    }
    row.guessed_bytes_per_ns = 0.125;
    const std::string local = audit_table(head, {&row, 1});
    CHECK(has(local, "all ranks are on one host") && has(local, "     -\n") && !has(local, "x?\n"));
    row.has_hosts = true;
    const std::string table = audit_table(head, {&row, 1});
    CHECK(!has(table, "all ranks are on one host"));
    CHECK(has(table, "x?\n") && has(table, "taken for 0.125 GB/s; QCCL_LINK_RATE says it\n"));
    CHECK(json_of(head, row)["rows"][0]["rate_known"] == false);
}

void json_quotes_and_has_no_infinity() {
    AuditRow row = row_of(shape_of(0, 1000), sampled(4, 1), 4);
    row.comm = "a \"b\"\n" + std::string(5000, '\x01');
    row.findings[0].nmse = INFINITY;
    const AuditHead head{.rank = 1, .ranks = 4, .pid = 5, .host = "h\xff", .codecs = codecs};
    const auto json = json_of(head, row);
    CHECK_EQ(json["qccl_audit"].get<int>(), 1);
    CHECK_EQ(json["rank"].get<int>(), 1);
    CHECK_EQ(json["host"].get<std::string>(), "h\xef\xbf\xbd");
    CHECK_EQ(json["rows"][0]["communicator"].get<std::string>(), row.comm);
    const auto &codec = json["rows"][0]["codecs"][0];
    CHECK_EQ(codec["codec"].get<std::string>(), "int8");
    CHECK_EQ(codec["bits"].get<double>(), 8.5);
    CHECK(codec["nmse"].is_null());
}

void calls_that_no_codec_is_for_are_left_out() {
    CHECK(AuditedShape({.count = 1}).is_encodable());
    CHECK(!AuditedShape({.count = 0}).is_encodable());
    CHECK(!AuditedShape({.type = DataType::int32, .count = 1}).is_encodable());
    CHECK(!AuditedShape({.op = RedOp::max, .count = 1}).is_encodable());
    CHECK(!AuditedShape({.collective = Collective::barrier, .count = 1}).is_encodable());
    CHECK(AuditedShape({.collective = Collective::all_gather, .count = 1}).is_encodable());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(findings_follow_from_samples),    QTEST(the_worst_sample_stays),
        QTEST(an_average_is_of_the_sum),        QTEST(the_table_says_what_is_safe),
        QTEST(of_zeros_nothing_is_known),       QTEST(a_guessed_gain_is_marked),
        QTEST(json_quotes_and_has_no_infinity), QTEST(calls_that_no_codec_is_for_are_left_out),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
