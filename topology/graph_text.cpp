// Writes and parses the text form of topologies.
#include "topology/graph.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace qccl {

namespace {

bool is_plain(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') ||
           std::string_view("_.:,/+-").find(letter) != std::string_view::npos;
}

void add_text(std::string &line, const char *key, const std::string &text) {
    if (text.empty()) return;
    line += key;
    if (std::all_of(text.begin(), text.end(), is_plain)) {
        line += text;
        return;
    }
    line += '"';
    for (const char letter : text) {
        char escaped[8];
        if (letter == '"' || letter == '\\')
            (line += '\\') += letter;
        else if ((letter >= 0 && letter < ' ') || letter == 0x7f) {
            std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(letter));
            line += escaped;
        } else
            line += letter;
    }
    line += '"';
}

void add_number(std::string &line, const char *key, double value) {
    if (value == 0) return;
    char digits[32];
    const auto [end, problem] = std::to_chars(digits, digits + sizeof digits, value);
    line.append(key).append(digits, end);
}

std::string part_line(const Vertex &vertex, uint32_t number) {
    std::string line = "part " + std::to_string(number) + ' ' + std::string(name(vertex.kind));
    if (vertex.parent != no_vertex) line += " in " + std::to_string(vertex.parent);
    if (vertex.number != 0) line += " number " + std::to_string(vertex.number);
    add_text(line, " name ", vertex.name);
    add_text(line, " bus ", vertex.bus_id);
    if (!vertex.cpus.is_empty()) line += " cpus " + vertex.cpus.print();
    add_text(line, " arch ", vertex.arch);
    if (vertex.rdma) line += " rdma";
    if (vertex.gpudirect) line += " gpudirect";
    return line + '\n';
}

std::string link_line(const Link &link) {
    std::string line = "link " + std::to_string(link.from) + ' ' + std::to_string(link.to) + ' ' +
                       std::string(name(link.link_class));
    add_number(line, " rate ", link.bytes_per_ns);
    add_number(line, " latency ", link.latency_ns);
    if (link.width != 1) line += " width " + std::to_string(link.width);
    return line + '\n';
}

// Reads the words of a line, one after the other.
class LineReader {
public:
    explicit LineReader(std::string_view line) : rest_(line) {}

    bool is_at_end() {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
        return rest_.empty() || rest_[0] == '#';
    }
    // Empty at the end of the line.
    std::string_view word() {
        if (is_at_end()) return {};
        const std::string_view taken = rest_.substr(0, rest_.find_first_of(" \t\r"));
        rest_.remove_prefix(taken.size());
        return taken;
    }
    // Returns a word, or the text that quotes enclose.
    Result<std::string> text(std::string_view what);
    // Returns a number from 0 to `most`.
    template <class Number> Result<Number> number(std::string_view what, Number most);

private:
    std::string_view rest_;
};

Error refuse_text(std::string_view what, const std::string &sentence) {
    return invalid_argument("%.40s %.200s", std::string(what).c_str(), sentence.c_str());
}

template <class Number> Result<Number> LineReader::number(std::string_view what, Number most) {
    const std::string_view digits = word();
    const auto value = parse_number<Number>(digits);
    if (!value || !(*value >= 0) || !(*value <= most))
        return refuse_text(what, "is \"" + std::string(digits.substr(0, 60)) +
                                     "\"; expected a number from 0 on");
    return *value;
}

Result<std::string> LineReader::text(std::string_view what) {
    if (is_at_end()) return refuse_text(what, "has no text");
    if (rest_[0] != '"') return std::string(word());
    std::string text;
    for (size_t i = 1; i < rest_.size(); i++) {
        if (rest_[i] == '"') {
            rest_.remove_prefix(i + 1);
            return text;
        }
        const bool is_escaped = rest_[i] == '\\' && ++i < rest_.size();
        if (!is_escaped || rest_[i] != 'x') {
            if (is_escaped && rest_[i] != '"' && rest_[i] != '\\') break;
            if (i < rest_.size()) text += rest_[i];
            continue;
        }
        const std::string_view digits = rest_.substr(i + 1, 2);
        const auto byte = parse_number<uint8_t>(digits, 16);
        if (!byte || digits.size() != 2) break;
        text += static_cast<char>(*byte);
        i += 2;
    }
    return refuse_text(what, "has a text in quotes that does not end, or that has a \\ in front of "
                             "anything but \", \\ and xHH");
}

// The keys of a line. Each key may occur once.
class KeySet {
public:
    Done add(std::string_view key) {
        if (std::find(keys_.begin(), keys_.end(), key) != keys_.end())
            return refuse_text(key, "stands twice in the line");
        keys_.push_back(key);
        return {};
    }

private:
    std::vector<std::string_view> keys_;
};

Result<VertexKind> read_kind(std::string_view word) {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < vertex_kinds; i++) {
        names.push_back(name(static_cast<VertexKind>(i)));
        if (names.back() == word) return static_cast<VertexKind>(i);
    }
    return no_choice("kind of a part", word, names);
}

Done read_key(std::string_view key, LineReader &line, Vertex &vertex) {
    if (key == "in") {
        QCCL_TRY(vertex.parent, line.number<uint32_t>(key, no_vertex - 1));
    } else if (key == "number") {
        QCCL_TRY(vertex.number, line.number<uint32_t>(key, UINT32_MAX));
    } else if (key == "name") {
        QCCL_TRY(vertex.name, line.text(key));
    } else if (key == "bus") {
        QCCL_TRY(vertex.bus_id, line.text(key));
    } else if (key == "arch") {
        QCCL_TRY(vertex.arch, line.text(key));
    } else if (key == "cpus") {
        const auto cpus = CpuSet::parse(line.word());
        if (!cpus) return refuse_text(key, "is no mask of processors such as ff,ffffffff");
        vertex.cpus = *cpus;
    } else if (key == "rdma") {
        vertex.rdma = true;
    } else if (key == "gpudirect") {
        vertex.gpudirect = true;
    } else {
        return no_choice("key of a part", key,
                         {"in", "number", "name", "bus", "cpus", "arch", "rdma", "gpudirect"});
    }
    return {};
}

Done read_part(LineReader &line, Graph &graph) {
    const size_t expected = graph.vertices().size();
    QCCL_TRY(const uint32_t number, line.number<uint32_t>("the part's number", no_vertex));
    if (number != expected)
        return refuse_text("part", std::to_string(number) + " stands where part " +
                                       std::to_string(expected) + " is expected");
    if (expected >= Graph::most_vertices)
        return refuse_text("the topology",
                           "has more than " + std::to_string(Graph::most_vertices) + " parts");
    Vertex vertex;
    QCCL_TRY(vertex.kind, read_kind(line.word()));
    KeySet keys;
    while (!line.is_at_end()) {
        const std::string_view key = line.word();
        QCCL_TRY(keys.add(key));
        QCCL_TRY(read_key(key, line, vertex));
    }
    graph.add(std::move(vertex));
    return {};
}

Done read_key(std::string_view key, LineReader &line, Link &link) {
    static constexpr double most = 1e15;
    if (key == "rate") {
        QCCL_TRY(link.bytes_per_ns, line.number<double>(key, most));
    } else if (key == "latency") {
        QCCL_TRY(link.latency_ns, line.number<double>(key, most));
    } else if (key == "width") {
        QCCL_TRY(link.width, line.number<uint32_t>(key, UINT32_MAX));
    } else {
        return no_choice("key of a link", key, {"rate", "latency", "width"});
    }
    return {};
}

Done read_link(LineReader &line, Graph &graph) {
    Link link;
    for (uint32_t *const end : {&link.from, &link.to}) {
        QCCL_TRY(*end, line.number<uint32_t>("the link's end", no_vertex));
        if (*end >= graph.vertices().size())
            return refuse_text("part", std::to_string(*end) +
                                           ", which the link ends at, does not stand before it");
    }
    if (graph.links().size() >= Graph::most_links)
        return refuse_text("the topology",
                           "has more than " + std::to_string(Graph::most_links) + " links");
    const std::string_view class_name = line.word();
    const auto link_class = link_class_of(class_name);
    if (!link_class) return no_choice("class of a link", class_name, names_of(link_class_table));
    link.link_class = *link_class;
    KeySet keys;
    while (!line.is_at_end()) {
        const std::string_view key = line.word();
        QCCL_TRY(keys.add(key));
        QCCL_TRY(read_key(key, line, link));
    }
    graph.connect(link);
    return {};
}

Done read_head(LineReader line) {
    LineReader head(graph_text_head);
    while (!head.is_at_end())
        if (line.word() != head.word() || (head.is_at_end() && !line.is_at_end()))
            return refuse_text("the text",
                               "does not begin with \"" + std::string(graph_text_head) + "\"");
    return {};
}

Done read_line(LineReader line, Graph &graph) {
    if (line.is_at_end()) return {};
    const std::string_view word = line.word();
    if (word == "part") return read_part(line, graph);
    if (word == "link") return read_link(line, graph);
    return no_choice("the line's first word", word, {"part", "link"});
}

} // namespace

std::string print_graph_text(const Graph &graph) {
    std::string text = std::string(graph_text_head) +
                       "\n# rate: GB/s each way; latency: ns; unknown where there is none\n";
    for (uint32_t i = 0; i < graph.vertices().size(); i++) text += part_line(graph.vertex(i), i);
    for (const Link &link : graph.links()) text += link_line(link);
    return text;
}

Result<Graph> parse_graph_text(std::string_view text, std::string_view source) {
    const std::string named(source);
    if (text.size() > most_graph_text_bytes)
        return invalid_argument("%.100s has %zu bytes; a topology has at most %zu", named.c_str(),
                                text.size(), most_graph_text_bytes);
    Graph graph;
    for (size_t number = 1; !text.empty() || number == 1; number++) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const Done done =
            number == 1 ? read_head(LineReader(line)) : read_line(LineReader(line), graph);
        if (!done)
            return invalid_argument("%.100s, line %zu: %.350s", named.c_str(), number,
                                    done.error().text);
    }
    QCCL_TRY(check(graph, source));
    return graph;
}

} // namespace qccl
