// An exact search by dynamic programming for few vertices, and nearest neighbours for many.
#include "topology/ring_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace qccl {

namespace {

constexpr size_t most_exact = 16, most_rings = 16;
constexpr double least_share = 0.5; // of the first ring's rate
constexpr uint64_t impossible = UINT64_MAX;

// The paths between all pairs of a few vertices, which have the numbers 0, 1, ... here.
class Pairs {
public:
    Pairs(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> vertices);

    size_t size() const { return size_; }
    double width(size_t from, size_t to) const { return width_[from * size_ + to]; }
    // The cost of a hop beside its width: CPU interconnects before PCIe before links. One of a kind
    // costs more than all of the next kind that a ring can have. impossible: there is no path.
    uint64_t weight(size_t from, size_t to) const { return weight_[from * size_ + to]; }
    // Returns all widths that occur, the greatest first.
    std::vector<double> widths() const;

private:
    const size_t size_;
    std::vector<double> width_;
    std::vector<uint64_t> weight_;
};

uint64_t weight_of(const Graph &graph, const Path &path) {
    constexpr unsigned bits = 20;
    const uint64_t processors = path.count(graph, LinkClass::cpu_interconnect),
                   slots = path.count(graph, LinkClass::pcie);
    return (processors << bits | slots) << bits | path.hops.size();
}

Pairs::Pairs(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> vertices)
    : size_(vertices.size()), width_(size_ * size_), weight_(size_ * size_, impossible) {
    for (size_t from = 0; from < size_; from++)
        for (size_t to = 0; to < size_; to++) {
            if (from == to) continue;
            const auto path = find_path(graph, capacities, vertices[from], vertices[to]);
            if (!path) continue;
            width_[from * size_ + to] = path->bytes_per_ns;
            weight_[from * size_ + to] = weight_of(graph, *path);
        }
}

std::vector<double> Pairs::widths() const {
    std::vector<double> all = width_;
    std::ranges::sort(all, std::greater());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (!all.empty() && all.back() <= 0) all.pop_back();
    return all;
}

// Finds the ring of least weight over hops of at least `width`, by dynamic programming over sets of
// vertices (Held and Karp, 1962). The ring begins with vertex 0; of equal rings, the one with the
// lowest numbers is taken. Empty if there is none.
class LightestRing {
public:
    LightestRing(const Pairs &pairs, double width)
        : pairs_(pairs), width_(width), rest_(sets() * pairs.size(), impossible) {}
    std::vector<uint32_t> find();

private:
    size_t sets() const { return size_t{1} << pairs_.size(); }
    // The weight from `last` to the end of the ring, after the ring has passed the set `passed`.
    uint64_t &rest(size_t passed, size_t last) { return rest_[passed * pairs_.size() + last]; }
    uint64_t hop(size_t from, size_t to) const {
        return pairs_.width(from, to) < width_ ? impossible : pairs_.weight(from, to);
    }
    // The same weight with `next` as the next vertex; impossible if `passed` has it already.
    uint64_t rest_by(size_t passed, size_t last, size_t next);
    size_t best_next(size_t passed, size_t last);

    const Pairs &pairs_;
    const double width_;
    std::vector<uint64_t> rest_;
};

uint64_t LightestRing::rest_by(size_t passed, size_t last, size_t next) {
    if ((passed >> next & 1) != 0) return impossible;
    const uint64_t step = hop(last, next), after = rest(passed | size_t{1} << next, next);
    return step == impossible || after == impossible ? impossible : step + after;
}

size_t LightestRing::best_next(size_t passed, size_t last) {
    size_t best = 0;
    uint64_t least = impossible;
    for (size_t next = 1; next < pairs_.size(); next++) {
        const uint64_t weight = rest_by(passed, last, next);
        if (weight >= least) continue;
        least = weight;
        best = next;
    }
    return best; // 0: there is none
}

std::vector<uint32_t> LightestRing::find() {
    const size_t all = sets() - 1;
    for (size_t last = 1; last < pairs_.size(); last++) rest(all, last) = hop(last, 0);
    for (size_t passed = all - 1; passed > 0; passed--)
        for (size_t last = 0; (passed & 1) != 0 && last < pairs_.size(); last++) {
            if ((passed >> last & 1) == 0) continue;
            if (const size_t next = best_next(passed, last); next != 0)
                rest(passed, last) = rest_by(passed, last, next);
        }
    if (rest(1, 0) == impossible) return {};
    std::vector<uint32_t> ring = {0};
    for (size_t passed = 1; passed != all; passed |= size_t{1} << ring.back())
        ring.push_back(static_cast<uint32_t>(best_next(passed, ring.back())));
    return ring;
}

std::vector<uint32_t> nearest_neighbours(const Pairs &pairs) {
    std::vector<uint32_t> ring = {0}, left(pairs.size() - 1);
    std::iota(left.begin(), left.end(), 1U);
    while (!left.empty()) {
        const auto nearest = std::ranges::min_element(left, {}, [&](uint32_t next) {
            return std::pair(-pairs.width(ring.back(), next), pairs.weight(ring.back(), next));
        });
        if (pairs.weight(ring.back(), *nearest) == impossible) return {};
        ring.push_back(*nearest);
        left.erase(nearest);
    }
    return ring;
}

std::vector<uint32_t> best_order(const Pairs &pairs) {
    if (pairs.size() > most_exact) return nearest_neighbours(pairs);
    for (const double width : pairs.widths()) {
        auto ring = LightestRing(pairs, width).find();
        if (!ring.empty()) return ring;
    }
    return {};
}

// Returns nothing if there is no path between neighbours.
LinkUses uses_of(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> ring) {
    LinkUses uses;
    for (size_t i = 0; i < ring.size(); i++) {
        const auto path = find_path(graph, capacities, ring[i], ring[(i + 1) % ring.size()]);
        if (!path) return {};
        for (const Hop &hop : path->hops) uses[hop]++;
    }
    return uses;
}

double rate_of(const LinkUses &uses, const Capacities &capacities) {
    if (uses.empty()) return 0;
    double rate = std::numeric_limits<double>::infinity();
    for (const auto &[hop, times] : uses) rate = std::min(rate, capacities.left(hop) / times);
    return rate;
}

} // namespace

double ring_rate(const Graph &graph, const Capacities &capacities,
                 std::span<const uint32_t> vertices) {
    return rate_of(uses_of(graph, capacities, vertices), capacities);
}

std::vector<Ring> find_rings(const Graph &graph, std::span<const uint32_t> vertices) {
    if (vertices.size() < 2) return {{{vertices.begin(), vertices.end()}, 0}};
    std::vector<Ring> rings;
    Capacities capacities(graph);
    while (rings.size() < most_rings) {
        Ring ring;
        for (const uint32_t place : best_order(Pairs(graph, capacities, vertices)))
            ring.vertices.push_back(vertices[place]);
        if (ring.vertices.empty()) break;
        const LinkUses uses = uses_of(graph, capacities, ring.vertices);
        ring.bytes_per_ns = rate_of(uses, capacities);
        if (!rings.empty() && ring.bytes_per_ns < least_share * rings[0].bytes_per_ns) break;
        for (const auto &[hop, times] : uses) capacities.take(hop, times * ring.bytes_per_ns);
        rings.push_back(std::move(ring));
    }
    if (rings.empty()) rings.push_back({{vertices.begin(), vertices.end()}, 0});
    return rings;
}

} // namespace qccl
