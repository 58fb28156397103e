// One rank's trace (QCCL_TRACE) and call log (QCCL_RECORD_CALLS): a thread takes the events of the
// calls of the rank's communicators and writes them to at most one file each. Events that cannot be
// written are left out; calls neither wait for the thread nor fail because of it. Any thread may
// call TraceService; only detach and the destructor wait for the thread.
//
// A GrowingFile is a file that grows while others may read it and is complete at every moment: its
// ending is written with each piece and overwritten by the next piece. The trace's thread writes
// the trace and the call log to such files, and the log of audits is another one. One thread at a
// time uses a file; `append` blocks as the disk does.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"
#include "trace/call_log.hpp"
#include "trace/recorder.hpp"
#include "trace/trace_json.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Files that grow

class GrowingFile {
public:
    // Creates a new file and never overwrites an existing one: if `path` exists, the file gets the
    // lowest free number from 2 on before its extension. `ending` always stands behind everything
    // that is appended. Returns system_error with the reason if the file cannot be created or
    // written.
    static Result<GrowingFile> create(const std::string &path, std::string ending);

    // Appends a piece. After an error the file ends with what was appended before.
    Done append(std::string_view text);
    const std::string &path() const { return path_; }
    uint64_t bytes() const { return bytes_; }

private:
    Done write_at(uint64_t offset, std::string_view text) const;

    FileDescriptor file_;
    std::string path_, ending_, piece_;
    uint64_t bytes_ = 0; // before the ending
};

// ---- The trace's thread

// Patterns of file names as in QCCL_TRACE and QCCL_RECORD_CALLS; empty: no such file.
struct TracePatterns {
    std::string trace, calls;

    bool are_empty() const { return trace.empty() && calls.empty(); }
    // Returns invalid_argument if a letter behind a % is not known or a pattern names a folder.
    Done check() const;
};

// A sentence for the log that the user should see.
struct TraceNotice {
    std::string text;
    bool is_warning = true; // false: another rank warns of the same
};

class TraceService {
public:
    // Starts the service. `rank` and `ranks` are those of the rank's first communicator; `library`
    // is the library's version. Files are created at the first call. Returns system_error if the
    // thread cannot be started.
    static Result<std::shared_ptr<TraceService>> create(const TracePatterns &patterns,
                                                        uint32_t rank, uint32_t ranks,
                                                        const std::string &library);
    ~TraceService();
    TraceService(const TraceService &) = delete;

    // Returns the tracer of a communicator whose calls are traced from now on; the service sets its
    // number.
    std::shared_ptr<CallTracer> attach(LoggedComm comm);
    // Called after the communicator's last call. Returns when all its events are in the files.
    void detach(const std::shared_ptr<CallTracer> &tracer);

    // has_notices: whether there are notices since the last take_notices; costs one load.
    bool has_notices() const { return has_notices_.load(std::memory_order_relaxed); }
    std::vector<TraceNotice> take_notices();

private:
    struct TraceSource {
        std::shared_ptr<CallTracer> tracer;
        // The latest shapes, by their number in the tracer - 1 - forgotten.
        std::deque<LoggedShape> shapes{};
        uint32_t forgotten = 0;
        uint32_t latest = 0; // the highest number in an event so far
        uint64_t end = 0;    // of the ring, in this round
        uint64_t lost_told = 0, left_out = 0;
        bool closes = false, has_begun = false;

        const LoggedShape &shape(uint32_t number) const { return shapes[number - 1 - forgotten]; }
    };
    struct File {
        GrowingFile file;
        const char *setting;
        std::string text{}; // not written yet
    };

    TraceService(TracePatterns patterns, CallLogHead head)
        : patterns_(std::move(patterns)), head_(std::move(head)), json_(head_, clock_) {}
    void run();
    void round();
    void round_or_give_up(); // writes nothing more after an exception
    void forget_closed();    // drops closed tracers and unread shapes
    void open_files(const CallTracer &first);
    std::optional<File> open(const char *setting, const std::string &pattern, const char *ending);
    void read(TraceSource &source);
    void take_shapes(TraceSource &source);
    void begin(TraceSource &source);
    void take(TraceSource &source, const TraceEvent &event);
    void log_call(TraceSource &source, const TraceEvent &event);
    void end(const TraceSource &source);
    void flush(std::optional<File> &file, size_t least);
    void note(const std::string &sentence, bool is_warning = true);
    void keep_budget();

    const TracePatterns patterns_;
    const CallLogHead head_;
    TickClock clock_;
    TraceJson json_;
    // Used only by the thread.
    bool are_open_ = false, has_given_up_ = false;
    std::optional<File> trace_, calls_;
    uint32_t last_shape_ = 0; // in the call log
    int64_t budget_ns_ = 0, budget_at_ns_ = 0, spent_ns_ = 0;
    uint64_t traced_groups_ = 1; // of so many groups of calls one is traced

    CallTracer::Wake wake_{0};
    std::atomic<bool> ends_{false}, has_notices_{false};
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::vector<std::shared_ptr<TraceSource>> sources_;
    uint32_t last_comm_ = 0;
    std::vector<TraceNotice> notices_;
    ServiceThread thread_; // last: the thread uses the other members
};

} // namespace qccl
