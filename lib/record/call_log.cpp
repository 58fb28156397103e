// Writes the call log: rows of words with one space between them. Rows of calls have plain numbers,
// because there are many of them; all other rows have key=value pairs in a fixed order.
#include "record/call_log.hpp"

#include "base/append_number.hpp"

namespace qccl {

namespace {

constexpr char hexadecimals[] = "0123456789ABCDEF";

template <class Number> void append_word(std::string &text, Number value) {
    text += ' ';
    append_number(text, value);
}

template <class Number>
void append_pair(std::string &text, std::string_view key, Number value, int base = 10) {
    text.append(" ").append(key).append("=");
    append_number(text, value, base);
}

// Characters that would end a word are written as %XX.
void append_text(std::string &text, std::string_view key, std::string_view value) {
    text.append(" ").append(key).append("=");
    for (const char letter : value) {
        const auto byte = static_cast<unsigned char>(letter);
        if (byte > ' ' && byte != '%' && byte != 0x7F) {
            text += letter;
            continue;
        }
        text += '%';
        text += hexadecimals[byte >> 4];
        text += hexadecimals[byte & 15];
    }
}

// "0*2,1*2": two ranks on node 0, then two on node 1.
void append_nodes(std::string &text, const std::vector<uint32_t> &node) {
    text += " nodes=";
    for (size_t first = 0, next = 0; first < node.size(); first = next) {
        while (next < node.size() && node[next] == node[first]) next++;
        if (first != 0) text += ',';
        append_number(text, node[first]);
        text += '*';
        append_number(text, next - first);
    }
}

void append_decimal(std::string &text, std::string_view key, double value) {
    constexpr int digits = 3;
    text.append(" ").append(key).append("=");
    append_number(text, value, std::chars_format::general, digits);
}

} // namespace

void append_row(std::string &text, const CallLogHead &head) {
    text += "qccl-calls";
    append_word(text, call_log_version);
    append_pair(text, "rank", head.rank);
    append_pair(text, "ranks", head.ranks);
    append_pair(text, "pid", head.pid);
    append_pair(text, "epoch", head.epoch_ns);
    append_text(text, "library", head.library);
    append_text(text, "host", head.host);
    text += '\n';
}

void append_row(std::string &text, const LoggedComm &comm) {
    text += "comm";
    append_word(text, comm.id);
    append_pair(text, "session", comm.session, 16);
    append_pair(text, "parent", comm.parent);
    append_text(text, "origin", comm.origin);
    append_pair(text, "rank", comm.rank);
    append_pair(text, "ranks", comm.ranks());
    append_nodes(text, comm.node);
    append_decimal(text, "ranks_per_core", comm.ranks_per_core);
    append_text(text, "name", comm.name);
    text += '\n';
}

void append_row(std::string &text, const LoggedShape &shape) {
    text += "shape";
    append_word(text, shape.id);
    append_word(text, shape.comm);
    append_text(text, "call", name(shape.collective));
    append_text(text, "type", name(shape.type));
    append_text(text, "op", name(shape.op));
    append_pair(text, "root", shape.root);
    append_pair(text, "count", shape.count);
    append_text(text, "asked_codec", shape.asked_codec);
    append_text(text, "asked_algorithm", shape.asked_algorithm);
    append_text(text, "codec", shape.codec);
    append_text(text, "inner_codec", shape.inner_codec);
    append_text(text, "algorithm", shape.algorithm);
    append_pair(text, "bytes", shape.bytes);
    append_pair(text, "wire", shape.wire_bytes);
    text += '\n';
}

void append_row(std::string &text, const LoggedCall &call) {
    text += call.has_failed ? "failed" : "call";
    append_word(text, call.comm);
    append_word(text, call.number);
    append_word(text, call.shape);
    append_word(text, call.tag);
    append_word(text, call.start_ns);
    append_word(text, call.duration_ns);
    append_word(text, call.queued_ns);
    text += '\n';
}

void append_lost(std::string &text, uint32_t comm, uint64_t calls) {
    text += "lost";
    append_word(text, comm);
    append_word(text, calls);
    text += '\n';
}

void append_end(std::string &text, uint32_t comm, int64_t time_ns) {
    text += "end";
    append_word(text, comm);
    append_word(text, time_ns);
    text += '\n';
}

} // namespace qccl
