// Writes and parses the call log: rows of words with one space between them. Rows of calls have
// plain numbers, because there are many of them; all other rows have key=value pairs in a fixed
// order. The parser takes any bytes: every number is bounded by the rows before it, before it sizes
// or indexes anything.
#include "trace/call_log.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <limits>

namespace qccl {

// ---- Writing

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

// ---- Parsing

namespace {

constexpr size_t shown = 40; // characters of a wrong word
// Bounds that leave room for sums of times.
constexpr int64_t latest_epoch = std::numeric_limits<int64_t>::max() / 4 * 3;
constexpr int64_t longest_time = std::numeric_limits<int64_t>::max() / 16;

class RowParser {
public:
    explicit RowParser(CallLog &log) : log_(log) {}

    // Parses a row without its line end. `number` counts lines from 1.
    Done parse(std::string_view row, size_t number);
    bool has_head() const { return has_head_; }
    bool all_have_ended() const {
        return !log_.comms.empty() &&
               std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    }

private:
    [[gnu::format(printf, 2, 3)]] Error damaged(const char *format, ...) const;
    Error unexpected(std::string_view word, const char *expected) const {
        const int length = static_cast<int>(std::min(word.size(), shown));
        return damaged("'%.*s' stands where %s is expected", length, word.data(), expected);
    }

    std::string_view word();
    template <class Number>
    Done number_of(std::string_view text, const char *what, Number least, Number most,
                   Number &value, int base = 10) const;
    template <class Number>
    Done number(const char *what, Number &value, Number least = 0,
                Number most = std::numeric_limits<Number>::max());
    Result<std::string_view> value_of(const char *key);
    template <class Number>
    Done pair(const char *key, Number &value, Number least = 0,
              Number most = std::numeric_limits<Number>::max(), int base = 10);
    Done text(const char *key, std::string &value);
    Done nodes(uint32_t ranks, std::vector<uint32_t> &node);
    Done comm_id(uint32_t &id);
    Done end_of_row();

    Done parse_head();
    Done parse_comm();
    Done parse_shape();
    Done parse_names(LoggedShape &shape);
    Done parse_call(bool has_failed);
    Done parse_lost();
    Done parse_end();

    CallLog &log_;
    std::string_view rest_;
    size_t line_ = 0;
    bool has_head_ = false;
    std::vector<uint64_t> latest_; // by communicator: number of the last call read
    std::vector<bool> ended_;
};

Error RowParser::damaged(const char *format, ...) const {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return Error::make(Code::damaged_data, "line %zu: %s", line_, text);
}

std::string_view RowParser::word() {
    const size_t space = std::min(rest_.find(' '), rest_.size());
    const std::string_view found = rest_.substr(0, space);
    rest_.remove_prefix(std::min(space + 1, rest_.size()));
    return found;
}

template <class Number>
Done RowParser::number_of(std::string_view text, const char *what, Number least, Number most,
                          Number &value, int base) const {
    std::optional<Number> number;
    if constexpr (std::is_floating_point_v<Number>)
        number = parse_number<Number>(text);
    else
        number = parse_number<Number>(text, base);
    if (!number || !(*number >= least) || !(*number <= most)) return unexpected(text, what);
    value = *number;
    return {};
}

template <class Number>
Done RowParser::number(const char *what, Number &value, Number least, Number most) {
    return number_of(word(), what, least, most, value);
}

Result<std::string_view> RowParser::value_of(const char *key) {
    const std::string_view found = word(), wanted = key;
    if (found.starts_with(wanted) && found.substr(wanted.size()).starts_with('='))
        return found.substr(wanted.size() + 1);
    return unexpected(found, (std::string(key) + "=...").c_str());
}

template <class Number>
Done RowParser::pair(const char *key, Number &value, Number least, Number most, int base) {
    QCCL_TRY(const std::string_view text, value_of(key));
    return number_of(text, (std::string("a number for ") + key).c_str(), least, most, value, base);
}

Done RowParser::text(const char *key, std::string &value) {
    QCCL_TRY(const std::string_view word, value_of(key));
    value.clear();
    for (size_t i = 0; i < word.size(); i++) {
        if (word[i] != '%') {
            value += word[i];
            continue;
        }
        unsigned byte = 256;
        QCCL_TRY(number_of(word.substr(i + 1, 2), "two hexadecimal digits after a %", 0U, 255U,
                           byte, 16));
        value += static_cast<char>(byte);
        i += 2;
    }
    return {};
}

Done RowParser::nodes(uint32_t ranks, std::vector<uint32_t> &node) {
    QCCL_TRY(std::string_view list, value_of("nodes"));
    while (!list.empty()) {
        const std::string_view run = list.substr(0, list.find(','));
        list.remove_prefix(std::min(run.size() + 1, list.size()));
        const size_t star = std::min(run.find('*'), run.size() - 1);
        uint32_t number = 0, count = 0;
        QCCL_TRY(number_of(run.substr(0, star), "the number of a node", 0U, ranks - 1, number));
        const auto left = static_cast<uint32_t>(ranks - node.size());
        QCCL_TRY(number_of(run.substr(star + 1), "how many of the ranks are on a node",
                           std::min(1U, left), left, count));
        node.insert(node.end(), count, number);
    }
    if (node.size() == ranks) return {};
    return damaged("nodes are given for %zu of %" PRIu32 " ranks", node.size(), ranks);
}

Done RowParser::comm_id(uint32_t &id) {
    return number("the number of a communicator above", id, uint32_t{1},
                  static_cast<uint32_t>(log_.comms.size()));
}

Done RowParser::end_of_row() {
    if (rest_.empty()) return {};
    return unexpected(rest_, "the row's end");
}

Done RowParser::parse_head() {
    CallLogHead &head = log_.head;
    uint32_t version = 0;
    QCCL_TRY(number("a version", version));
    if (version != call_log_version)
        return damaged("calls are recorded in version %" PRIu32 "; this program reads version "
                       "%" PRIu32,
                       version, call_log_version);
    QCCL_TRY(pair("rank", head.rank, uint32_t{0}, most_logged_ranks - 1));
    QCCL_TRY(pair("ranks", head.ranks, head.rank + 1, most_logged_ranks));
    QCCL_TRY(pair("pid", head.pid));
    QCCL_TRY(pair("epoch", head.epoch_ns, int64_t{0}, latest_epoch));
    QCCL_TRY(text("library", head.library));
    QCCL_TRY(text("host", head.host));
    has_head_ = true;
    return end_of_row();
}

Done RowParser::parse_comm() {
    LoggedComm comm;
    const auto next = static_cast<uint32_t>(log_.comms.size()) + 1;
    QCCL_TRY(number("the next communicator's number", comm.id, next, next));
    QCCL_TRY(pair("session", comm.session, uint64_t{0}, UINT64_MAX, 16));
    QCCL_TRY(pair("parent", comm.parent, uint32_t{0}, next - 1));
    QCCL_TRY(text("origin", comm.origin));
    uint32_t ranks = 0;
    QCCL_TRY(pair("rank", comm.rank, uint32_t{0}, most_logged_ranks - 1));
    QCCL_TRY(pair("ranks", ranks, comm.rank + 1, most_logged_ranks));
    QCCL_TRY(nodes(ranks, comm.node));
    QCCL_TRY(pair("ranks_per_core", comm.ranks_per_core, 1.0, double{most_logged_ranks}));
    QCCL_TRY(text("name", comm.name));
    QCCL_TRY(end_of_row());
    log_.comms.push_back(std::move(comm));
    latest_.push_back(0);
    ended_.push_back(false);
    return {};
}

Done RowParser::parse_names(LoggedShape &shape) {
    QCCL_TRY(const std::string_view call, value_of("call"));
    const auto found = std::ranges::find(collective_table, call, &CollectiveRow::name);
    if (found == collective_table.end()) return unexpected(call, "the name of a call");
    shape.collective = found->collective;
    QCCL_TRY(const std::string_view type, value_of("type"));
    const auto known_type = parse_type(type);
    if (!known_type) return unexpected(type, "the name of a type");
    QCCL_TRY(const std::string_view op, value_of("op"));
    const auto known_op = parse_op(op);
    if (!known_op) return unexpected(op, "the name of an operation");
    shape.type = *known_type;
    shape.op = *known_op;
    return {};
}

Done RowParser::parse_shape() {
    LoggedShape shape;
    const auto next = static_cast<uint32_t>(log_.shapes.size()) + 1;
    QCCL_TRY(number("the next shape's number", shape.id, next, next));
    QCCL_TRY(comm_id(shape.comm));
    QCCL_TRY(parse_names(shape));
    QCCL_TRY(pair("root", shape.root, uint32_t{0}, log_.comms[shape.comm - 1].ranks() - 1));
    QCCL_TRY(pair("count", shape.count));
    QCCL_TRY(text("asked_codec", shape.asked_codec));
    QCCL_TRY(text("asked_algorithm", shape.asked_algorithm));
    QCCL_TRY(text("codec", shape.codec));
    QCCL_TRY(text("inner_codec", shape.inner_codec));
    QCCL_TRY(text("algorithm", shape.algorithm));
    QCCL_TRY(pair("bytes", shape.bytes));
    QCCL_TRY(pair("wire", shape.wire_bytes));
    QCCL_TRY(end_of_row());
    log_.shapes.push_back(std::move(shape));
    return {};
}

Done RowParser::parse_call(bool has_failed) {
    LoggedCall call{.has_failed = has_failed};
    QCCL_TRY(comm_id(call.comm));
    uint64_t &latest = latest_[call.comm - 1];
    QCCL_TRY(number("a call's number above that of the one before", call.number,
                    latest == UINT64_MAX ? UINT64_MAX : latest + 1));
    QCCL_TRY(number("the number of a shape above", call.shape, uint32_t{1},
                    static_cast<uint32_t>(log_.shapes.size())));
    if (log_.shapes[call.shape - 1].comm != call.comm)
        return damaged("shape %" PRIu32 " is not of communicator %" PRIu32, call.shape, call.comm);
    QCCL_TRY(number("a tag", call.tag));
    QCCL_TRY(number("a time in ns", call.start_ns, int64_t{0}, longest_time));
    QCCL_TRY(number("a duration in ns", call.duration_ns, int64_t{0}, longest_time));
    QCCL_TRY(number("a time in ns", call.queued_ns, int64_t{0}, longest_time));
    QCCL_TRY(end_of_row());
    latest = call.number;
    log_.calls.push_back(call);
    return {};
}

Done RowParser::parse_lost() {
    uint32_t comm = 0;
    uint64_t calls = 0;
    QCCL_TRY(comm_id(comm));
    QCCL_TRY(number("how many calls were lost", calls, uint64_t{1}, UINT64_MAX - log_.lost));
    log_.lost += calls;
    return end_of_row();
}

Done RowParser::parse_end() {
    uint32_t comm = 0;
    int64_t time_ns = 0;
    QCCL_TRY(comm_id(comm));
    QCCL_TRY(number("a time in ns", time_ns));
    ended_[comm - 1] = true;
    return end_of_row();
}

Done RowParser::parse(std::string_view row, size_t number) {
    line_ = number;
    rest_ = row;
    const std::string_view kind = word();
    if (!has_head_) return kind == "qccl-calls" ? parse_head() : unexpected(kind, "qccl-calls");
    if (kind == "call" || kind == "failed") return parse_call(kind == "failed");
    if (kind == "shape") return parse_shape();
    if (kind == "comm") return parse_comm();
    if (kind == "lost") return parse_lost();
    if (kind == "end") return parse_end();
    return unexpected(kind, "call, failed, shape, comm, lost or end");
}

} // namespace

Result<CallLog> parse_call_log(std::string_view text) {
    CallLog log;
    RowParser parser(log);
    for (size_t number = 1; !text.empty(); number++) {
        const size_t end = text.find('\n');
        if (end == std::string_view::npos) {
            log.is_cut = true;
            break;
        }
        QCCL_TRY(parser.parse(text.substr(0, end), number));
        text.remove_prefix(end + 1);
    }
    if (!parser.has_head())
        return Error::make(Code::damaged_data,
                           "the first line is not whole; a record of calls begins with qccl-calls");
    log.has_ended = !log.is_cut && parser.all_have_ended();
    return log;
}

} // namespace qccl
