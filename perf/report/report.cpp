// Implements the table, the progress line and the trace of report.hpp: the columns and their
// formats, one line of a terminal that is overwritten, and events formatted as JSON and written in
// pieces of 1 MiB.
#include "perf/report/report.hpp"

#include "perf/report/tool_files.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include <qccl/qccl.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Table

std::string timestamp() { return local_time("%Y-%m-%d %H:%M:%S"); }

static int widest(const std::vector<Codec> &codecs) {
    static constexpr size_t least = 8;
    static constexpr std::string_view longest_chosen = "minmax:bits=7,bucket=64";
    size_t width = least;
    for (const Codec &codec : codecs)
        width = std::max(width, codec.is_auto() ? longest_chosen.size() : spec(codec).size());
    return static_cast<int>(width);
}

Report::Report(const PerfArguments &arguments, std::string program, std::FILE *out)
    : arguments_(arguments), program_(std::move(program)), out_(out),
      codec_width_(widest(arguments.codecs)) {}

void Report::print_header(const std::vector<RankInfo> &ranks) const {
    int version = 0;
    (void)qcclGetVersion(&version);
    const PerfArguments &a = arguments_;
    std::fprintf(out_,
                 "# qccl-perf version %d.%d.%d qccl-headers=%d qccl-library=%d (columns of "
                 "nccl-tests 2.19)\n",
                 QCCL_VERSION_MAJOR, QCCL_VERSION_MINOR, QCCL_VERSION_PATCH, QCCL_VERSION, version);
    std::fprintf(out_, "# Collective test starting: %s\n", program_.c_str());
    std::fprintf(
        out_,
        "# nThread %d nGpus %d minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
        "(%s) warmup iters: %u iters: %u agg iters: %u validation: %u graph: %d unalign: %u\n",
        a.launch == Launch::threads ? static_cast<int>(a.ranks) : 1, 1, a.min_bytes, a.max_bytes,
        a.step_factor > 1 ? a.step_factor : a.step_bytes, a.step_factor > 1 ? "factor" : "bytes",
        a.warmup_iterations, a.iterations.value_or(a.default_iterations), a.aggregated.value_or(1),
        a.checks, 0, a.unaligned_elements);
    if (a.blocking == Blocking::with_barrier)
        std::fprintf(
            out_, "# Blocking Enabled: wait for completion and barrier after each collective \n");
    if (a.blocking == Blocking::without_barrier)
        std::fprintf(
            out_, "# Blocking Enabled: wait for completion after each collective (no barrier) \n");
    if (a.reports_iterations)
        std::fprintf(out_, "# Per-iteration columns: of the slowest rank, without the first %u\n",
                     a.skipped_iterations);
    std::fprintf(
        out_, "# Buffers: %s%s\n",
        a.is_all_gpus() || a.first_gpu().empty() ? "" : "the GPUs' memory; of ranks on the host ",
        a.is_all_gpus()                  ? "the GPUs' memory"
        : a.buffers == Buffers::ordinary ? "ordinary memory"
        : a.registers()                  ? "from qcclMemAlloc, registered"
                                         : "from qcclMemAlloc, not registered");
    if (a.pattern == Pattern::v_form)
        std::fprintf(out_, "# Counts of parts: %s\n", name(a.skew.value_or(Skew::linear)));
    std::fprintf(out_, "#\n# Using devices\n");
    for (const RankInfo &rank : ranks)
        std::fprintf(out_, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", rank.rank,
                     0, rank.process, rank.host, rank.device, rank.device_name, rank.model);
    print_columns();
}

static constexpr const char *our_columns = "  %-*s  %-8s  %12s  %6s  %9s  %9s  %5s  %9s  %9s  %7s";
static constexpr const char *baseline_columns = "  %8s  %8s"; // only with a baseline
static constexpr const char *enqueue_column = "  %8s";        // only with GPUs

void Report::print_columns() const {
    const bool iterations = arguments_.reports_iterations;
    const char *const time = arguments_.reports_cpu_time ? "cputime" : "time";
    const auto four = [&](const char *a, const char *b, const char *c, const char *d) {
        std::fprintf(out_, "  %7s  %6s  %6s  %6s", a, b, c, d);
    };
    const auto line = [&](std::array<const char *, 5> first, std::array<const char *, 4> body,
                          std::array<const char *, 4> per_iteration, const char *stamp) {
        std::fprintf(out_, "# %10s  %12s  %8s  %6s  %6s", first[0], first[1], first[2], first[3],
                     first[4]);
        for (int pass = 0; pass < 2; pass++) {
            four(body[0], body[1], body[2], body[3]);
            if (iterations)
                std::fprintf(out_, "  %7s  %7s  %7s  %7s", per_iteration[0], per_iteration[1],
                             per_iteration[2], per_iteration[3]);
        }
        if (arguments_.reports_timestamps) std::fprintf(out_, "  %19s", stamp);
    };
    std::fprintf(out_, "#\n");
    if (iterations)
        std::fprintf(
            out_,
            "# %10s  %12s  %8s  %6s  %6s              out-of-place (+ per-iteration)          "
            "                      in-place (+ per-iteration)\n",
            "", "", "", "", "");
    else
        std::fprintf(out_,
                     "# %10s  %12s  %8s  %6s  %6s           out-of-place                       "
                     "in-place          \n",
                     "", "", "", "", "");
    line({"size", "count", "type", "redop", "root"}, {time, "algbw", "busbw", "#wrong"},
         {"i_min", "i_max", "i_p99", "i_cv%"}, "timestamp");
    const bool has_baseline = !arguments_.baseline.empty();
    std::fprintf(out_, our_columns, codec_width_, "codec", "algo", "wire", "ratio", "nmse",
                 "predicted", "agree", "median", "in-place", "speedup");
    const bool has_gpus = !arguments_.first_gpu().empty();
    if (has_baseline) std::fprintf(out_, baseline_columns, arguments_.baseline.c_str(), "over it");
    if (has_gpus) std::fprintf(out_, enqueue_column, "enqueue");
    std::fprintf(out_, "\n");
    line({"(B)", "(elements)", "", "", ""}, {"(us)", "(GB/s)", "(GB/s)", ""},
         {"(us)", "(us)", "(us)", "(%)"}, "");
    std::fprintf(out_, our_columns, codec_width_, "", "", "(B)", "", "", "", "", "(us)", "(us)",
                 "");
    if (has_baseline) std::fprintf(out_, baseline_columns, "(us)", "");
    if (has_gpus) std::fprintf(out_, enqueue_column, "(us)");
    std::fprintf(out_, "\n");
}

static std::string or_dash(const char *format, std::optional<double> value) {
    if (!value) return "-";
    char text[32];
    std::snprintf(text, sizeof text, format, *value);
    return text;
}

void Report::print_measurement(const Row &row, const Measurement &measurement) {
    if (!measurement.is_known) {
        std::fprintf(out_, "  %7s  %6s  %6s  %6s", "-", "-", "-", "-");
        return;
    }
    const double seconds = measurement.shown_us * 1e-6;
    const double busbw = row.operation.busbw(seconds);
    std::fprintf(out_, "  %7s  %6s  %6s", fitted(measurement.shown_us, 7).c_str(),
                 fitted(row.operation.algbw(seconds), 6).c_str(), fitted(busbw, 6).c_str());
    if (measurement.wrong)
        std::fprintf(out_, "  %6g", static_cast<double>(*measurement.wrong));
    else
        std::fprintf(out_, "     N/A");
    if (arguments_.reports_iterations) {
        const Statistics time = iteration_statistics(measurement, arguments_.skipped_iterations);
        std::fprintf(out_, "  %7s  %7s  %7s  %7s", fitted(time.min, 7).c_str(),
                     fitted(time.max, 7).c_str(), fitted(time.p99, 7).c_str(),
                     fitted(time.mean > 0 ? time.deviation / time.mean * 100 : 0, 7).c_str());
    }
    busbw_sum_ += busbw;
    measurements_++;
    rows_wrong_ += measurement.wrong.value_or(0) > 0;
}

void Report::print_row(const Row &row) {
    const Operation &operation = row.operation;
    const bool is_rooted = has_root(operation.kind());
    std::fprintf(out_, "%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", operation.bytes(),
                 operation.count * operation.calls(), name(operation.type),
                 reduces(operation.collective) ? name(operation.op) : "none",
                 is_rooted ? static_cast<int>(operation.root) : -1);
    print_measurement(row, row.out_of_place);
    print_measurement(row, row.in_place);
    if (arguments_.reports_timestamps) std::fprintf(out_, "  %19s", timestamp().c_str());

    const Measurement &shown = row.out_of_place;
    const char *const agree = !shown.ranks_agree ? "-" : *shown.ranks_agree ? "yes" : "NO";
    std::fprintf(out_, our_columns, codec_width_, spec(row.shown_codec()).c_str(),
                 row.algorithm.c_str(), std::to_string(shown.wire_bytes).c_str(),
                 or_dash("%.2f", shown.ratio).c_str(), or_dash("%.2e", shown.nmse).c_str(),
                 or_dash("%.2e", row.nmse_predicted).c_str(), agree,
                 fitted(shown.time_us.median, 9).c_str(),
                 row.in_place.is_known ? fitted(row.in_place.time_us.median, 9).c_str() : "-",
                 or_dash("%.2f", shown.speedup).c_str());
    if (!arguments_.baseline.empty()) {
        std::optional<double> gain;
        if (shown.baseline_us && shown.time_us.median > 0)
            gain = *shown.baseline_us / shown.time_us.median;
        std::fprintf(out_, baseline_columns, or_dash("%.2f", shown.baseline_us).c_str(),
                     or_dash("%.2f", gain).c_str());
    }
    if (!arguments_.first_gpu().empty())
        std::fprintf(out_, enqueue_column, or_dash("%.2f", shown.enqueue_us).c_str());
    std::fprintf(out_, "\n");
}

double Report::average_busbw() const {
    return measurements_ > 0 ? busbw_sum_ / static_cast<double>(measurements_) : 0;
}

bool Report::is_too_slow() const {
    static constexpr double tolerance = 0.9; // the tolerance of nccl-tests
    return arguments_.least_busbw && average_busbw() < tolerance * *arguments_.least_busbw;
}

void Report::print_footer(uint64_t memory_bytes) const {
    std::fprintf(out_, "# %-20s : %" PRIu64 " %s\n", "Out of bounds values", rows_wrong_,
                 rows_wrong_ > 0 ? "FAILED" : "OK");
    const std::string verdict = !arguments_.least_busbw ? "" : is_too_slow() ? "FAILED" : "OK";
    std::fprintf(out_, "# %-20s : %g %s\n", "Avg bus bandwidth", average_busbw(), verdict.c_str());
    if (arguments_.reports_memory)
        std::fprintf(out_, "# %-20s : Resident at most %s\n", "Memory usage of rank 0",
                     memory_text(static_cast<double>(memory_bytes)).c_str());
    std::fprintf(out_, "# %s, algbw and busbw are of means; speedup%s of medians\n",
                 arguments_.reports_cpu_time ? "cputime" : "time",
                 arguments_.baseline.empty()
                     ? " is"
                     : (", " + arguments_.baseline + " and over it are").c_str());
    std::fprintf(out_, "#\n# Collective test concluded: %s\n\n#\n", program_.c_str());
}

// ---- Progress

ProgressLine::ProgressLine(uint64_t steps)
    : is_terminal_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

void ProgressLine::show(uint64_t step, const std::string &what) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\033[K%" PRIu64 " of %" PRIu64 ": %s", step, steps_, what.c_str());
    std::fflush(stderr);
    is_shown_ = true;
}

void ProgressLine::clear() {
    if (!is_shown_) return;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    is_shown_ = false;
}

// ---- Trace of a simulated call

static constexpr size_t piece_bytes = size_t{1} << 20;

Result<PerfettoTrace> PerfettoTrace::open(const std::string &path, const RankTopology *places) {
    QCCL_TRY(OutputFile file, OutputFile::open(path));
    PerfettoTrace trace(std::move(file), places);
    trace.text_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
    return trace;
}

static const char *name_of(Verb verb) {
    switch (verb) {
    case Verb::send: return "send";
    case Verb::recv: return "receive";
    case Verb::reduce: return "add";
    case Verb::copy: return "copy";
    case Verb::encode: return "encode";
    case Verb::decode: return "decode";
    case Verb::decode_add: return "decode and add";
    }
    return "";
}

uint32_t PerfettoTrace::host_of(uint32_t rank) const {
    return places_ ? places_->hosts().group_of(rank) : 0;
}

void PerfettoTrace::add_event(const char *event) {
    text_ += has_events_ ? ",\n" : "\n";
    text_ += event;
    has_events_ = true;
    if (text_.size() > piece_bytes) write();
}

void PerfettoTrace::write() {
    if (trouble_) trouble_ = file_.write(text_);
    text_.clear();
}

void PerfettoTrace::name_rank(uint32_t rank) {
    if (rank >= is_named_.size()) is_named_.resize(size_t{rank} + 1);
    if (is_named_[rank]) return;
    is_named_[rank] = true;
    const uint32_t host = host_of(rank);
    char text[256];
    std::snprintf(text, sizeof text,
                  "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %u, "
                  "\"args\": {\"name\": \"host %u\"}},\n"
                  "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %u, \"tid\": %u, "
                  "\"args\": {\"name\": \"rank %u\"}}",
                  host, host, host, rank, rank);
    add_event(text);
}

void PerfettoTrace::add(const SimulatedSpan &span) {
    using Kind = SimulatedSpan::Kind;
    name_rank(span.rank);
    const char *const what = span.kind == Kind::wait   ? "wait"
                             : span.kind == Kind::wire ? "wire"
                                                       : name_of(span.verb);
    char where[192];
    std::snprintf(where, sizeof where, "\"name\": \"%s\", \"pid\": %u, \"tid\": %u", what,
                  host_of(span.rank), span.rank);
    if (span.kind == Kind::wire) return add_message(span, where);
    std::string details;
    if (span.kind != Kind::wait)
        details = ", \"args\": {\"segment\": " + std::to_string(span.instance);
    if (span.kind == Kind::handle)
        details += ", \"peer\": " + std::to_string(span.peer) +
                   ", \"bytes\": " + std::to_string(span.bytes);
    if (!details.empty()) details += "}";
    char text[512];
    std::snprintf(text, sizeof text, "{\"ph\": \"X\", %s, \"ts\": %.3f, \"dur\": %.3f%s}", where,
                  span.begin_ns / 1e3, (span.end_ns - span.begin_ns) / 1e3, details.c_str());
    add_event(text);
}

// Messages of a rank overlap, which the slices of a thread must not.
void PerfettoTrace::add_message(const SimulatedSpan &span, const char *where) {
    char text[640];
    const uint64_t id = messages_++;
    std::snprintf(text, sizeof text,
                  "{\"ph\": \"b\", \"cat\": \"wire\", \"id\": %" PRIu64
                  ", %s, \"ts\": %.3f, \"args\": {\"segment\": %" PRIu64
                  ", \"peer\": %u, \"bytes\": %" PRIu64 "}},\n"
                  "{\"ph\": \"e\", \"cat\": \"wire\", \"id\": %" PRIu64 ", %s, \"ts\": %.3f}",
                  id, where, span.begin_ns / 1e3, span.instance, span.peer, span.bytes, id, where,
                  span.end_ns / 1e3);
    add_event(text);
}

Done PerfettoTrace::close() {
    text_ += "\n]}\n";
    write();
    QCCL_TRY(trouble_);
    return file_.close();
}

} // namespace qccl::perf
