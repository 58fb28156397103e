// Implements qccl-info trace: reads each file twice, first for its calls and clock, then to copy
// the events.
#include "perf/info/info_commands.hpp"

#include "base/system.hpp"
#include "trace/call_log.hpp"
#include "trace/rank_record.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>

#include <nlohmann/json.hpp>

namespace qccl::perf {

namespace {

using Event = nlohmann::ordered_json;

constexpr uint64_t threads_of_process = 10000; // thread numbers reserved for each rank
constexpr uint32_t version = 1;

struct RankTrace {
    std::string path;
    CallLog calls; // of its first communicator, for clock_shifts
    uint64_t process = 0, new_process = 0;
    double shift_us = 0;
    uint64_t events = 0;
    bool is_cut = false;
};

[[gnu::format(printf, 2, 3)]] Error refuse_file(const std::string &path, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return Error::make(Code::damaged_data, "%.250s: %s", path.c_str(), text);
}

template <class Value> Value field(const Event &event, const char *key, const Value &missing) {
    const auto found = event.find(key);
    if (found == event.end()) return missing;
    const Value *const value = found->get_ptr<const Value *>();
    return value ? *value : missing;
}

uint64_t count_field(const Event &event, const char *key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

double time_field(const Event &event, const char *key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

// Calls `take` for each event. A file has one event per line between brackets. The incomplete last
// line of a rank that was killed is skipped.
Done each_event(RankTrace &trace, const std::function<Done(Event &)> &take) {
    std::ifstream file(trace.path, std::ios::binary);
    if (!file)
        return Error::make(Code::system_error, "cannot read %.300s: %s", trace.path.c_str(),
                           describe_errno(errno).c_str());
    std::string line;
    bool has_end = false;
    trace.is_cut = false;
    for (size_t number = 1; std::getline(file, line); number++) {
        if (trace.is_cut || has_end)
            return refuse_file(trace.path, "line %zu is no event of a trace", number - has_end);
        if (number == 1 && line != "[") return refuse_file(trace.path, "no trace of QCCL_TRACE");
        if (number == 1) continue;
        has_end = line == "]";
        if (has_end) continue;
        if (line.ends_with(',')) line.pop_back();
        Event event = Event::parse(line, nullptr, false);
        trace.is_cut = !event.is_object();
        if (trace.is_cut) continue;
        QCCL_TRY(take(event));
    }
    trace.is_cut = trace.is_cut || !has_end;
    return {};
}

Done take_head(RankTrace &trace, const Event &event) {
    const Event none = Event::object();
    const auto found = event.find("args");
    const Event &head = found != event.end() && found->is_object() ? *found : none;
    if (field<std::string>(event, "name", "") != "qccl_trace")
        return refuse_file(trace.path, "no trace of QCCL_TRACE");
    if (count_field(head, "version") != version)
        return refuse_file(trace.path,
                           "a trace of version %" PRIu64 "; this program reads version %u",
                           count_field(head, "version"), version);
    const auto session = field<std::string>(head, "session", "");
    const auto epoch = field<std::string>(head, "epoch_ns", "");
    LoggedComm comm{.id = 1};
    int64_t epoch_ns = -1;
    std::from_chars(session.data(), session.data() + session.size(), comm.session, 16);
    std::from_chars(epoch.data(), epoch.data() + epoch.size(), epoch_ns);
    if (epoch_ns < 0 || epoch_ns > INT64_MAX / 2)
        return refuse_file(trace.path, "epoch_ns is \"%.40s\", no time", epoch.c_str());
    trace.process = count_field(event, "pid");
    trace.calls.head = {.rank = static_cast<uint32_t>(count_field(head, "rank")),
                        .epoch_ns = epoch_ns,
                        .host = field<std::string>(head, "host", "")};
    trace.calls.comms.push_back(std::move(comm));
    for (const char *const name : collective_names) {
        const auto collective = parse_collective(name);
        trace.calls.shapes.push_back({.id = static_cast<uint32_t>(trace.calls.shapes.size()) + 1,
                                      .comm = 1,
                                      .collective = *collective,
                                      .count = 1});
    }
    return {};
}

int64_t to_ns(double us) { return static_cast<int64_t>(std::clamp(us, 0.0, 1e14) * 1e3); }

// Records when calls of the first communicator began and ended.
void take_call(RankTrace &trace, const Event &event) {
    if (count_field(event, "tid") != trace.process * threads_of_process) return;
    const auto phase = field<std::string>(event, "ph", "");
    std::vector<LoggedCall> &calls = trace.calls.calls;
    const int64_t time = to_ns(time_field(event, "ts"));
    if (phase == "E" && !calls.empty() && calls.back().duration_ns < 0) {
        calls.back().duration_ns = std::max(time - calls.back().start_ns, int64_t{0});
        const auto found = event.find("args");
        calls.back().has_failed = found != event.end() && field<bool>(*found, "failed", false);
    }
    if (phase != "B") return;
    const auto collective = parse_collective(field<std::string>(event, "name", ""));
    const auto arguments = event.find("args");
    if (!collective || arguments == event.end()) return;
    calls.push_back({.comm = 1,
                     .shape = static_cast<uint32_t>(*collective) + 1,
                     .number = count_field(*arguments, "call"),
                     .start_ns = time,
                     .duration_ns = -1});
}

Done read_calls(RankTrace &trace) {
    bool has_head = false;
    QCCL_TRY(each_event(trace, [&](Event &event) -> Done {
        if (!has_head) {
            has_head = true;
            return take_head(trace, event);
        }
        take_call(trace, event);
        return {};
    }));
    if (!has_head) return refuse_file(trace.path, "no trace of QCCL_TRACE");
    // A call that has not ended gives no bound for the clocks.
    std::erase_if(trace.calls.calls, [](const LoggedCall &call) { return call.duration_ns < 0; });
    return {};
}

// Ranks of several jobs may have the same process numbers; a repeated number is replaced.
void number_processes(std::vector<RankTrace> &traces) {
    std::map<uint64_t, bool> taken;
    for (RankTrace &trace : traces) {
        trace.new_process = trace.process;
        while (taken[trace.new_process]) trace.new_process++;
        taken[trace.new_process] = true;
    }
}

void bring_together(std::vector<RankTrace> &traces) {
    std::vector<CallLog> logs;
    for (RankTrace &trace : traces) logs.push_back(std::move(trace.calls));
    const std::vector<int64_t> shifts = clock_shifts(logs);
    int64_t epoch = logs.front().head.epoch_ns;
    for (const CallLog &log : logs) epoch = std::min(epoch, log.head.epoch_ns);
    for (size_t i = 0; i < traces.size(); i++) {
        traces[i].shift_us = static_cast<double>(logs[i].head.epoch_ns - epoch + shifts[i]) * 1e-3;
        if (shifts[i] != 0)
            std::printf("%s: the clock of %s is %.3f ms %s that of %s, and its times are moved\n",
                        traces[i].path.c_str(), logs[i].head.host.c_str(),
                        static_cast<double>(std::abs(shifts[i])) * 1e-6,
                        shifts[i] > 0 ? "behind" : "ahead of", logs[0].head.host.c_str());
    }
}

void place(const RankTrace &trace, Event &event) {
    if (event.contains("pid")) event["pid"] = trace.new_process;
    if (event.contains("tid"))
        event["tid"] =
            trace.new_process * threads_of_process + count_field(event, "tid") % threads_of_process;
    if (!event.contains("ts")) return;
    // rounded to nanoseconds, as the ranks wrote it
    event["ts"] = std::round((time_field(event, "ts") + trace.shift_us) * 1e3) / 1e3;
}

using Output = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

Error cannot_write(const std::string &path) {
    return Error::make(Code::system_error, "cannot write %.300s: %s", path.c_str(),
                       describe_errno(errno).c_str());
}

} // namespace

Done merge_traces(const std::vector<std::string> &files, const std::string &output) {
    std::vector<RankTrace> traces;
    for (const std::string &file : files) {
        std::error_code unknown;
        if (std::filesystem::equivalent(file, output, unknown))
            return invalid_argument("--output is %.300s, which is one of the traces",
                                    output.c_str());
        RankTrace trace;
        trace.path = file;
        QCCL_TRY(read_calls(trace));
        traces.push_back(std::move(trace));
    }
    number_processes(traces);
    bring_together(traces);
    Output out(std::fopen(output.c_str(), "we"), std::fclose);
    if (!out) return cannot_write(output);
    std::fputs("[", out.get());
    uint64_t events = 0;
    for (RankTrace &trace : traces) {
        QCCL_TRY(each_event(trace, [&](Event &event) -> Done {
            place(trace, event);
            const std::string line = event.dump(-1, ' ', false, Event::error_handler_t::replace);
            std::fprintf(out.get(), "%s\n%s", events++ == 0 ? "" : ",", line.c_str());
            return {};
        }));
        if (trace.is_cut)
            std::printf("%s: the rank was killed or goes on; its events are taken as far as they "
                        "are whole\n",
                        trace.path.c_str());
    }
    std::fputs("\n]\n", out.get());
    const bool is_written = std::ferror(out.get()) == 0;
    if (std::fclose(out.release()) != 0 || !is_written) return cannot_write(output);
    std::printf("%s: %" PRIu64 " events of %zu ranks; open it in ui.perfetto.dev\n", output.c_str(),
                events, traces.size());
    return {};
}

} // namespace qccl::perf
