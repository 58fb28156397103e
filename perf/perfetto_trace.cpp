// Implements perfetto_trace.hpp: formats events as JSON and writes them in pieces of 1 MiB.
#include "perf/perfetto_trace.hpp"

#include <cinttypes>

namespace qccl::perf {

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
