// Builds the JSON document with nlohmann::json.
#include "topology/graph_json.hpp"

#include <nlohmann/json.hpp>

namespace qccl {

namespace {

using Json = nlohmann::ordered_json;

Json measure(double value) { return value > 0 ? Json(value) : Json(nullptr); }
Json id_of(uint32_t vertex) { return vertex == no_vertex ? Json(nullptr) : Json(vertex); }

Json node_json(const Vertex &vertex, uint32_t id) {
    Json node = {{"id", id},
                 {"kind", name(vertex.kind)},
                 {"parent", id_of(vertex.parent)},
                 {"number", vertex.number}};
    if (!vertex.name.empty()) node["name"] = vertex.name;
    if (!vertex.bus_id.empty()) node["bus_id"] = vertex.bus_id;
    if (!vertex.arch.empty()) node["arch"] = vertex.arch;
    if (!vertex.cpus.is_empty()) {
        node["cpus"] = vertex.cpus.print();
        node["processors"] = vertex.cpus.size();
    }
    if (vertex.kind == VertexKind::nic) {
        node["rdma"] = vertex.rdma;
        node["gpudirect"] = vertex.gpudirect;
    }
    return node;
}

Json link_json(const Link &link) {
    return {{"from", link.from},
            {"to", link.to},
            {"class", name(link.link_class)},
            {"gb_per_s", measure(link.bytes_per_ns)},
            {"latency_ns", measure(link.latency_ns)},
            {"width", link.width}};
}

// Prints one element per line.
void add_array(std::string &text, const char *key, const std::vector<Json> &elements) {
    text.append(",\n\"").append(key).append("\": [");
    for (size_t i = 0; i < elements.size(); i++)
        text.append(i == 0 ? "\n" : ",\n")
            .append(elements[i].dump(-1, ' ', false, Json::error_handler_t::replace));
    text += "\n]";
}

} // namespace

std::string print_graph_json(const Graph &graph, std::span<const uint32_t> places,
                             const RankOrder &order) {
    std::vector<Json> nodes, links, ranks, rings, trees;
    for (uint32_t i = 0; i < graph.vertices().size(); i++)
        nodes.push_back(node_json(graph.vertex(i), i));
    for (const Link &link : graph.links()) links.push_back(link_json(link));
    for (size_t rank = 0; rank < places.size(); rank++)
        ranks.push_back({{"node", places[rank]}, {"nic", id_of(order.nics[rank])}});
    for (const RankRing &ring : order.rings)
        rings.push_back({{"ranks", ring.ranks},
                         {"gb_per_s", measure(ring.bytes_per_ns)},
                         {"is_rate_known", ring.is_rate_known}});
    if (!order.parents.empty()) trees.push_back({{"parents", order.parents}});
    std::string text = "{\"version\": 1";
    text.append(",\n\"connected\": ").append(graph.is_connected() ? "true" : "false");
    add_array(text, "nodes", nodes);
    add_array(text, "links", links);
    add_array(text, "ranks", ranks);
    add_array(text, "rings", rings);
    add_array(text, "trees", trees);
    return text + "}\n";
}

} // namespace qccl
