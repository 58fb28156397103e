// Reads both clocks and interpolates between the readings. Writes trace events as JSON lines.
#include "trace/trace_json.hpp"

#include "base/call_descriptor.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <iterator>

#include <time.h>

namespace qccl {

// ---- Ticks as times of day

int64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Takes the best of a few tries: the thread may lose its core between the two clocks.
TickClock::Look TickClock::look_at_both() {
    Look best;
    uint64_t least = UINT64_MAX;
    for (int tries = 0; tries < 4; tries++) {
        const uint64_t before = ticks_now();
        const int64_t ns = clock_ns(CLOCK_MONOTONIC);
        const uint64_t passed = ticks_now() - before;
        if (passed >= least) continue;
        least = passed;
        best = {before + passed / 2, ns};
    }
    return best;
}

TickClock::TickClock() : realtime_offset_(clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC)) {
    looks_.push_back(look_at_both());
    look();
    first_ = second_ = looks_.front();
}

void TickClock::look() {
    Look now = look_at_both();
    now.ticks = std::max(now.ticks, looks_.back().ticks + 1);
    now.ns = std::max(now.ns, looks_.back().ns);
    looks_.push_back(now);
    if (looks_.size() > most_looks) looks_.pop_front();
}

int64_t TickClock::to_ns(uint64_t ticks) {
    if (ticks < first_.ticks || ticks >= second_.ticks) {
        auto next =
            std::upper_bound(looks_.begin(), looks_.end(), ticks,
                             [](uint64_t wanted, const Look &look) { return wanted < look.ticks; });
        next = std::clamp(next, std::next(looks_.begin()), std::prev(looks_.end()));
        first_ = *std::prev(next);
        second_ = *next;
        ns_per_tick_ = static_cast<double>(second_.ns - first_.ns) /
                       static_cast<double>(second_.ticks - first_.ticks);
    }
    const auto passed = static_cast<double>(static_cast<int64_t>(ticks - first_.ticks));
    return realtime_offset_ + first_.ns + static_cast<int64_t>(passed * ns_per_tick_);
}

// ---- Lines of JSON

namespace {

// Thread numbers are unique across ranks, so that files of several ranks can be put together.
constexpr uint32_t most_threads = 10000;

void append_string(std::string &text, std::string_view value) {
    text += '"';
    for (const char letter : value) {
        if (letter == '"' || letter == '\\') text += '\\';
        // A byte outside ASCII may be half a character, and JSON needs whole characters.
        text += letter >= ' ' && letter < '\x7F' ? letter : '?';
    }
    text += '"';
}

template <class Number> void add(std::string &text, const char *key, Number value) {
    text.append(",\"").append(key).append("\":");
    append_number(text, value);
}

void add_string(std::string &text, const char *key, std::string_view value) {
    text.append(",\"").append(key).append("\":");
    append_string(text, value);
}

void begin_arguments(std::string &text) { text += ",\"args\":{"; }

// Removes the comma before the first argument.
void end_arguments(std::string &text, size_t begin) {
    if (text[begin] == ',') text.erase(begin, 1);
    text += "}}";
}

constexpr std::string_view phase_name(uint8_t phase) {
    switch (static_cast<WaitPhase>(phase)) {
    case WaitPhase::meeting: return "call";
    case WaitPhase::eager: return "small message";
    case WaitPhase::message: return "message";
    case WaitPhase::mailbox_space: return "room";
    case WaitPhase::readers: return "readers";
    case WaitPhase::network: return "network";
    case WaitPhase::device: return "device";
    case WaitPhase::send:
    case WaitPhase::receive: // of a communicator's record; its trace shows the waits of calls
    case WaitPhase::unknown: break;
    }
    return "unknown";
}

// "decode+encode": the work of one pass over the values.
std::string work_name(uint8_t work) {
    std::string name;
    const auto does = [&](uint8_t bit, const char *verb) {
        if ((work & bit) == 0) return;
        if (!name.empty()) name += '+';
        name += verb;
    };
    does(TraceWork::decode, "decode");
    does(TraceWork::reduce, "reduce");
    does(TraceWork::divide, "divide");
    does(TraceWork::copy, "copy");
    does(TraceWork::encode, "encode");
    return name.empty() ? "header" : name;
}

constexpr const char *work_category(uint8_t work) {
    if ((work & TraceWork::encode) != 0) return "encode";
    return (work & TraceWork::decode) != 0 ? "decode" : "copy";
}

} // namespace

TraceJson::TraceJson(const CallLogHead &head, TickClock &clock)
    : head_(head), clock_(clock), process_(head.rank + 1) {}

void TraceJson::begin_line(std::string &text, std::string_view name, std::string_view category,
                           char phase, uint32_t thread) {
    text.append(",\n{\"name\":\"").append(name).append("\",\"cat\":\"").append(category);
    text.append("\",\"ph\":\"").append(1, phase).append("\"");
    add(text, "pid", process_);
    add(text, "tid", process_ * most_threads + thread);
}

// In microseconds, as the format requires.
void TraceJson::add_time(std::string &text, const char *key, int64_t ns) {
    const auto time = static_cast<uint64_t>(ns < 0 ? 0 : ns);
    add(text, key, time / 1000);
    const uint64_t rest = time % 1000;
    text += '.';
    for (const uint64_t digit : {rest / 100, rest / 10 % 10, rest % 10})
        text += static_cast<char>('0' + digit);
}

void TraceJson::add_times(std::string &text, const TraceEvent &event) {
    const int64_t begin = clock_.to_ns(event.begin), end = clock_.to_ns(event.end);
    add_time(text, "ts", begin - head_.epoch_ns);
    add_time(text, "dur", end - begin);
}

void TraceJson::begin_file(std::string &text, uint64_t session) {
    text += "[\n{\"name\":\"qccl_trace\",\"ph\":\"M\"";
    add(text, "pid", process_);
    begin_arguments(text);
    const size_t begin = text.size();
    add(text, "version", trace_version);
    add(text, "rank", head_.rank);
    add(text, "ranks", head_.ranks);
    text += ",\"session\":\"";
    append_number(text, session, 16);
    text += "\"";
    add_string(text, "host", head_.host);
    add(text, "process", head_.pid);
    add_string(text, "library", head_.library);
    // A string, because readers round large numbers.
    add_string(text, "epoch_ns", std::to_string(head_.epoch_ns));
    end_arguments(text, begin);
    const std::string process = "rank " + std::to_string(head_.rank) + " (" + head_.host +
                                ", process " + std::to_string(head_.pid) + ")";
    text += ",\n{\"name\":\"process_name\",\"ph\":\"M\"";
    add(text, "pid", process_);
    text += ",\"args\":{\"name\":";
    append_string(text, process);
    text += "}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\"";
    add(text, "pid", process_);
    text += ",\"args\":{\"sort_index\":";
    append_number(text, head_.rank);
    text += "}}";
}

void TraceJson::name_thread(std::string &text, uint32_t thread, const std::string &name) {
    begin_line(text, "thread_name", "", 'M', thread);
    begin_arguments(text);
    const size_t begin = text.size();
    add_string(text, "name", name);
    end_arguments(text, begin);
}

void TraceJson::begin_comm(std::string &text, const LoggedComm &comm) {
    comm_threads_[comm.id] = threads_;
    std::string name = "communicator " + std::to_string(comm.id);
    if (!comm.name.empty()) name += " " + comm.name;
    name += ": rank " + std::to_string(comm.rank) + " of " + std::to_string(comm.ranks());
    if (comm.parent != 0) name += ", " + comm.origin + " of " + std::to_string(comm.parent);
    name_thread(text, threads_++, name);
}

uint32_t TraceJson::gpu_stream(std::string &text, const LoggedComm &comm, uint16_t lane) {
    const auto [found, is_new] = gpu_streams_.try_emplace({comm.id, lane}, threads_);
    if (is_new)
        name_thread(text, threads_++,
                    "GPU stream " + std::to_string(lane) + " of communicator " +
                        std::to_string(comm.id));
    return found->second;
}

// Calls stand in streams side by side, so these times belong to no thread.
void TraceJson::add_queued(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
                           const TraceEvent &event) {
    if (event.link == 0) return;
    for (const auto &[phase, ticks] : {std::pair('b', event.link), std::pair('e', event.begin)}) {
        begin_line(text, std::string("in a stream: ") + name(shape.collective), "stream", phase,
                   comm_threads_[comm.id]);
        add_time(text, "ts", clock_.to_ns(ticks) - head_.epoch_ns);
        add_string(text, "id", std::to_string(comm.id) + "." + std::to_string(event.call));
        text += '}';
    }
}

void TraceJson::call_begin(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
                           const TraceEvent &event) {
    add_queued(text, comm, shape, event);
    begin_line(text, name(shape.collective), "call", 'B', comm_threads_[comm.id]);
    add_time(text, "ts", clock_.to_ns(event.begin) - head_.epoch_ns);
    begin_arguments(text);
    const size_t begin = text.size();
    add(text, "call", event.call);
    add(text, "tag", event.value);
    add(text, "count", shape.count);
    add_string(text, "type", name(shape.type));
    if (reduces(shape.collective)) add_string(text, "op", name(shape.op));
    if (row_of(shape.collective).has_root) add(text, "root", shape.root);
    add_string(text, "codec", shape.codec);
    if (shape.inner_codec != "none") add_string(text, "inner_codec", shape.inner_codec);
    add_string(text, "algorithm", shape.algorithm);
    add(text, "bytes", shape.bytes);
    add(text, "wire_bytes", shape.wire_bytes);
    end_arguments(text, begin);
}

void TraceJson::call_end(std::string &text, const LoggedComm &comm, const TraceEvent &event) {
    text += ",\n{\"ph\":\"E\"";
    add(text, "pid", process_);
    add(text, "tid", process_ * most_threads + comm_threads_[comm.id]);
    add_time(text, "ts", clock_.to_ns(event.end) - head_.epoch_ns);
    begin_arguments(text);
    const size_t begin = text.size();
    if ((event.detail & TraceEnd::failed) != 0) text += ",\"failed\":true";
    if (event.peer != 0) add(text, "left_out", event.peer);
    end_arguments(text, begin);
}

void TraceJson::wait(std::string &text, const LoggedComm &comm, const TraceEvent &event) {
    begin_line(text, "wait", "wait", 'X', comm_threads_[comm.id]);
    add_times(text, event);
    begin_arguments(text);
    const size_t begin = text.size();
    add_string(text, "for", phase_name(event.detail));
    add(text, "rank", event.peer);
    if (event.step != TraceEvent::no_step) {
        add(text, "step", event.step);
        add(text, "segment", event.segment);
    }
    end_arguments(text, begin);
}

void TraceJson::message(std::string &text, const LoggedComm &comm, const TraceEvent &event) {
    const bool sends = event.kind == TraceEvent::Kind::send;
    begin_line(text, sends ? "send" : "recv", "wire", 'X', comm_threads_[comm.id]);
    add_times(text, event);
    if (event.link != 0) {
        text += ",\"bind_id\":\"0x";
        append_number(text, event.link, 16);
        text += sends ? "\",\"flow_out\":true" : "\",\"flow_in\":true";
    }
    begin_arguments(text);
    const size_t begin = text.size();
    if (event.peer == TraceEvent::all_peers)
        add_string(text, sends ? "to" : "from", "all");
    else
        add(text, sends ? "to" : "from", event.peer);
    add(text, "bytes", event.value);
    if (event.step != TraceEvent::no_step) {
        add(text, "step", event.step);
        add(text, "segment", event.segment);
    }
    end_arguments(text, begin);
}

void TraceJson::work(std::string &text, const LoggedComm &comm, const TraceEvent &event) {
    const bool is_device = event.kind == TraceEvent::Kind::device;
    const uint32_t thread = is_device ? gpu_stream(text, comm, event.lane) : comm_threads_[comm.id];
    std::string name = work_name(event.detail);
    if (event.kind == TraceEvent::Kind::launch) name.insert(0, "launch ");
    begin_line(text, name, work_category(event.detail), 'X', thread);
    add_times(text, event);
    begin_arguments(text);
    const size_t begin = text.size();
    add(text, "bytes", event.value);
    add(text, "chunk", event.chunk);
    add(text, "segment", event.segment);
    end_arguments(text, begin);
}

void TraceJson::event(std::string &text, const LoggedComm &comm, const LoggedShape &shape,
                      const TraceEvent &event) {
    switch (event.kind) {
    case TraceEvent::Kind::call_begin: return call_begin(text, comm, shape, event);
    case TraceEvent::Kind::call_end:
        if ((event.detail & TraceEnd::began) != 0) call_end(text, comm, event);
        return;
    case TraceEvent::Kind::wait: return wait(text, comm, event);
    case TraceEvent::Kind::send:
    case TraceEvent::Kind::recv: return message(text, comm, event);
    case TraceEvent::Kind::work:
    case TraceEvent::Kind::launch:
    case TraceEvent::Kind::device: return work(text, comm, event);
    }
}

void TraceJson::left_out(std::string &text, const LoggedComm &comm, const TraceEvent &event,
                         uint64_t calls) {
    begin_line(text, "calls are left out", "call", 'i', comm_threads_[comm.id]);
    add_time(text, "ts", clock_.to_ns(event.begin) - head_.epoch_ns);
    text += ",\"s\":\"t\"";
    begin_arguments(text);
    const size_t begin = text.size();
    add(text, "calls", calls);
    end_arguments(text, begin);
}

} // namespace qccl
