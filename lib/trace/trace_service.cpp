// Creates a growing file under a free name and writes each piece together with the ending. The
// trace's thread drains the tracers' rings and writes the trace and the call log.
#include "trace/trace_service.hpp"

#include "base/exception_boundary.hpp"
#include "base/system.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

namespace qccl {

// ---- Files that grow

static constexpr int most_names = 10000;

Result<GrowingFile> GrowingFile::create(const std::string &path, std::string ending) {
    GrowingFile made;
    made.ending_ = std::move(ending);
    for (int number = 1; !made.file_.is_open(); number++) {
        made.path_ =
            number == 1 ? path : with_suffix(path, std::string(".").append(std::to_string(number)));
        made.file_ = FileDescriptor(
            open(made.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644));
        if (!made.file_.is_open() && (errno != EEXIST || number == most_names))
            return Error::make(Code::system_error, "cannot create \"%.300s\": %s",
                               made.path_.c_str(), describe_errno(errno).c_str());
    }
    QCCL_TRY(made.append({}));
    return made;
}

Done GrowingFile::append(std::string_view text) {
    piece_.assign(text);
    piece_ += ending_;
    if (const Done written = write_at(bytes_, piece_); !written) {
        // The old ending's place on the disk still belongs to the file.
        if (ftruncate(file_.number(), static_cast<off_t>(bytes_)) == 0)
            (void)write_at(bytes_, ending_);
        return written;
    }
    bytes_ += text.size();
    return {};
}

Done GrowingFile::write_at(uint64_t offset, std::string_view text) const {
    while (!text.empty()) {
        const ssize_t written =
            pwrite(file_.number(), text.data(), text.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return Error::make(Code::system_error, "cannot write \"%.300s\": %s", path_.c_str(),
                               describe_errno(written < 0 ? errno : ENOSPC).c_str());
        text.remove_prefix(static_cast<size_t>(written));
        offset += static_cast<uint64_t>(written);
    }
    return {};
}

// ---- The trace's thread

namespace {

constexpr const char *trace_setting = "QCCL_TRACE", *calls_setting = "QCCL_RECORD_CALLS";

// The pause between two rounds; a killed process loses at most the calls of such a time.
constexpr std::chrono::milliseconds pause{100};
constexpr size_t piece = size_t{64} << 10; // written at once
// No viewer opens larger files.
constexpr uint64_t most_trace_bytes = uint64_t{1} << 30;
// The part of a core's time that tracing steps may take: the trace of a job that only makes small
// calls would otherwise take the ranks' own cores. Time that was saved meanwhile may be spent at
// once.
constexpr int64_t budget_divisor = 400, most_saved_ns = 20'000'000;
constexpr uint64_t most_left_out_groups = 1 << 20;

} // namespace

Done TracePatterns::check() const {
    QCCL_TRY(outcome(rank_file_path(trace_setting, trace, 0, 1)));
    return outcome(rank_file_path(calls_setting, calls, 0, 1));
}

Result<std::shared_ptr<TraceService>> TraceService::create(const TracePatterns &patterns,
                                                           uint32_t rank, uint32_t ranks,
                                                           const std::string &library) {
    constexpr int64_t day_ns = int64_t{24} * 3600 * 1'000'000'000;
    const int64_t now = clock_ns(CLOCK_REALTIME);
    std::shared_ptr<TraceService> service(
        new TraceService(patterns, {.rank = rank,
                                    .ranks = ranks,
                                    .pid = getpid(),
                                    .epoch_ns = now - now % day_ns,
                                    .host = host_name(),
                                    .library = library}));
    QCCL_TRY(service->thread_,
             ServiceThread::start(trace_thread_name, [self = service.get()] { self->run(); }));
    return service;
}

TraceService::~TraceService() {
    ends_.store(true, std::memory_order_release);
    wake_.release();
    thread_.join();
}

std::shared_ptr<CallTracer> TraceService::attach(LoggedComm comm) {
    const std::lock_guard lock(mutex_);
    comm.id = ++last_comm_;
    auto tracer = std::make_shared<CallTracer>(std::move(comm), !patterns_.trace.empty(), wake_);
    sources_.push_back(std::make_shared<TraceSource>(TraceSource{tracer}));
    return tracer;
}

void TraceService::detach(const std::shared_ptr<CallTracer> &tracer) {
    tracer->close();
    wake_.release();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
        return std::none_of(sources_.begin(), sources_.end(),
                            [&](const auto &source) { return source->tracer == tracer; });
    });
}

std::vector<TraceNotice> TraceService::take_notices() {
    const std::lock_guard lock(mutex_);
    has_notices_.store(false, std::memory_order_relaxed);
    return std::exchange(notices_, {});
}

void TraceService::note(const std::string &sentence, bool is_warning) {
    const std::lock_guard lock(mutex_);
    notices_.push_back({sentence, is_warning});
    has_notices_.store(true, std::memory_order_relaxed);
}

void TraceService::run() {
    budget_at_ns_ = clock_ns(CLOCK_MONOTONIC);
    budget_ns_ = most_saved_ns;
    while (!ends_.load(std::memory_order_acquire)) {
        round_or_give_up();
        (void)wake_.try_acquire_for(pause);
    }
    round_or_give_up();
}

// A job that needs all its memory must not end because of its trace.
void TraceService::round_or_give_up() {
    if (has_given_up_) return forget_closed();
    const Done done = exception_boundary([this]() -> Done {
        round();
        return {};
    });
    if (done) return;
    has_given_up_ = true;
    trace_.reset();
    calls_.reset();
    (void)exception_boundary([&]() -> Done {
        note(std::string("calls are not recorded any more, and the files end before their time: ") +
             done.error().text);
        return {};
    });
    forget_closed();
}

void TraceService::forget_closed() {
    const std::lock_guard lock(mutex_);
    for (const auto &source : sources_) {
        (void)source->tracer->take_new_shapes();
        source->shapes.clear();
    }
    std::erase_if(sources_, [](const auto &source) { return source->tracer->is_closed(); });
    changed_.notify_all();
}

void TraceService::round() {
    std::vector<std::shared_ptr<TraceSource>> sources;
    {
        const std::lock_guard lock(mutex_);
        sources = sources_;
    }
    // In this order, so that every event that is read was written before the clock is read.
    for (const auto &source : sources) {
        source->closes = source->tracer->is_closed();
        source->end = source->tracer->ring().shown();
    }
    clock_.look();
    for (const auto &source : sources) {
        if (!are_open_ && source->end != 0) open_files(*source->tracer);
        if (are_open_) read(*source);
    }
    flush(trace_, 1);
    flush(calls_, 1);
    keep_budget();
    for (const auto &source : sources) source->tracer->trace_every(traced_groups_);
    const std::lock_guard lock(mutex_);
    if (std::erase_if(sources_, [](const auto &source) { return source->closes; }) != 0)
        changed_.notify_all();
}

std::optional<TraceService::File>
TraceService::open(const char *setting, const std::string &pattern, const char *ending) {
    if (pattern.empty()) return std::nullopt;
    const auto path = rank_file_path(setting, pattern, head_.rank, head_.ranks);
    auto file = path ? GrowingFile::create(*path, ending) : Result<GrowingFile>(path.error());
    if (!file) {
        note(std::string(setting) + ": " + file.error().text +
             "; the job goes on without this file");
        return std::nullopt;
    }
    if (file->path() != *path)
        note(std::string(setting) + ": \"" + *path +
                 "\" is there already and stays as it is; this rank writes \"" + file->path() +
                 "\"",
             head_.rank == 0);
    return File{std::move(*file), setting};
}

// Runs at the first call: communicators without calls leave no files.
void TraceService::open_files(const CallTracer &first) {
    are_open_ = true;
    trace_ = open(trace_setting, patterns_.trace, TraceJson::ending);
    calls_ = open(calls_setting, patterns_.calls, "");
    if (trace_) json_.begin_file(trace_->text, first.comm().session);
    if (calls_) append_row(calls_->text, head_);
    // The first round may take long, and a killed process should leave no file without its head.
    flush(trace_, 1);
    flush(calls_, 1);
}

void TraceService::read(TraceSource &source) {
    if (!source.has_begun) begin(source);
    take_shapes(source);
    source.tracer->ring().drain(source.end, [&](const TraceEvent &event) { take(source, event); });
    // Later events have later shapes.
    while (source.forgotten + CallTracer::most_shapes_known < source.latest) {
        source.shapes.pop_front();
        source.forgotten++;
    }
    const uint64_t lost = source.tracer->lost();
    if (calls_ && lost != source.lost_told)
        append_lost(calls_->text, source.tracer->comm().id, lost - source.lost_told);
    source.left_out += lost - source.lost_told;
    source.lost_told = lost;
    if (source.closes) end(source);
}

void TraceService::take_shapes(TraceSource &source) {
    for (LoggedShape &shape : source.tracer->take_new_shapes()) {
        shape.id = ++last_shape_;
        if (calls_) append_row(calls_->text, shape);
        source.shapes.push_back(std::move(shape));
    }
}

void TraceService::begin(TraceSource &source) {
    const LoggedComm &comm = source.tracer->comm();
    source.has_begun = true;
    if (trace_) json_.begin_comm(trace_->text, comm);
    if (calls_) append_row(calls_->text, comm);
}

void TraceService::take(TraceSource &source, const TraceEvent &event) {
    source.latest = std::max(source.latest, event.shape);
    const bool is_end = event.kind == TraceEvent::Kind::call_end;
    if (calls_ && is_end) log_call(source, event);
    if (!trace_) return;
    if (is_end && (event.detail & TraceEnd::began) == 0) {
        source.left_out++;
        return;
    }
    const LoggedComm &comm = source.tracer->comm();
    if (event.kind == TraceEvent::Kind::call_begin && source.left_out != 0)
        json_.left_out(trace_->text, comm, event, std::exchange(source.left_out, 0));
    json_.event(trace_->text, comm, source.shape(event.shape), event);
    flush(trace_, piece);
}

void TraceService::log_call(TraceSource &source, const TraceEvent &event) {
    const int64_t start = clock_.to_ns(event.begin);
    append_row(calls_->text,
               LoggedCall{.comm = source.tracer->comm().id,
                          .shape = source.shape(event.shape).id,
                          .number = event.call,
                          .tag = event.value,
                          .start_ns = std::max(start - head_.epoch_ns, int64_t{0}),
                          .duration_ns = clock_.to_ns(event.end) - start,
                          .queued_ns = event.link == 0 ? 0 : start - clock_.to_ns(event.link),
                          .has_failed = (event.detail & TraceEnd::failed) != 0});
    flush(calls_, piece);
}

void TraceService::end(const TraceSource &source) {
    if (calls_)
        append_end(calls_->text, source.tracer->comm().id,
                   clock_ns(CLOCK_REALTIME) - head_.epoch_ns);
}

void TraceService::flush(std::optional<File> &file, size_t least) {
    if (!file || file->text.size() < least) return;
    const Done written = file->file.append(file->text);
    file->text.clear();
    if (!written) {
        note(std::string(file->setting) + ": " + written.error().text + "; the file ends there");
        file.reset();
        return;
    }
    if (file->setting != trace_setting || file->file.bytes() < most_trace_bytes) return;
    char sentence[500];
    std::snprintf(sentence, sizeof sentence,
                  "%s: \"%.300s\" has reached %" PRIu64 " MiB and ends there", file->setting,
                  file->file.path().c_str(), most_trace_bytes >> 20);
    note(sentence);
    file.reset();
}

// If the thread takes more than its share of time, it leaves out more calls; if it takes less, it
// leaves out fewer.
void TraceService::keep_budget() {
    const int64_t now = clock_ns(CLOCK_MONOTONIC), spent = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    budget_ns_ += (now - budget_at_ns_) / budget_divisor - (spent - spent_ns_);
    budget_ns_ = std::min(budget_ns_, most_saved_ns);
    budget_at_ns_ = now;
    spent_ns_ = spent;
    if (budget_ns_ < 0)
        traced_groups_ = std::min(traced_groups_ * 2, most_left_out_groups);
    else if (budget_ns_ > most_saved_ns / 2 && traced_groups_ > 1)
        traced_groups_ /= 2;
}

} // namespace qccl
