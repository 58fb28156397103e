// Implements qccl-info whatif of recorded_job.hpp: prints the answer as text and as JSON.

#include "perf/info/recorded_job.hpp"
#include "perf/info/simulated_job.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

// Increase this when the meaning of a field changes.
static constexpr int whatif_version = 1;

static std::string shape_text(const RecordedJob &job, const RecordedShape &shape) {
    const LoggedShape &logged = shape.shape;
    std::string text = name(logged.collective);
    if (logged.collective != Collective::barrier) {
        text.append(" ").append(std::to_string(logged.count)).append(" ").append(name(logged.type));
        if (reduces(logged.collective)) text.append(" ").append(name(logged.op));
        if (logged.collective == Collective::broadcast)
            text.append(" root ").append(std::to_string(logged.root));
    }
    const RecordedComm &comm = job.comms[shape.comm];
    text.append(" (").append(comm.name).append(comm.name.empty() ? "" : ", ");
    return text.append(std::to_string(comm.members.size())).append(" ranks)");
}

static std::string plan_text(const WhatIfCase &one) {
    return spec(one.codec) + ", " + one.algorithm;
}

static void print_heading(const WhatIfAnswer &answer) {
    const RecordedJob &job = answer.job;
    std::printf("A job of %" PRIu32 " ranks that made %zu calls, on %s", job.ranks,
                job.calls.size(), hosts_text(answer.machine).c_str());
    if (answer.machine.hosts() > 1) {
        if (const auto rate = answer.machine.remote_bytes_per_ns())
            std::printf(" with lines of %.3g GB/s%s", *rate, racks_text(answer.machine).c_str());
        else
            std::printf(" with lines of unknown rate, taken for %.3g GB/s",
                        CostModel().remote_bytes_per_ns);
    }
    std::printf(".\n");
    if (job.logs.size() < job.ranks)
        std::printf("Logs of %zu of %" PRIu32 " ranks are missing; those ranks count as never "
                    "late.\n",
                    job.ranks - job.logs.size(), job.ranks);
    if (job.left_out != 0)
        std::printf("%" PRIu64 " calls failed, were not recorded, or are not in the logs of all "
                    "their ranks: they are left out.\n",
                    job.left_out);
}

static void print_totals(const WhatIfAnswer &answer) {
    const WhatIfTotals &before = answer.as_recorded_totals, &after = answer.asked_totals;
    const double recorded = answer.job.recorded_ns();
    double in_calls = 0;
    for (const RecordedJob::Rank &rank : answer.job.logs) {
        double sum = 0;
        for (const RecordedJob::Part &part : rank.parts)
            sum += static_cast<double>(part.duration_ns);
        in_calls = std::max(in_calls, sum);
    }
    std::printf("\n%-28s %14s %14s %14s\n", "", "recorded", "same plan", "asked for");
    const auto row = [](const char *what, const std::string &a, const std::string &b,
                        const std::string &c) {
        std::printf("%-28s %14s %14s %14s\n", what, a.c_str(), b.c_str(), c.c_str());
    };
    row("time", time_text(recorded), time_text(before.times.time_ns),
        time_text(after.times.time_ns));
    row("of it in calls, at most", time_text(in_calls), time_text(before.times.in_calls_ns),
        time_text(after.times.in_calls_ns));
    row("sent by a rank, at most", memory_text(answer.recorded_wire_bytes),
        memory_text(before.wire_bytes), memory_text(after.wire_bytes));
    char nmse[2][32];
    std::snprintf(nmse[0], sizeof nmse[0], "%.2e", before.nmse);
    std::snprintf(nmse[1], sizeof nmse[1], "%.2e", after.nmse);
    row("NMSE of a call, at most", "", nmse[0], nmse[1]);
    std::printf("What was asked for takes %.3g of the time of the same plan on that machine.\n",
                before.times.time_ns > 0 ? after.times.time_ns / before.times.time_ns : 1);
}

// Returns the indices of the shapes, those with the longest total time first.
static std::vector<size_t> by_time(const WhatIfAnswer &answer) {
    std::vector<size_t> order(answer.asked.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
        return answer.as_recorded[i].time_ns * static_cast<double>(answer.job.shapes[i].calls);
    });
    return order;
}

static void print_shapes(const WhatIfAnswer &answer) {
    std::printf("\n%8s %10s %10s %10s  %s\n", "calls", "recorded", "same plan", "asked for",
                "call: plan recorded; asked for");
    for (const size_t i : by_time(answer)) {
        const RecordedShape &shape = answer.job.shapes[i];
        std::printf(
            "%8" PRIu64 " %10s %10s %10s  %s: %s; %s\n", shape.calls,
            time_text(shape.recorded_ns).c_str(), time_text(answer.as_recorded[i].time_ns).c_str(),
            time_text(answer.asked[i].time_ns).c_str(), shape_text(answer.job, shape).c_str(),
            plan_text(answer.as_recorded[i]).c_str(), plan_text(answer.asked[i]).c_str());
    }
}

static Json json_of(const WhatIfTotals &totals) {
    return {{"time_us", totals.times.time_ns / 1e3},
            {"in_calls_us", totals.times.in_calls_ns / 1e3},
            {"wire_bytes", totals.wire_bytes},
            {"nmse", totals.nmse}};
}

static Json json_of(const WhatIfCase &one) {
    return {{"time_us", one.time_ns / 1e3},
            {"wire_bytes", one.wire_bytes},
            {"codec", spec(one.codec)},
            {"algorithm", one.algorithm},
            {"nmse", one.nmse ? Json(*one.nmse) : Json()}};
}

static Json json_of(const WhatIfAnswer &answer, const std::vector<std::string> &command_line) {
    const RecordedJob &job = answer.job;
    const auto rate = answer.machine.remote_bytes_per_ns();
    Json json{{"qccl_whatif", whatif_version}};
    json.update(describe_run(command_line));
    json["ranks"] = job.ranks;
    json["logs"] = job.logs.size();
    json["hosts"] = answer.machine.hosts();
    json["line_GBps"] = rate ? Json(*rate) : Json();
    json["calls"] = job.calls.size();
    json["left_out"] = job.left_out;
    json["recorded"] = {{"time_us", job.recorded_ns() / 1e3},
                        {"wire_bytes", answer.recorded_wire_bytes}};
    json["same_plan"] = json_of(answer.as_recorded_totals);
    json["asked"] = json_of(answer.asked_totals);
    json["shapes"] = Json::array();
    for (const size_t i : by_time(answer)) {
        const RecordedShape &shape = job.shapes[i];
        json["shapes"].push_back({{"collective", name(shape.shape.collective)},
                                  {"type", name(shape.shape.type)},
                                  {"op", name(shape.shape.op)},
                                  {"root", shape.shape.root},
                                  {"count", shape.shape.count},
                                  {"communicator", job.comms[shape.comm].name},
                                  {"ranks", job.comms[shape.comm].members.size()},
                                  {"calls", shape.calls},
                                  {"recorded_us", shape.recorded_ns / 1e3},
                                  {"same_plan", json_of(answer.as_recorded[i])},
                                  {"asked", json_of(answer.asked[i])}});
    }
    return json;
}

Done print_whatif(const WhatIfQuestion &question, const std::vector<std::string> &command_line) {
    if (question.json_file == "-" && question.plan_file == "-")
        return Error::make(Code::invalid_argument, "only one of --out and --json can go to "
                                                   "standard output; name a file for the other");
    QCCL_TRY(const WhatIfAnswer answer, find_whatif(question));
    if (question.json_file != "-") {
        print_heading(answer);
        print_totals(answer);
        print_shapes(answer);
    }
    if (!question.plan_file.empty()) QCCL_TRY(write_file(question.plan_file, print(answer.plan)));
    if (question.json_file.empty()) return {};
    return write_file(question.json_file, json_of(answer, command_line).dump(2) + "\n");
}

} // namespace qccl::perf
