// Implements find_whatif of recorded_job.hpp: simulates each shape of calls with the recorded and
// the requested plan, replays the job with both, and writes the requested plan as rules. Implements
// qccl-info whatif of recorded_job.hpp: prints the answer as text and as JSON.

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

namespace {

// A job records only which ranks share memory, so each such node is taken for a host.
std::shared_ptr<const RankTopology> recorded_places(const RecordedJob &job) {
    std::vector<RankLocation> spots;
    for (const uint32_t node : job.node) spots.push_back({.host = node});
    return std::make_shared<const RankTopology>(std::move(spots));
}

// Returns the part of the machine with some of its ranks.
Machine part_of(const Machine &machine, const std::vector<uint32_t> &ranks) {
    Machine part = machine;
    part.ranks = static_cast<uint32_t>(ranks.size());
    if (machine.places) {
        std::vector<RankLocation> spots;
        for (const uint32_t rank : ranks) spots.push_back(machine.places->of(rank));
        part.places = std::make_shared<const RankTopology>(std::move(spots));
        if (part.hosts() < 2) part.remote = {};
    }
    if (machine.topology) {
        JobTopology job{machine.topology->graph, {}};
        for (const uint32_t rank : ranks) job.places.push_back(machine.topology->places[rank]);
        part.topology = std::make_shared<const JobTopology>(std::move(job));
    }
    return part;
}

Result<Machine> machine_of(const RecordedJob &job, MachineRequest request) {
    const bool is_recorded = request.topology.empty() && !request.places;
    const auto check = [&](uint32_t ranks) -> Done {
        if (ranks == job.ranks) return {};
        return invalid_argument("the machine has %" PRIu32
                                " ranks, and the recorded job had %" PRIu32,
                                ranks, job.ranks);
    };
    if (!request.topology.empty() && request.ranks == 0) request.ranks = job.ranks;
    if (is_recorded) {
        if (request.ranks != 0) QCCL_TRY(check(request.ranks));
        request.places = recorded_places(job);
        const auto most_ranks = static_cast<double>(request.places->hosts().most_ranks());
        if (!request.cores) request.cores = most_ranks / job.ranks_per_core;
    }
    QCCL_TRY(Machine machine, find_machine(request));
    QCCL_TRY(check(machine.ranks));
    return machine;
}

// A barrier moves no values and takes about as long as an all-reduce of one value.
Operation operation_of(const LoggedShape &shape, uint32_t ranks) {
    const bool is_barrier = shape.collective == Collective::barrier;
    return {.collective = is_barrier ? Collective::all_reduce : shape.collective,
            .type = is_barrier ? DataType::float32 : shape.type,
            .op = shape.op,
            .root = shape.root,
            .ranks = ranks,
            .count = is_barrier ? 1 : shape.count};
}

bool has_error(const LoggedShape &shape) {
    return row_of(shape.collective).has_values && info(shape.type).is_float &&
           (!reduces(shape.collective) || adds(shape.op));
}

// Whether the calls are those in which ranks agree on scales, for calls with the codec shared. It
// encodes no such values.
bool agrees_on_scales(const LoggedShape &shape) {
    const auto asked = parse_codec(shape.asked_codec);
    return asked && asked->shares_scales() && shape.type == DataType::uint16 &&
           shape.op == RedOp::max;
}

// Returns whether the communicator has all ranks of the job in their order. Ranks without a log are
// assumed to be in order.
bool has_ranks_of_job(const RecordedComm &comm, uint32_t ranks) {
    if (comm.members.size() != ranks) return false;
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (comm.members[rank] != rank && comm.members[rank] != RecordedJob::unknown_rank)
            return false;
    return true;
}

class WhatIf {
public:
    WhatIf(const WhatIfRequest &request, WhatIfAnswer &answer)
        : request_(request), answer_(answer) {}

    Done run() {
        for (const RecordedComm &comm : answer_.job.comms) {
            const bool is_job = has_ranks_of_job(comm, answer_.job.ranks);
            QCCL_TRY(SimulatedJob job,
                     SimulatedJob::create(is_job ? answer_.machine
                                                 : part_of(answer_.machine, comm.members),
                                          comm.name));
            jobs_.push_back(std::move(job));
        }
        for (const RecordedShape &shape : answer_.job.shapes) {
            QCCL_TRY(recorded_case(shape));
            QCCL_TRY(asked_case(shape));
        }
        answer_.as_recorded_totals = totals(answer_.as_recorded, recorded_times_);
        answer_.asked_totals = totals(answer_.asked, asked_times_);
        for (const RecordedShape &shape : answer_.job.shapes)
            answer_.recorded_wire_bytes +=
                static_cast<double>(shape.shape.wire_bytes) * static_cast<double>(shape.calls);
        write_rules();
        return {};
    }

private:
    struct Simulated {
        WhatIfCase of;
        CallTimes times;
    };

    // Simulates a single call, but with the time of one of many consecutive calls. A burst that a
    // link can take after a pause is not available to each of these.
    static Result<Simulation> repeated(const SimulatedJob &job,
                                       const SimulatedJob::PlannedCall &planned) {
        QCCL_TRY(Simulation single, job.run(planned, {}));
        const SimulationOptions options = repeated_calls(job.machine().ranks);
        if (options.calls + options.lead_in == 1) return single;
        QCCL_TRY(const Simulation many, job.run(planned, options));
        // A factor below 1 means that a root runs ahead, which the replay finds by itself.
        const double factor = single.time_ns > 0 ? many.time_ns / single.time_ns : 1;
        single.time_ns = many.time_ns;
        for (double &time : single.finish_ns) time *= std::max(factor, 1.0);
        return single;
    }

    Result<Simulated> simulated(const RecordedShape &shape, const Codec *codec,
                                const Algorithm &algorithm) const {
        const SimulatedJob &job = jobs_[shape.comm];
        const Operation operation = operation_of(shape.shape, job.machine().ranks);
        // A communicator of one rank only copies, and an empty call does nothing.
        if (operation.ranks == 1 || operation.count == 0)
            return Simulated{.of = {.time_ns = shape.recorded_ns, .algorithm = "none"},
                             .times = {std::vector<double>(operation.ranks, shape.recorded_ns),
                                       std::vector<double>(operation.ranks, shape.recorded_ns)}};
        QCCL_TRY(const SimulatedJob::PlannedCall planned, job.plan(operation, codec, algorithm));
        QCCL_TRY(Simulation simulation, repeated(job, planned));
        Simulated done{.of = {.time_ns = simulation.time_ns,
                              .wire_bytes = simulation.wire_bytes,
                              .codec = planned.plan.codec,
                              .algorithm = spec(planned.plan.algorithm)},
                       .times = {std::move(simulation.finish_ns), std::move(simulation.busy_ns)}};
        if (shape.shape.collective == Collective::barrier) done.of.wire_bytes = 0;
        if (has_error(shape.shape)) done.of.nmse = predicted_nmse(planned.plan, operation.type);
        return done;
    }

    // If the recorded algorithm is not possible on the other machine, the planner chooses one.
    Done recorded_case(const RecordedShape &shape) {
        QCCL_TRY(const Codec codec, known_codec(shape.shape.codec));
        auto algorithm = parse_algorithm(shape.shape.algorithm);
        const bool is_barrier = shape.shape.collective == Collective::barrier;
        auto done = simulated(shape, &codec, algorithm && !is_barrier ? *algorithm : Algorithm());
        if (!done) done = simulated(shape, &codec, {});
        if (!done) return done.error();
        answer_.as_recorded.push_back(done->of);
        recorded_times_.push_back(std::move(done->times));
        return {};
    }

    static Result<Codec> known_codec(const std::string &text) {
        if (text.empty()) return Codec();
        auto codec = parse_codec(text);
        if (!codec)
            return invalid_argument("a log names the codec '%.60s': %.300s", text.c_str(),
                                    codec.error().text);
        codec->min_bytes = 0; // the codec was used, whether it pays here or not
        return codec;
    }

    // Ignores the requested codec for a call that does not support it, such as an integer sum, and
    // for a call that it does not make faster.
    Done asked_case(const RecordedShape &shape) {
        const Codec none;
        const bool fits = row_of(shape.shape.collective).has_values &&
                          (!request_.codec || check_codec(*request_.codec, shape.shape.collective,
                                                          shape.shape.type, shape.shape.op));
        const Algorithm algorithm =
            request_.algorithm && request_.algorithm.has(shape.shape.collective)
                ? request_.algorithm
                : Algorithm();
        const Codec *const codec = !fits ? &none : request_.codec ? &*request_.codec : nullptr;
        QCCL_TRY(Simulated done, simulated(shape, codec, algorithm));
        if (!done.of.codec.is_lossless()) {
            QCCL_TRY(Simulated lossless, simulated(shape, &none, algorithm));
            if (lossless.of.time_ns <= done.of.time_ns) done = std::move(lossless);
        }
        answer_.asked.push_back(done.of);
        asked_times_.push_back(std::move(done.times));
        return {};
    }

    WhatIfTotals totals(const std::vector<WhatIfCase> &cases,
                        const std::vector<CallTimes> &times) const {
        WhatIfTotals sum{.times = replay(answer_.job, times)};
        for (size_t i = 0; i < cases.size(); i++) {
            sum.wire_bytes += static_cast<double>(cases[i].wire_bytes) *
                              static_cast<double>(answer_.job.shapes[i].calls);
            sum.nmse = std::max(sum.nmse, cases[i].nmse.value_or(0));
        }
        return sum;
    }

    static bool has_rule_for(const std::vector<Rule> &rules, const Selector &selector) {
        return std::ranges::find(rules, selector, &Rule::selector) != rules.end();
    }

    // Calls of one shape get the same rule even if the job made them with different codecs or
    // algorithms.
    void write_rules() {
        std::vector<Rule> rules;
        for (size_t i = 0; i < answer_.asked.size(); i++) {
            const RecordedShape &shape = answer_.job.shapes[i];
            const LoggedShape &logged = shape.shape;
            const RecordedComm &comm = answer_.job.comms[shape.comm];
            const bool reduces_values = reduces(logged.collective);
            const auto algorithm = parse_algorithm(answer_.asked[i].algorithm);
            if (!row_of(logged.collective).has_values || !algorithm) continue;
            if (agrees_on_scales(logged)) continue; // no program makes the call
            // Settings and plan files apply codecs only to floating-point sums.
            const bool takes_codec = reduces_values && has_error(logged);
            Rule rule;
            rule.algorithm = *algorithm;
            rule.selector.comm = glob_of(comm.name);
            rule.selector.collective = logged.collective;
            rule.selector.type = logged.type;
            rule.selector.count = {logged.count, logged.count};
            rule.selector.ranks = {comm.members.size(), comm.members.size()};
            const uint64_t hosts = jobs_[shape.comm].machine().hosts();
            rule.selector.hosts = {hosts, hosts};
            if (reduces_values) rule.selector.op = logged.op;
            if (takes_codec) rule.codec = answer_.asked[i].codec;
            // The codec was found to pay here, so the rule sets no minimum size.
            if (rule.codec && !rule.codec->is_lossless()) rule.codec->min_bytes = 0;
            if (!has_rule_for(rules, rule.selector)) rules.push_back(std::move(rule));
        }
        answer_.plan.rules = Rules(std::move(rules));
    }

    const WhatIfRequest &request_;
    WhatIfAnswer &answer_;
    std::vector<SimulatedJob> jobs_; // by communicator
    std::vector<CallTimes> recorded_times_, asked_times_;
};

} // namespace

Result<WhatIfAnswer> find_whatif(const WhatIfRequest &request) {
    QCCL_TRY(const std::vector<CallLog> logs, read_call_logs(request.logs));
    WhatIfAnswer answer;
    QCCL_TRY(answer.job, put_together(logs));
    QCCL_TRY(answer.machine, machine_of(answer.job, request.machine));
    QCCL_TRY(WhatIf(request, answer).run());
    return answer;
}

using Json = nlohmann::ordered_json;

// Increase this when the meaning of a field changes.
static constexpr int whatif_version = 1;

static std::string shape_text(const RecordedJob &job, const RecordedShape &shape) {
    const LoggedShape &logged = shape.shape;
    std::string text = name(logged.collective);
    if (row_of(logged.collective).has_values) {
        text.append(" ").append(std::to_string(logged.count)).append(" ").append(name(logged.type));
        if (reduces(logged.collective)) text.append(" ").append(name(logged.op));
        if (row_of(logged.collective).has_root)
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

Done print_whatif(const WhatIfRequest &request, const std::vector<std::string> &command_line) {
    if (request.json_file == "-" && request.plan_file == "-")
        return invalid_argument("only one of --out and --json can go to "
                                "standard output; name a file for the other");
    QCCL_TRY(const WhatIfAnswer answer, find_whatif(request));
    if (request.json_file != "-") {
        print_heading(answer);
        print_totals(answer);
        print_shapes(answer);
    }
    if (!request.plan_file.empty()) QCCL_TRY(write_file(request.plan_file, print(answer.plan)));
    if (request.json_file.empty()) return {};
    return write_file(request.json_file, json_of(answer, command_line).dump(2) + "\n");
}

} // namespace qccl::perf
