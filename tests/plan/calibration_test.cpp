// Tests plan/calibration: the figures of a file are read, written back and applied. Damaged text
// and impossible values are refused in a sentence.
#include "tests/kit/qtest.hpp"

#include "plan/calibration.hpp"

#include <cstring>
#include <limits>

using namespace qccl;

namespace {

constexpr const char *sample = "# measured\n"
                               "qccl-calibration version=1\r\n"
                               "machine A processor, 8 cores\n"
                               "near alone latency_ns=812.5 byte_ns=0\n"
                               "far bytes_per_ns=1.17\n"
                               "far burst_bytes=262144\n"
                               "copy 16MiB=5.5\n"
                               "codec int8 encode=21 decode=30.5 decode_add=28\n"
                               "codec minmax:round=stochastic encode=1 decode=2 decode_add=3\n"
                               "job ranks=4 hosts=2 model=3\n"
                               "far burst_bytes=1000\n"
                               "factor all_reduce tree:shape=double int8 4096=0.5 16384=2\n"
                               "factor broadcast ring none 8=1.5\n"
                               "simulated broadcast ring none 8=1.25\n"
                               "job hosts=1 ranks=2 model=3\n"
                               "job hosts=8 ranks=8 model=0\n"
                               "near alone latency_ns=1\n";

CalibrationFile read(std::string_view text) {
    auto file = parse_calibration(text);
    CHECK_OK(file);
    return std::move(*file);
}

std::string refusal(std::string_view text) {
    const auto file = parse_calibration(text);
    CHECK(!file && file.error().code == Code::invalid_argument);
    return file.error().text;
}

std::string refused_line(const std::string &line) {
    const std::string sentence = refusal("qccl-calibration version=1\nmachine m\n" + line + "\n");
    CHECK(sentence.starts_with("line 3: "));
    return sentence.substr(8);
}

bool mentions(const std::string &sentence, std::string_view words) {
    return sentence.find(words) != std::string::npos;
}

Codec codec(const char *text) {
    const auto parsed = parse_codec(text);
    CHECK_OK(parsed);
    return *parsed;
}

} // namespace

static void figures_replace_what_is_built_in() {
    const CalibrationFile file = read(sample);
    CHECK_EQ(file.machine, "A processor, 8 cores");
    const CostModel before = cost_model_by({}, 1, CodecRates::of_tier("avx2"));
    CostModel after = before;
    file.figures.apply({}, after);
    CHECK(!before.is_remote_rate_known() && after.is_remote_rate_known());
    CostModel expected = before;
    expected.local.alone.latency_ns = 812.5;
    expected.local.alone.byte_ns = 0;
    expected.remote_bytes_per_ns = 1.17;
    expected.remote_burst_bytes = 262144;
    expected.remote_rate_source = RateSource::measured;
    expected.copy.points[2].bytes_per_ns = 5.5;
    expected.codec_rates.set(codec("int8"), {21, 30.5, 28});
    expected.codec_rates.set(codec("minmax:round=stochastic"), {1, 2, 3});
    CHECK(after == expected);
}

static void settings_come_before_what_was_measured() {
    const CalibrationFile file = read(sample);
    Settings settings;
    settings.link_rate = 5'000'000'000;
    settings.link_latency = std::chrono::microseconds(3);
    CostModel speeds;
    file.figures.apply(settings, speeds);
    CHECK_EQ(speeds.remote_bytes_per_ns, 5.0);
    CHECK_EQ(speeds.remote.shared.latency_ns, 3000.0);
    CHECK_EQ(speeds.local.alone.latency_ns, 812.5);
}

static void what_is_written_is_read_again() {
    const CalibrationFile file = read(sample);
    const std::string written = print(file);
    CHECK_EQ(print(read(written)), written);
    Calibration all;
    for (size_t i = 0; i < calibrated_figures().size(); i++) {
        const CalibratedFigure &row = calibrated_figures()[i];
        all.set(i, row.least + (row.most - row.least) / 3);
    }
    for (const CodecRateRow &row : codec_rate_rows())
        all.set(codec(std::string(row.codec).c_str()), row.rate);
    const Calibration again = read(print({.machine = "m", .figures = all})).figures;
    CHECK_EQ(std::memcmp(&again, &all, sizeof all), 0);
    CostModel by_one, by_other;
    all.apply({}, by_one);
    again.apply({}, by_other);
    CHECK(by_one == by_other && !(by_one == CostModel()));
}

static void newer_figures_replace_older_ones() {
    CHECK(Calibration().is_empty());
    Calibration older = read(sample).figures;
    const Calibration newer =
        read("qccl-calibration version=1\nmachine m\nfar bytes_per_ns=2 crowding=1.5\n").figures;
    CHECK(!newer.is_empty());
    older.update(newer);
    CostModel speeds;
    older.apply({}, speeds);
    CHECK_EQ(speeds.remote_bytes_per_ns, 2.0);
    CHECK_EQ(speeds.remote_oversubscription, 1.5);
    CHECK_EQ(speeds.remote_burst_bytes, 262144.0);
    CHECK_EQ(older.codec_rate(codec("int8")).encode, 21.0F);
}

static void jobs_have_factors_of_their_own() {
    CalibrationFile file = read(sample);
    CHECK_EQ(file.jobs.size(), 2U);
    const MeasuredJob *const measured = file.of({.ranks = 4, .hosts = 2});
    CHECK(measured && file.of({.ranks = 2, .hosts = 1})->counted.is_empty());
    const Corrections *const job = &measured->counted;
    CHECK(!file.of({.ranks = 2, .hosts = 2}));
    CHECK(!file.of({.ranks = 8, .hosts = 8})); // measured with another cost model
    CHECK_EQ(file.jobs_of_other_models, size_t{1});
    const auto tree = parse_algorithm("tree:shape=double"), ring = parse_algorithm("ring");
    CHECK(tree && ring);
    CHECK_EQ(job->of({.algorithm = *tree, .width = CodecWidth::wide}, 4096), 0.5);
    CHECK_EQ(job->of({.collective = Collective::broadcast, .algorithm = *ring}, 8), 1.5);
    const Corrections::Calls broadcasts = {.collective = Collective::broadcast, .algorithm = *ring};
    CHECK_EQ(measured->simulated.of(broadcasts, 8), 1.25);
    MeasuredJob newer;
    newer.counted.shape = newer.simulated.shape = {.ranks = 4, .hosts = 2};
    newer.counted.set({.algorithm = *ring}, 0, 3);
    newer.simulated.set(broadcasts, 2, 0.5);
    newer.figures.set(3, 17);
    newer.figures.set(codec("int8"), {1, 2, 3});
    file.replace(newer);
    CHECK_EQ(file.jobs.size(), 2U);
    const CalibrationFile again = read(print(file));
    const MeasuredJob *const found = again.of({.ranks = 4, .hosts = 2});
    CHECK(found && std::memcmp(found, &newer, sizeof newer) == 0);
}

static void a_jobs_figures_replace_those_of_all() {
    const CalibrationFile file = read(sample);
    const auto burst_of = [&](const JobShape &shape) {
        CostModel speeds;
        file.figures_of(shape).apply({}, speeds);
        CHECK_EQ(speeds.remote_bytes_per_ns, 1.17);
        return speeds.remote_burst_bytes;
    };
    CHECK_EQ(burst_of({.ranks = 4, .hosts = 2}), 1000.0);
    CHECK_EQ(burst_of({.ranks = 2, .hosts = 1}), 262144.0);
    CHECK_EQ(burst_of({.ranks = 8, .hosts = 8}), 262144.0);
}

static void jobs_that_cannot_be_are_refused() {
    CHECK_EQ(refused_line("job ranks=2 hosts=1 model=2 model=2"), "model is given twice");
    CHECK_EQ(refused_line("job"), "a job has ranks= and hosts=");
    CHECK_EQ(refused_line("job ranks=4"), "a job has ranks= and hosts=");
    for (const char *item : {"ranks=0", "ranks=-1", "ranks=4294967296", "hosts=x", "racks=1"})
        CHECK(mentions(refused_line("job " + std::string(item)), "expected ranks= and hosts="));
    CHECK_EQ(refused_line("job ranks=2 ranks=2 hosts=1"), "ranks is given twice");
    CHECK(mentions(refused_line("factor all_reduce ring none 8=1"), "no line of a job"));
    const auto refused_factor = [](const std::string &items) {
        const std::string sentence = refusal(
            "qccl-calibration version=1\nmachine m\njob ranks=2 hosts=1\nfactor " + items + "\n");
        CHECK(sentence.starts_with("line 4: "));
        return sentence;
    };
    CHECK(mentions(refused_factor("all_reduce ring none"), "and factors"));
    CHECK(mentions(refused_factor("all_red ring none 8=1"), "no collective"));
    CHECK(mentions(refused_factor("all_reduce rang none 8=1"), "ring"));
    CHECK(mentions(refused_factor("all_reduce ring fp16 8=1"), "none, int8, int4"));
    CHECK(mentions(refused_factor("all_reduce ring none 9=1"), "no size"));
    CHECK(mentions(refused_factor("all_reduce ring none 8=1 8=1"), "8 is given twice"));
    for (const char *factor : {"0", "-1", "nan", "51", "", "1x"})
        CHECK(mentions(refused_factor("all_reduce ring none 8=" + std::string(factor)),
                       "expected a number"));
    CHECK(mentions(refusal("qccl-calibration version=1\nmachine m\njob ranks=2 hosts=1\n"
                           "job hosts=1 ranks=2\n"),
                   "given twice"));
}

static void what_cannot_be_is_refused() {
    CHECK_EQ(refusal(""), "it is empty; the first line is \"qccl-calibration version=1\"");
    CHECK(mentions(refusal("qccl-plan version=1"), "it is no calibration"));
    CHECK(mentions(refusal("qccl-calibration version=2"), "reads version 1"));
    CHECK(mentions(refusal("qccl-calibration version=1\nfar bytes_per_ns=1\n"), "which machine"));
    CHECK_EQ(refused_line("machine n"), "it has two machines");
    CHECK_EQ(refused_line("far"), "it gives no figure");
    CHECK(mentions(refused_line("=3"), "group of figures"));
    CHECK(mentions(refused_line("bytes_per_ns=3"), "near alone"));
    CHECK(mentions(refused_line("nearly alone latency_ns=3"), "near alone"));
    CHECK(mentions(refused_line("far rate=3"), "bytes_per_ns, burst_bytes"));
    CHECK(mentions(refused_line("far bytes_per_ns=1 bytes_per_ns=1"), "given twice"));
    for (const char *rate : {"0", "-1", "nan", "inf", "1e9", "", "1x"})
        CHECK(mentions(refused_line("far bytes_per_ns=" + std::string(rate)), "expected a number"));
    CHECK(mentions(refused_line("codec int8 encode=0 decode=1 decode_add=1"), "expected a number"));
    CHECK_EQ(refused_line("codec int8 encode=1 decode=1"), "the codec has no decode_add");
    CHECK_EQ(refused_line("codec int8 encode=1 encode=1"), "encode is given twice");
    CHECK(mentions(refused_line("codec int8 speed=1"), "encode, decode"));
    CHECK(mentions(refused_line("codec none encode=1 decode=1 decode_add=1"), "encodes nothing"));
    CHECK(mentions(refused_line("codec intel encode=1 decode=1 decode_add=1"), "intel"));
    CHECK(mentions(refused_line("codec encode=1 decode=1 decode_add=1"), "codec"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(figures_replace_what_is_built_in), QTEST(settings_come_before_what_was_measured),
        QTEST(what_is_written_is_read_again),    QTEST(newer_figures_replace_older_ones),
        QTEST(jobs_have_factors_of_their_own),   QTEST(a_jobs_figures_replace_those_of_all),
        QTEST(jobs_that_cannot_be_are_refused),  QTEST(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
