// Parses the grammar of read_topology.hpp by recursive descent, then builds the graph that the
// parsed line stands for.
#include "topology/formats/read_topology.hpp"

#include "base/text.hpp"
#include "topology/graph.hpp"
#include "topology/machine_graph.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace qccl {

// ---- Parser

namespace {

// A word of letters and the value behind its colon: "nvlink:450" is nvlink and 450.
struct Word {
    size_t start = 0, value_start = 0; // positions in the text
    std::string_view name = {}, value = {};
    bool has_value = false;
};

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter(char letter) { return letter >= 'a' && letter <= 'z'; }

class SyntheticParser {
public:
    explicit SyntheticParser(std::string_view text) : text_(text) {}
    Result<NetworkSpec> parse();

private:
    static constexpr uint32_t most_count = 1U << 20;

    Error refuse_at(size_t place, const std::string &sentence) const;
    Error refuse_word(const Word &word, std::string_view kind, const Names &possible) const;
    void skip_blanks() {
        while (at_ < text_.size() && std::string_view(" \t\n,").find(text_[at_]) != text_.npos)
            at_++;
    }
    bool takes(char letter) {
        skip_blanks();
        if (at_ == text_.size() || text_[at_] != letter) return false;
        at_++;
        return true;
    }
    Result<std::optional<uint32_t>> count();
    Word word();
    Result<uint32_t> read_count(std::string_view digits, size_t place) const;
    Result<double> rate(std::string_view value, size_t place) const;
    Result<PortSpec> port(const Word &word) const;

    Result<NetworkSpec> network(unsigned depth);
    Result<GroupSpec> group(unsigned depth);
    Result<NodeSpec> node();
    Done item(NodeSpec &node);
    Done add_count(const Word &word, std::optional<uint32_t> count, NodeSpec &node) const;
    Done add_rate(const Word &word, NodeSpec &node) const;
    Done add_nics(const Word &word, std::optional<uint32_t> count, NodeSpec &node) const;
    Done check_node(const NodeSpec &node, size_t place) const;

    std::string_view text_;
    size_t at_ = 0;
};

Error SyntheticParser::refuse_at(size_t place, const std::string &sentence) const {
    const std::string near(text_.substr(std::min(place, text_.size()), 24));
    return invalid_argument("the topology, character %zu%s%s%s: %.300s", place + 1,
                            near.empty() ? ", its end" : " (\"", near.c_str(),
                            near.empty() ? "" : "\")", sentence.c_str());
}

Error SyntheticParser::refuse_word(const Word &word, std::string_view kind,
                                   const Names &possible) const {
    if (word.name.empty())
        return refuse_at(word.start, "expected " + std::string(kind) + ": " + listed(possible));
    std::string said = "\"";
    said.append(word.name.substr(0, 30)).append("\" is no ").append(kind);
    static constexpr size_t longest_name = 16; // a longer word is no misspelling
    const auto meant = word.name.size() <= longest_name ? nearest(word.name, possible, 2)
                                                        : std::optional<std::string_view>();
    if (meant) return refuse_at(word.start, said.append("; did you mean ").append(*meant) + "?");
    return refuse_at(word.start, said + "; possible are " + listed(possible));
}

Result<uint32_t> SyntheticParser::read_count(std::string_view digits, size_t place) const {
    const auto number = parse_count(digits);
    if (!number || *number == 0 || *number > most_count)
        return refuse_at(place, "expected a number from 1 to " + std::to_string(most_count));
    return static_cast<uint32_t>(*number);
}

Result<std::optional<uint32_t>> SyntheticParser::count() {
    skip_blanks();
    const size_t start = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) at_++;
    if (at_ == start) return std::optional<uint32_t>();
    QCCL_TRY(const uint32_t number, read_count(text_.substr(start, at_ - start), start));
    return std::optional(number);
}

Word SyntheticParser::word() {
    skip_blanks();
    Word word{.start = at_};
    while (at_ < text_.size() && is_letter(text_[at_])) at_++;
    word.name = text_.substr(word.start, at_ - word.start);
    word.value_start = at_;
    if (at_ == text_.size() || text_[at_] != ':' || word.name.empty()) return word;
    word.has_value = true;
    word.value_start = ++at_;
    while (at_ < text_.size() && std::string_view(" \t\n,()").find(text_[at_]) == text_.npos) at_++;
    word.value = text_.substr(word.value_start, at_ - word.value_start);
    return word;
}

// A number without a unit is in GB/s.
Result<double> SyntheticParser::rate(std::string_view value, size_t place) const {
    static constexpr double most = 1e6;
    const bool has_digit = !value.empty() && is_digit(value[0]);
    auto number = parse_number<double>(value, std::chars_format::fixed);
    if (!has_digit || !number) {
        const auto bytes = parse_rate(value);
        if (!bytes)
            return refuse_at(place, "expected a rate: GB/s such as 50, or 400gbit, 12.5GB/s");
        number = static_cast<double>(*bytes) / 1e9;
    }
    if (!(*number > 0) || !(*number <= most))
        return refuse_at(place, "expected a rate above 0 and up to 1000000 GB/s");
    return *number;
}

// Parses "50", "tcp:10gbit" or "rdma:50x8": class, rate and number of ports.
Result<PortSpec> SyntheticParser::port(const Word &word) const {
    std::string_view value = word.value;
    size_t place = word.value_start;
    std::optional<LinkClass> link_class;
    for (const LinkClass each : {LinkClass::tcp, LinkClass::rdma})
        if (value.starts_with(name(each)) && value.substr(name(each).size()).starts_with(':')) {
            link_class = each;
            value.remove_prefix(name(each).size() + 1);
            place += name(each).size() + 1;
            break;
        }
    PortSpec port{.count = 1};
    if (const size_t times = value.rfind('x'); times != value.npos) {
        QCCL_TRY(port.count, read_count(value.substr(times + 1), place + times + 1));
        value = value.substr(0, times);
    }
    QCCL_TRY(port.bytes_per_ns, rate(value, place));
    static constexpr double least_rdma = 3.125; // 25 Gbit/s
    port.link_class =
        link_class.value_or(port.bytes_per_ns < least_rdma ? LinkClass::tcp : LinkClass::rdma);
    return port;
}

constexpr std::string_view count_names[] = {"package", "numa", "core", "pci", "gpu"};
constexpr uint32_t NodeSpec::*const count_members[] = {
    &NodeSpec::packages, &NodeSpec::numas, &NodeSpec::cores, &NodeSpec::pci, &NodeSpec::gpus};
constexpr std::string_view rate_names[] = {"nvlink", "nvswitch",     "xgmi",
                                           "pcie",   "interconnect", "memory"};
constexpr double NodeSpec::*const rate_members[] = {&NodeSpec::nvlink,       &NodeSpec::nvswitch,
                                                    &NodeSpec::xgmi,         &NodeSpec::pcie,
                                                    &NodeSpec::interconnect, &NodeSpec::memory};

template <size_t size>
size_t place_of(const std::string_view (&names)[size], std::string_view name) {
    return static_cast<size_t>(std::ranges::find(names, name) - names);
}

// Returns "gpu" for "gpus".
std::string_view singular(std::string_view name) {
    const std::string_view stem = name.substr(0, name.size() - name.ends_with('s'));
    return stem == "nic" || place_of(count_names, stem) < std::size(count_names) ? stem : name;
}

Done SyntheticParser::add_count(const Word &word, std::optional<uint32_t> count,
                                NodeSpec &node) const {
    uint32_t &number = node.*count_members[place_of(count_names, word.name)];
    if (word.has_value)
        return refuse_at(word.start, std::string(word.name) + " takes a number in front of it");
    if (number != 0) return refuse_at(word.start, std::string(word.name) + " stands twice");
    number = count.value_or(1);
    return {};
}

Done SyntheticParser::add_rate(const Word &word, NodeSpec &node) const {
    double &value = node.*rate_members[place_of(rate_names, word.name)];
    if (value != 0) return refuse_at(word.start, std::string(word.name) + " stands twice");
    if (!word.has_value)
        return refuse_at(word.value_start, std::string(word.name) + " needs a rate, as in " +
                                               std::string(word.name) + ":50");
    static constexpr double generations[] = {2.5, 5, 8, 16, 32, 64};
    const bool has_generation = word.name == "pcie" && word.value.starts_with("gen");
    if (!has_generation) {
        QCCL_TRY(value, rate(word.value, word.value_start));
        return {};
    }
    const auto generation = parse_count(word.value.substr(3));
    if (!generation || *generation == 0 || *generation > std::size(generations))
        return refuse_at(word.value_start, "expected gen1 to gen6, each with 16 lanes, or a rate");
    node.lanes = 16;
    value = pcie_rate(generations[*generation - 1], node.lanes);
    return {};
}

Done SyntheticParser::add_nics(const Word &word, std::optional<uint32_t> count,
                               NodeSpec &node) const {
    if (!word.has_value)
        return refuse_at(word.value_start, "nic needs a rate, as in nic:50 or 8 nic:tcp:10gbit");
    QCCL_TRY(PortSpec nics, port(word));
    if (count && nics.count > 1)
        return refuse_at(word.start, "the number of NICs stands both in front and behind");
    nics.count = count.value_or(nics.count);
    node.nics.push_back(nics);
    return {};
}

Done SyntheticParser::item(NodeSpec &node) {
    const size_t start = at_;
    QCCL_TRY(const auto number, count());
    Word item = word();
    item.name = singular(item.name);
    if (item.name == "nic") return add_nics(item, number, node);
    if (place_of(count_names, item.name) < std::size(count_names))
        return add_count(item, number, node);
    const bool is_rate = place_of(rate_names, item.name) < std::size(rate_names);
    if (!is_rate && item.name != "arch") {
        Names possible(std::begin(count_names), std::end(count_names));
        possible.push_back("nic");
        possible.insert(possible.end(), std::begin(rate_names), std::end(rate_names));
        possible.push_back("arch");
        return refuse_word(item, "part of a node", possible);
    }
    if (number) return refuse_at(start, std::string(item.name) + " takes no number in front of it");
    if (is_rate) return add_rate(item, node);
    if (item.value.empty())
        return refuse_at(item.value_start, "arch needs a name, as in arch:sm90");
    node.arch = item.value;
    return {};
}

Done SyntheticParser::check_node(const NodeSpec &node, size_t place) const {
    if (node.packages != 0 && node.numas % std::max(node.packages, 1U) != 0)
        return refuse_at(place, "the NUMA nodes do not divide evenly among the packages");
    if (node.gpus < 2 && (node.nvlink != 0 || node.xgmi != 0))
        return refuse_at(place, "nvlink and xgmi need at least two GPUs in the node");
    if (node.gpus < 1 && (node.nvswitch != 0 || !node.arch.empty()))
        return refuse_at(place, "nvswitch and arch need GPUs in the node");
    if (node.cores > CpuSet::most_cpus)
        return refuse_at(place,
                         "a node has at most " + std::to_string(CpuSet::most_cpus) + " cores");
    return {};
}

Result<NodeSpec> SyntheticParser::node() {
    NodeSpec node;
    const size_t start = at_;
    if (!takes('(')) return node;
    while (!takes(')')) {
        if (at_ == text_.size()) return refuse_at(at_, "the node's ( is not closed");
        QCCL_TRY(item(node));
    }
    QCCL_TRY(check_node(node, start));
    return node;
}

Result<GroupSpec> SyntheticParser::group(unsigned depth) {
    GroupSpec group;
    QCCL_TRY(const auto number, count());
    Word kind = word();
    if (number && kind.name == "x" && !kind.has_value) kind = word();
    group.count = number.value_or(1);
    if (kind.has_value || (kind.name != "node" && kind.name != "rack"))
        return refuse_word(kind, "part of a network", {"node", "rack"});
    if (kind.name == "node") {
        QCCL_TRY(group.node, node());
        return group;
    }
    static constexpr unsigned most_depth = 8;
    if (depth == most_depth) return refuse_at(kind.start, "racks nest deeper than 8 levels");
    if (!takes('(')) return refuse_at(at_, "expected ( and what is in the rack");
    QCCL_TRY(NetworkSpec inside, network(depth + 1));
    if (!takes(')')) return refuse_at(at_, "expected + and more of the rack, net:RATE or )");
    group.rack.push_back(std::move(inside));
    return group;
}

Result<NetworkSpec> SyntheticParser::network(unsigned depth) {
    NetworkSpec network;
    do {
        QCCL_TRY(GroupSpec next, group(depth));
        network.groups.push_back(std::move(next));
    } while (takes('+'));
    skip_blanks();
    if (at_ == text_.size() || !is_letter(text_[at_])) return network;
    const Word behind = word();
    if (behind.name != "net") return refuse_word(behind, "word behind a network", {"net"});
    if (!behind.has_value)
        return refuse_at(behind.value_start, "net needs a rate, as in net:50x8 or net:tcp:1gbit");
    QCCL_TRY(network.port, port(behind));
    return network;
}

Result<NetworkSpec> SyntheticParser::parse() {
    static constexpr size_t longest = 4096;
    if (text_.size() > longest)
        return invalid_argument("the topology has %zu characters; at most %zu are read",
                                text_.size(), longest);
    QCCL_TRY(NetworkSpec spec, network(0));
    skip_blanks();
    if (at_ < text_.size()) return refuse_at(at_, "expected + and more nodes, net:RATE or the end");
    return spec;
}

} // namespace

Result<NetworkSpec> parse_synthetic_spec(std::string_view text) {
    return SyntheticParser(text).parse();
}

// ---- Builder of the graph

namespace {

// Counts in floating point, so that numbers far above what a graph may have do not overflow.
struct Size {
    double vertices = 0, links = 0;

    void add(const Size &other, double times) {
        vertices += other.vertices * times;
        links += other.links * times;
    }
};

Size size_of(const NodeSpec &node, const PortSpec &port) {
    double nics = port.count;
    for (const PortSpec &each : node.nics) nics += each.count;
    const double numas = std::max({node.numas, node.packages, 1U});
    const double gpus = node.gpus;
    const double meshes = (node.nvlink != 0) + (node.xgmi != 0);
    return {2 + node.packages + numas + node.pci + gpus + nics,
            2 * numas + node.packages + node.pci + 2 * (gpus + nics) + meshes * gpus * gpus / 2};
}

Size size_of(const NetworkSpec &network) {
    Size size{1, 1};
    for (const GroupSpec &group : network.groups)
        size.add(group.rack.empty() ? size_of(group.node, network.port) : size_of(group.rack[0]),
                 group.count);
    return size;
}

bool has_nics(const GroupSpec &group, const PortSpec &port) {
    return !group.rack.empty() || port.count != 0 || !group.node.nics.empty();
}

// A single machine without NICs is a graph without a network.
bool is_lone_machine(const NetworkSpec &spec) {
    return spec.groups.size() == 1 && spec.groups[0].count == 1 &&
           !has_nics(spec.groups[0], spec.port);
}

Error refuse(const char *sentence) { return invalid_argument("the topology: %s", sentence); }

class SyntheticBuilder {
public:
    Result<Graph> build(const NetworkSpec &spec);

private:
    Done add_members(const NetworkSpec &spec, uint32_t network);
    Done add_rack(const NetworkSpec &rack, const PortSpec &port, uint32_t network);
    Done add_node(const NodeSpec &node, const PortSpec &port, uint32_t network);
    std::vector<uint32_t> add_numas(const NodeSpec &node, uint32_t machine);
    void connect_gpus(const NodeSpec &node, uint32_t machine, std::span<const uint32_t> gpus);
    void add_nics(const NodeSpec &node, const PortSpec &port, uint32_t network,
                  std::span<const uint32_t> outer);
    // Adds `count` parts, dealt out over `outer` in order, each behind a link of this kind.
    std::vector<uint32_t> deal(const Vertex &vertex, uint32_t count,
                               std::span<const uint32_t> outer, const Link &link);

    Graph graph_;
    uint32_t machines_ = 0, racks_ = 0;
};

std::vector<uint32_t> SyntheticBuilder::deal(const Vertex &vertex, uint32_t count,
                                             std::span<const uint32_t> outer, const Link &link) {
    std::vector<uint32_t> parts;
    for (uint32_t i = 0; i < count; i++) {
        Vertex part = vertex;
        Link to_outer = link;
        part.number = i;
        part.parent = to_outer.from = outer[size_t{i} * outer.size() / count];
        to_outer.to = graph_.add(std::move(part));
        graph_.connect(to_outer);
        parts.push_back(to_outer.to);
    }
    return parts;
}

std::vector<uint32_t> SyntheticBuilder::add_numas(const NodeSpec &node, uint32_t machine) {
    const Link inside{.link_class = LinkClass::cpu_interconnect, .bytes_per_ns = node.interconnect};
    std::vector<uint32_t> outer = {machine};
    if (node.packages != 0)
        outer = deal({.kind = VertexKind::package}, node.packages, outer, inside);
    const uint32_t count = std::max({node.numas, node.packages, 1U});
    std::vector<uint32_t> numas;
    uint32_t cpu = 0;
    for (uint32_t i = 0; i < count; i++) {
        Vertex numa{.kind = VertexKind::numa,
                    .parent = outer[size_t{i} * outer.size() / count],
                    .number = i};
        for (; cpu < uint64_t{i + 1} * node.cores / count; cpu++) numa.cpus.add(cpu);
        Link link = inside;
        link.from = numa.parent;
        link.to = graph_.add(std::move(numa));
        graph_.connect(link);
        graph_.connect({link.to, link.to, LinkClass::shared_memory, node.memory});
        numas.push_back(link.to);
    }
    return numas;
}

void SyntheticBuilder::connect_gpus(const NodeSpec &node, uint32_t machine,
                                    std::span<const uint32_t> gpus) {
    if (node.nvswitch != 0) {
        const uint32_t nvswitch = graph_.add({.kind = VertexKind::nvswitch, .parent = machine});
        for (const uint32_t gpu : gpus)
            graph_.connect({gpu, nvswitch, LinkClass::nvswitch, node.nvswitch});
    }
    for (const auto &[link_class, rate] :
         {std::pair(LinkClass::nvlink, node.nvlink), std::pair(LinkClass::xgmi, node.xgmi)}) {
        if (rate == 0) continue;
        const double to_each = rate / static_cast<double>(gpus.size() - 1);
        for (size_t i = 0; i < gpus.size(); i++)
            for (size_t j = i + 1; j < gpus.size(); j++)
                graph_.connect({gpus[i], gpus[j], link_class, to_each});
    }
}

void SyntheticBuilder::add_nics(const NodeSpec &node, const PortSpec &port, uint32_t network,
                                std::span<const uint32_t> outer) {
    std::vector<PortSpec> ports;
    for (const PortSpec &each : node.nics) ports.insert(ports.end(), each.count, each);
    if (ports.empty()) ports.assign(port.count, port);
    for (uint32_t i = 0; i < ports.size(); i++) {
        const bool has_rdma = ports[i].link_class == LinkClass::rdma;
        const uint32_t slot = outer[size_t{i} * outer.size() / ports.size()];
        const uint32_t nic = graph_.add({.kind = VertexKind::nic,
                                         .parent = slot,
                                         .number = i,
                                         .rdma = has_rdma,
                                         .gpudirect = has_rdma && node.gpus != 0});
        graph_.connect({slot, nic, LinkClass::pcie, node.pcie, 0, node.lanes});
        graph_.connect({nic, network, ports[i].link_class, ports[i].bytes_per_ns});
    }
}

Done SyntheticBuilder::add_node(const NodeSpec &node, const PortSpec &port, uint32_t network) {
    if (!node.nics.empty() && port.count != 0)
        return refuse("net: gives NICs to nodes that have nic: already; say one of the two");
    if (network != no_vertex && node.nics.empty() && port.count == 0)
        return refuse("nothing connects the nodes: say net:RATE behind them, as in net:50x8 or "
                      "net:tcp:1gbit, or nic:RATE in each");
    const uint32_t machine = graph_.add({.kind = VertexKind::machine,
                                         .parent = network,
                                         .name = "node" + std::to_string(machines_),
                                         .number = machines_});
    machines_++;
    const Link slot{.link_class = LinkClass::pcie, .bytes_per_ns = node.pcie, .width = node.lanes};
    std::vector<uint32_t> outer = add_numas(node, machine);
    if (node.pci != 0) outer = deal({.kind = VertexKind::pci}, node.pci, outer, slot);
    const auto gpus = deal({.kind = VertexKind::gpu, .arch = node.arch}, node.gpus, outer, slot);
    connect_gpus(node, machine, gpus);
    add_nics(node, port, network, outer);
    return {};
}

Done SyntheticBuilder::add_rack(const NetworkSpec &rack, const PortSpec &port, uint32_t network) {
    if (port.count == 0)
        return refuse("nothing connects the racks: say net:RATE behind them, as in net:400x4");
    const uint32_t inside = graph_.add({.kind = VertexKind::network,
                                        .parent = network,
                                        .name = "rack" + std::to_string(racks_),
                                        .number = racks_});
    racks_++;
    graph_.connect(
        {inside, network, port.link_class, port.bytes_per_ns * port.count, 0, port.count});
    return add_members(rack, inside);
}

Done SyntheticBuilder::add_members(const NetworkSpec &spec, uint32_t network) {
    for (const GroupSpec &group : spec.groups)
        for (uint32_t i = 0; i < group.count; i++)
            QCCL_TRY(group.rack.empty() ? add_node(group.node, spec.port, network)
                                        : add_rack(group.rack[0], spec.port, network));
    return {};
}

Result<Graph> SyntheticBuilder::build(const NetworkSpec &spec) {
    const Size size = size_of(spec);
    if (size.vertices > static_cast<double>(Graph::most_vertices) ||
        size.links > static_cast<double>(Graph::most_links))
        return invalid_argument(
            "the topology has about %.3g parts and %.3g links; at most %zu and %zu "
            "are possible",
            size.vertices, size.links, Graph::most_vertices, Graph::most_links);
    if (is_lone_machine(spec)) {
        QCCL_TRY(add_node(spec.groups[0].node, spec.port, no_vertex));
    } else {
        QCCL_TRY(add_members(spec, graph_.add({.kind = VertexKind::network})));
    }
    QCCL_TRY(check(graph_, "the topology"));
    return std::move(graph_);
}

} // namespace

Result<Graph> parse_synthetic(std::string_view text) {
    QCCL_TRY(const NetworkSpec spec, parse_synthetic_spec(text));
    return SyntheticBuilder().build(spec);
}

} // namespace qccl
