// Tests topology/formats/picture_layout and picture_svg: boxes do not overlap, no link leads
// through a box, large jobs are folded, and the picture is XML whatever the names are.
#include "tests/kit/qtest.hpp"

#include "topology/formats/picture_svg.hpp"
#include "topology/formats/read_topology.hpp"

#include <algorithm>
#include <sstream>

#include <pugixml.hpp>

using namespace qccl;

namespace {

constexpr const char *topologies[] = {
    "node",
    "node(2 package 4 numa 32 core)",
    "node(2 package 4 numa 8 pci 8 gpu nvlink:450 8 nic:50)",
    "node(8 gpu nvswitch:450 8 nic:50)",
    "2 x node(4 gpu xgmi:64 nic:50x2)",
    "4 x node(2 numa 16 core) net:tcp:0.125",
    "64 x node(8 gpu nvlink:450) net:50x8",
    "2 x rack(32 x node(8 gpu nvswitch:450 8 nic:50)) + rack(2 x node net:1) net:rdma:400x4",
};

struct Drawn {
    Graph graph;
    std::vector<uint32_t> places;
    RankOrder order;

    explicit Drawn(const char *text) {
        auto parsed = parse_synthetic(text);
        CHECK_OK(parsed);
        graph = std::move(*parsed);
        auto placed = rank_places(graph, 0);
        CHECK_OK(placed);
        places = std::move(*placed);
        order = order_ranks(graph, places);
    }
    std::string picture() const { return draw_picture(graph, places, order); }
};

bool contains(const Rect &outer, const Rect &inner) {
    return outer.x <= inner.x && inner.right() <= outer.right() && outer.y <= inner.y &&
           inner.bottom() <= outer.bottom();
}

bool overlap(const Rect &a, const Rect &b) {
    return a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom();
}

bool is_frame(VertexKind kind) {
    return kind == VertexKind::network || kind == VertexKind::machine ||
           kind == VertexKind::package;
}

void boxes_do_not_overlap() {
    for (const char *text : topologies) {
        const Drawn drawn(text);
        const PictureLayout layout = lay_out_picture(drawn.graph, drawn.places, 3);
        for (const auto &[vertex, rect] : layout.rects) {
            const Vertex &part = drawn.graph.vertex(vertex);
            CHECK(rect.right() <= layout.width && rect.bottom() <= layout.height);
            // NUMA nodes and PCI switches stand above their parts, not around them.
            const bool has_frame =
                part.parent != no_vertex && is_frame(drawn.graph.vertex(part.parent).kind) &&
                (part.kind == VertexKind::numa || part.kind == VertexKind::machine ||
                 drawn.graph.vertex(part.parent).kind != VertexKind::package);
            CHECK(!has_frame || contains(layout.rects.at(part.parent), rect));
            for (const auto &[other, box] : layout.rects)
                CHECK(vertex == other || is_frame(part.kind) ||
                      is_frame(drawn.graph.vertex(other).kind) || !overlap(rect, box));
            for (const auto &[other, bar] : layout.bars)
                CHECK(is_frame(part.kind) || !overlap(rect, bar));
        }
    }
}

// Checks a straight piece of a line, which is vertical or horizontal.
void check_free(const Rect &piece, const PictureLayout &layout, const Graph &graph) {
    for (const auto &[vertex, rect] : layout.rects) {
        const VertexKind kind = graph.vertex(vertex).kind;
        if (is_frame(kind) || kind == VertexKind::nvswitch) continue;
        const Rect inside{rect.x + 1, rect.y + 1, rect.width - 2, rect.height - 2};
        CHECK(!overlap(piece, inside));
    }
}

void links_lead_around_boxes() {
    for (const char *text : topologies) {
        const Drawn drawn(text);
        pugi::xml_document document;
        CHECK(document.load_string(drawn.picture().c_str()));
        const PictureLayout layout = lay_out_picture(
            drawn.graph, drawn.places, std::min<size_t>(drawn.order.rings.size(), 12) + 1);
        for (const auto line : document.child("svg").children("polyline")) {
            std::vector<double> numbers;
            std::string points = line.attribute("points").value();
            std::ranges::replace(points, ',', ' ');
            std::istringstream in(points);
            for (double value = 0; in >> value;) numbers.push_back(value);
            for (size_t i = 2; i + 1 < numbers.size(); i += 2) {
                const double x = std::min(numbers[i - 2], numbers[i]);
                const double y = std::min(numbers[i - 1], numbers[i + 1]);
                CHECK(numbers[i - 2] == numbers[i] || numbers[i - 1] == numbers[i + 1]);
                check_free({x, y, std::abs(numbers[i] - numbers[i - 2]),
                            std::abs(numbers[i + 1] - numbers[i - 1])},
                           layout, drawn.graph);
            }
        }
    }
}

void large_jobs_are_folded() {
    const Drawn drawn("64 x node(8 gpu nvlink:450) net:50x8");
    const PictureLayout layout = lay_out_picture(drawn.graph, drawn.places, 8);
    CHECK(layout.width < 2000 && layout.rects.size() < 30);
    CHECK_EQ(layout.counts.at(drawn.graph.of_kind(VertexKind::machine)[0]), 64U);
    const std::string picture = drawn.picture();
    CHECK(picture.find("\u00d7 64") != std::string::npos);
    CHECK(picture.size() < 100000);
    CHECK(drawn.picture() == picture);
    const Drawn small("2 x node(2 gpu) net:5");
    CHECK(small.picture().find("\u00d7") == std::string::npos);
    CHECK(small.picture().find("node1") != std::string::npos);
}

// The machines of a job may have no known NIC.
void machines_may_be_linked_to_the_network() {
    Graph graph;
    graph.add({.kind = VertexKind::network});
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t machine = graph.add({.kind = VertexKind::machine, .parent = 0, .number = i});
        graph.connect({0, machine, LinkClass::tcp});
    }
    const std::vector<uint32_t> places = {1, 2};
    const std::string picture = draw_picture(graph, places, order_ranks(graph, places));
    CHECK(picture.find("machine 1") != std::string::npos);
    CHECK(picture.find("tcp (rate unknown)") != std::string::npos);
}

void rings_are_drawn() {
    const std::string picture = Drawn("node(4 gpu nvlink:450)").picture();
    for (const char *words : {"ring 0, ", "ranks 0 1 2 3", "tree, from rank 1 to 0, 2 to 0, 3 to 2",
                              "nvlink 150 GB/s", "rank 3", "NUMA 0"})
        CHECK(picture.find(words) != std::string::npos);
    CHECK(Drawn("node(gpu)").picture().find("ring 0") == std::string::npos);
}

void names_cannot_break_the_picture() {
    Drawn drawn("node(2 gpu)");
    Graph named;
    for (Vertex vertex : drawn.graph.vertices()) {
        for (std::string *const text : {&vertex.name, &vertex.bus_id, &vertex.arch})
            *text = "</text><script>&\x01\xff\xc3\xa4\"" + std::to_string(named.vertices().size());
        named.add(std::move(vertex));
    }
    for (const Link &link : drawn.graph.links()) named.connect(link);
    drawn.graph = std::move(named);
    const std::string picture = drawn.picture();
    pugi::xml_document document;
    CHECK(document.load_string(picture.c_str()));
    CHECK(picture.find("<script") == std::string::npos);
    CHECK(picture.find('\x01') == std::string::npos && picture.find('\xff') == std::string::npos);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(boxes_do_not_overlap),  QTEST(links_lead_around_boxes),
        QTEST(large_jobs_are_folded), QTEST(machines_may_be_linked_to_the_network),
        QTEST(rings_are_drawn),       QTEST(names_cannot_break_the_picture),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
