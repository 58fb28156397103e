// Implements the description of a run of report.hpp: collects the host, the date and the settings.
// Implements the two JSON documents of report.hpp: their fields.

#include "base/settings.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/report/report.hpp"

#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include <qccl/qccl.h>
#include <unistd.h>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

static std::string host_name() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
}

std::string local_time(const char *format) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, format, &local);
    return text;
}

static Json settings_json() {
    const auto settings = read_settings(environ);
    if (!settings) return nullptr;
    Json values = Json::object();
    for (size_t row = 0; row < settings_table().size(); row++) {
        const SettingValue &value = settings->values[row];
        const bool is_built_in = value.origin == Origin::built_in;
        values[settings_table()[row].name] = {{"value", value.text},
                                              {"by", is_built_in ? "built in" : "environment"}};
    }
    return values;
}

Json describe_run(const std::vector<std::string> &command_line) {
    return {{"version", version_text()},
            {"command_line", command_line},
            {"host", host_name()},
            {"date", local_time("%Y-%m-%dT%H:%M:%S%z")},
            {"settings", settings_json()}};
}

using Json = nlohmann::ordered_json;

template <class T> static Json or_null(const std::optional<T> &value) {
    return value ? Json(*value) : Json(nullptr);
}

// JSON has no infinity and no NaN.
static Json or_null(const std::optional<double> &value) {
    return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

static Json shares_json(const std::optional<TimeShares> &shares) {
    if (!shares) return nullptr;
    return {{"encode", shares->encode},
            {"copy", shares->copy},
            {"network", shares->network},
            {"wait", shares->wait}};
}

Json row_json(const Row &row, bool in_place) {
    const Operation &operation = row.operation;
    const Measurement &m = in_place ? row.in_place : row.out_of_place;
    const double seconds = m.time_us.median * 1e-6;
    Json baseline = nullptr;
    if (m.baseline_us)
        baseline = {{"name", row.baseline},
                    {"time_us", *m.baseline_us},
                    {"time_us_sustained", m.baseline_sustained_us}};
    return {{"collective", name(operation.kind())},
            {"bytes", operation.bytes()},
            {"count", operation.count * operation.calls()},
            {"dtype", name(operation.type)},
            {"op", reduces(operation.collective) ? Json(name(operation.op)) : Json(nullptr)},
            {"in_place", in_place},
            {"algorithm", row.algorithm},
            {"codec", spec(row.codec)},
            {"used_codec", spec(row.used_codec)},
            {"ranks", operation.ranks},
            {"transport", row.transport},
            {"devices", row.devices},
            {"time_us", m.time_us.median},
            {"time_us_mean", m.time_us.mean},
            {"time_us_p99", m.time_us.p99},
            {"time_us_sustained", m.sustained_us},
            {"enqueue_us", or_null(m.enqueue_us)},
            {"algbw_GBps", operation.algbw(seconds)},
            {"busbw_GBps", operation.busbw(seconds)},
            {"wire_bytes", m.wire_bytes},
            {"time_shares", shares_json(m.shares)},
            {"ratio", or_null(m.ratio)},
            {"nmse", or_null(m.nmse)},
            {"nmse_predicted", or_null(row.nmse_predicted)},
            {"max_abs_err", or_null(m.max_abs_err)},
            {"ranks_agree", or_null(m.ranks_agree)},
            {"speedup_vs_lossless", or_null(m.speedup)},
            {"baseline", baseline},
            {"group", operation.group > 0 ? Json(operation.group) : Json(nullptr)},
            {"skew", operation.parts ? Json(name(operation.skew)) : Json(nullptr)}};
}

std::string rows_json(const Row &row) {
    const std::string rows = row_json(row, false).dump();
    return row.operation.has_in_place() ? rows + ",\n" + row_json(row, true).dump() : rows;
}

// nccl-tests writes booleans as text.
static const char *truth(bool value) { return value ? "true" : "false"; }

static Json measurement_json(const Row &row, const Measurement &m, const PerfArguments &arguments) {
    if (!m.is_known) return nullptr;
    const double seconds = m.shown_us * 1e-6;
    return {{arguments.reports_cpu_time ? "cpu_time" : "time", m.shown_us},
            {"alg_bw", row.operation.algbw(seconds)},
            {"bus_bw", row.operation.busbw(seconds)},
            {"nwrong", or_null(m.wrong)}};
}

static Json iterations_json(const Measurement &m, const PerfArguments &arguments) {
    const Statistics time = iteration_statistics(m, arguments.skipped_iterations);
    Json json{{"skipped_iterations", arguments.skipped_iterations},
              {"min_us", time.min},
              {"max_us", time.max},
              {"avg_us", time.mean},
              {"p50_us", time.median},
              {"p95_us", time.p95},
              {"p99_us", time.p99},
              {"stdev_us", time.deviation},
              {"cv_pct", time.mean > 0 ? time.deviation / time.mean * 100 : 0},
              {"times_us", m.iterations_us}};
    // One entry per process, if there are several.
    if (arguments.launch != Launch::threads && m.ranks_us.size() > 1)
        json["per_process_max_times_us"] = m.ranks_us;
    return json;
}

// Distinguishes results that agree in everything that nccl-tests has fields for.
static std::string label(const Row &row, const PerfArguments &arguments) {
    const bool is_alone = arguments.codecs.size() == 1 && arguments.algorithms.size() == 1;
    return is_alone ? "" : spec(row.codec) + " " + row.algorithm;
}

static Json result_json(const Row &row, const PerfArguments &arguments) {
    const Operation &operation = row.operation;
    const bool is_rooted = has_root(operation.kind());
    Json result{{"size", operation.bytes()},
                {"count", operation.count * operation.calls()},
                {"type", name(operation.type)},
                {"redop", reduces(operation.collective) ? name(operation.op) : "none"},
                {"root", std::to_string(is_rooted ? static_cast<int>(operation.root) : -1)},
                {"out_of_place", measurement_json(row, row.out_of_place, arguments)},
                {"in_place", measurement_json(row, row.in_place, arguments)}};
    if (arguments.reports_iterations) {
        result["out_of_place_per_iter"] = iterations_json(row.out_of_place, arguments);
        if (row.in_place.is_known)
            result["in_place_per_iter"] = iterations_json(row.in_place, arguments);
    }
    result["actual_iterations"] = row.out_of_place.iterations_us.size();
    result["experiment_name"] = label(row, arguments);
    result["codec"] = spec(row.codec);
    result["used_codec"] = spec(row.used_codec);
    result["algorithm"] = row.algorithm;
    return result;
}

static bool is_host(const RankInfo &rank) { return std::strcmp(rank.device_name, "host") == 0; }

static Json config_json(const PerfArguments &a, const std::vector<RankInfo> &ranks) {
    Json config{{"nthreads", a.launch == Launch::threads ? a.ranks : 1},
                {"ngpus", 1},
                {"minimum_bytes", a.min_bytes},
                {"maximum_bytes", a.max_bytes}};
    if (a.step_factor > 1)
        config["step_factor"] = a.step_factor;
    else
        config["step_bytes"] = a.step_bytes;
    config.update({{"warmup_iters", a.warmup_iterations},
                   {"iterations", a.iterations.value_or(a.default_iterations)},
                   {"aggregated_iterations", a.aggregated.value_or(1)},
                   {"validation", a.checks},
                   {"graph", 0},
                   {"blocking_collectives", truth(a.blocking != Blocking::none)},
                   {"per_iter_timing", truth(a.reports_iterations)},
                   {"per_iter_skip", a.skipped_iterations},
                   {"parallel_init", truth(true)}});
    Json devices = Json::array();
    for (const RankInfo &rank : ranks)
        devices.push_back({{"rank", rank.rank},
                           {"group", 0},
                           {"pid", rank.process},
                           {"hostname", rank.host},
                           {"device", rank.device},
                           {"device_hex", rank.device_name},
                           {"device_info", is_host(rank) ? "host" : rank.model}});
    config["devices"] = devices;
    return config;
}

// Writes only QCCL_* variables. nccl-tests writes the whole environment, which may contain secrets.
static Json environment_json() {
    Json lines = Json::array();
    for (char **line = environ; *line; line++)
        if (std::strncmp(*line, "QCCL_", 5) == 0) lines.push_back(*line);
    return lines;
}

// Arguments and paths may contain bytes that are not valid UTF-8; these are replaced.
static std::string text_of(const Json &json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns the object as text without its last brace.
static std::string opened(const Json &object) {
    std::string text = text_of(object);
    text.pop_back();
    return text;
}

std::string rows_head(const std::vector<std::string> &command_line) {
    return opened(describe_run(command_line)) + ",\n\"rows\": [";
}

std::string nccl_head(const PerfArguments &arguments, const RunInfo &run) {
    static constexpr int format_version = 2;
    return opened({{"version", format_version},
                   {"start_time", run.start_time},
                   {"args", run.command_line},
                   {"env", environment_json()},
                   {"nccl_version", QCCL_VERSION},
                   {"config", config_json(arguments, run.ranks)}}) +
           ",\n\"results\": [";
}

std::string nccl_row(const Row &row, const PerfArguments &arguments) {
    return text_of(result_json(row, arguments));
}

std::string nccl_tail(const RunResult &result, const std::string &end_time) {
    const char *const fast = result.is_fast_enough ? truth(*result.is_fast_enough) : "unchecked";
    const Json rest{
        {"out_of_bounds", {{"count", result.rows_wrong}, {"okay", truth(result.rows_wrong == 0)}}},
        {"average_bus_bandwidth", {{"bandwidth", result.average_busbw}, {"okay", fast}}},
        {"errors", Json::array()},
        {"end_time", end_time}};
    return "\n],\n" + text_of(rest).substr(1) + "\n";
}

} // namespace qccl::perf
