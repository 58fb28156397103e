// Writes events in the Trace Event Format's JSON array, which Perfetto and chrome://tracing read,
// with one line for each event. The rank is a process there, and each of its communicators and GPU
// streams is a thread. A TickClock converts ticks of the processor, in which events have their
// times, into the time of day; between two readings of both clocks all ticks count as equally long.
// Used only by the trace's thread; does not block.
#pragma once

#include "trace/call_log.hpp"
#include "trace/recorder.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include <time.h>

namespace qccl {

// ---- Ticks as times of day

int64_t clock_ns(clockid_t clock);

class TickClock {
public:
    TickClock();

    // Reads both clocks. Ticks before the latest reading are converted exactly, later ticks by the
    // rate before that reading.
    void look();
    // Returns CLOCK_REALTIME; its offset to the clock that never jumps is fixed when this object is
    // created.
    int64_t to_ns(uint64_t ticks);

private:
    struct Look {
        uint64_t ticks = 0;
        int64_t ns = 0;
    };
    static Look look_at_both();

    static constexpr size_t most_looks = 4096; // older ticks are converted by the oldest rate
    int64_t realtime_offset_ = 0;
    std::deque<Look> looks_; // at least two
    // The readings before and after the last converted ticks.
    Look first_, second_;
    double ns_per_tick_ = 0;
};

// ---- Lines of JSON

inline constexpr uint32_t trace_version = 1;

class TraceJson {
public:
    // The head's `epoch_ns` (CLOCK_REALTIME) is time 0 of all lines, because numbers of JSON are
    // doubles.
    TraceJson(const CallLogHead &head, TickClock &clock);

    // The end of a file, behind its last line.
    static constexpr const char *ending = "\n]\n";

    // Each appends lines.
    void begin_file(std::string &text, uint64_t session);
    void begin_comm(std::string &text, const LoggedComm &comm);
    // `comm` and `shape` are the event's. A call_end gives a line only after its call_begin.
    void event(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
               const TraceEvent &event);
    // Appends a line which says that `calls` calls are missing before the event.
    void left_out(std::string &text, const LoggedComm &comm, const TraceEvent &event,
                  uint64_t calls);

private:
    void begin_line(std::string &text, std::string_view name, std::string_view category, char phase,
                    uint32_t thread);
    void name_thread(std::string &text, uint32_t thread, const std::string &name);
    uint32_t gpu_stream(std::string &text, const LoggedComm &comm, uint16_t lane);
    void add_time(std::string &text, const char *key, int64_t ns);
    void add_times(std::string &text, const TraceEvent &event);
    void add_queued(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
                    const TraceEvent &event);
    void call_begin(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
                    const TraceEvent &event);
    void call_end(std::string &text, const LoggedComm &comm, const TraceEvent &event);
    void wait(std::string &text, const LoggedComm &comm, const TraceEvent &event);
    void message(std::string &text, const LoggedComm &comm, const TraceEvent &event);
    void work(std::string &text, const LoggedComm &comm, const TraceEvent &event);

    const CallLogHead head_;
    TickClock &clock_;
    const uint32_t process_; // its number in the trace: not 0, which stands for the idle task
    std::map<std::pair<uint32_t, uint16_t>, uint32_t> gpu_streams_; // by communicator and lane
    uint32_t threads_ = 0;
    std::map<uint32_t, uint32_t> comm_threads_;
};

} // namespace qccl
