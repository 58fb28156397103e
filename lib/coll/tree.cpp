// Tree: sums go up to one rank, and the result comes down as that rank encoded it. Few rounds, few
// messages, and segments that follow one another up and down. This file writes the schedules of
// trees, and the phases of trees within groups.

#include "coll/emitters.hpp"

#include <algorithm>
#include <bit>

namespace qccl {

namespace {

bool is_double(const Choices &choices) { return choices[0] == 1; }
uint32_t chunks_of(const Choices &choices) { return is_double(choices) ? 2 : 1; }

// Ranks are numbered from the root, which is 0.
uint32_t binomial_parent(uint32_t v) { return v & (v - 1); }

// Odd numbers are leaves. Every other number lies between its two children, whose numbers differ in
// the bit below its lowest.
uint32_t inorder_parent(uint32_t ranks, uint32_t v) {
    const uint32_t lowest = v & -v, without = v ^ lowest, up = without | lowest << 1;
    return up < ranks ? up : without;
}

// Renumbers all ranks but the root so that odd numbers become even (with an even number of ranks
// the last number becomes the first).
uint32_t exchanged(uint32_t ranks, uint32_t v) {
    if (v == 0) return 0;
    return ranks % 2 != 0 ? ranks - v : v % (ranks - 1) + 1;
}
uint32_t exchanged_back(uint32_t ranks, uint32_t v) {
    if (v == 0) return 0;
    return ranks % 2 != 0 ? ranks - v : (v + ranks - 3) % (ranks - 1) + 1;
}

// The tree in which one chunk travels. Ranks are numbered by their ring positions, so that ranks
// that are neighbours in rings are near each other in trees, too.
struct Tree {
    Team team;
    uint32_t root;
    bool is_inorder, is_exchanged;

    static Tree of(const Team &t, const Choices &choices, uint32_t chunk, uint32_t root) {
        return {t, root, is_double(choices), chunk == 1};
    }
    uint32_t parent(uint32_t rank) const {
        uint32_t v = (team.position(rank) + team.size - team.position(root)) % team.size;
        if (v == 0) return rank;
        if (is_exchanged) v = exchanged(team.size, v);
        uint32_t up = is_inorder ? inorder_parent(team.size, v) : binomial_parent(v);
        if (is_exchanged) up = exchanged_back(team.size, up);
        return team.rank_at((up + team.position(root)) % team.size);
    }
    std::vector<uint32_t> parents() const {
        std::vector<uint32_t> all(team.size);
        for (uint32_t rank = 0; rank < team.size; rank++) all[rank] = parent(rank);
        return all;
    }
    // In increasing rank.
    std::vector<uint32_t> children(uint32_t rank) const {
        std::vector<uint32_t> found;
        for (uint32_t child = 0; child < team.size; child++)
            if (child != rank && child != root && parent(child) == rank) found.push_back(child);
        return found;
    }
};

// One rank's place in the tree of one chunk.
struct Position {
    uint32_t chunk;
    uint32_t parent; // of the root: itself
    std::vector<uint32_t> children;
};

// Trees in which the rank is a leaf come first: a leaf sends without waiting for another rank.
std::vector<Position> positions_of(const Team &t, const Choices &choices, uint32_t root) {
    std::vector<Position> positions;
    for (uint32_t c = 0; c < chunks_of(choices); c++) {
        const Tree tree = Tree::of(t, choices, c, root);
        positions.push_back({c, tree.parent(t.rank), tree.children(t.rank)});
    }
    std::stable_partition(positions.begin(), positions.end(),
                          [](const Position &p) { return p.children.empty(); });
    return positions;
}

void tree_reduce_scatter(Schedule &s, const Team &t, const Position &p) {
    const uint32_t first = s.wires;
    for (const uint32_t child : p.children) s.recv(child, wire(s.wires), p.chunk);
    Slot complete = input(p.chunk);
    if (!p.children.empty()) {
        complete = sum(p.chunk);
        s.reduce(complete, input(p.chunk));
        s.reduce(complete, wire(first), s.wires - first);
    }
    if (p.parent == t.rank)
        s.finish(output(p.chunk), complete);
    else
        s.send(p.parent, complete);
}

// Later children are sent to first, because they are further away and have more ranks below them.
void tree_all_gather(Schedule &s, const Team &t, const Position &p) {
    if (p.parent != t.rank) s.recv(p.parent, output(p.chunk));
    for (auto child = p.children.rbegin(); child != p.children.rend(); ++child)
        s.send(*child, output(p.chunk));
}

// ---- Within a group: members are numbered from a chunk's owner on, and the lowest bit of a number
// gives its level in the tree.

// Calls visit(chunk, number of this member) for all chunks of the group, in their order.
template <class Visitor> void each_numbered(const Schedule &s, const Group &g, Visitor visit) {
    std::vector<uint32_t> owner_of(s.chunks, g.size());
    for (uint32_t at = 0; at < g.size(); at++)
        for (const uint32_t c : g.chunks[at]) owner_of[c] = at;
    for (uint32_t c = 0; c < s.chunks; c++)
        if (owner_of[c] != g.size()) visit(c, (g.own + g.size() - owner_of[c]) % g.size());
}

// is_child: the number's lowest bit is the stride, so its parent is one stride before it.
// has_child: the number has a child one stride after it.
bool is_child(uint32_t number, uint32_t stride) { return number % (2 * stride) == stride; }
bool has_child(const Group &g, uint32_t number, uint32_t stride) {
    return number % (2 * stride) == 0 && number + stride < g.size();
}

// At each stride the messages of all chunks go the same way round the group.
void tree_reduce_scatter(Schedule &s, const Group &g, Parts &parts) {
    for (uint32_t stride = 1; stride < g.size(); stride *= 2) {
        each_numbered(s, g, [&](uint32_t c, uint32_t number) {
            if (is_child(number, stride)) s.send(g.ranks[g.before(stride)], parts[c]);
        });
        each_numbered(s, g, [&](uint32_t c, uint32_t number) {
            if (!has_child(g, number, stride)) return;
            const Slot came = wire(s.wires);
            s.recv(g.ranks[g.after(stride)], came, c);
            if (parts[c].is(SlotKind::input)) s.reduce(sum(c), parts[c]);
            s.reduce(sum(c), came);
            parts[c] = sum(c);
        });
    }
}

void tree_all_gather(Schedule &s, const Group &g) {
    for (uint32_t stride = std::bit_floor(g.size() - 1); stride > 0; stride /= 2) {
        each_numbered(s, g, [&](uint32_t c, uint32_t number) {
            if (has_child(g, number, stride)) s.send(g.ranks[g.after(stride)], output(c));
        });
        each_numbered(s, g, [&](uint32_t c, uint32_t number) {
            if (is_child(number, stride)) s.recv(g.ranks[g.before(stride)], output(c));
        });
    }
}

SumOrder::Term tree_fold(std::vector<SumOrder::Term> members, uint32_t owner) {
    std::rotate(members.begin(), members.begin() + owner, members.end());
    std::vector<uint32_t> parents(members.size());
    for (uint32_t number = 0; number < parents.size(); number++)
        parents[number] = binomial_parent(number);
    return SumOrder::of_tree(parents, std::move(members));
}

// Each member but the owner passes on its own contributions and those of all members below it.
NoiseMoments tree_encoded(std::span<const uint32_t> weights, uint32_t owner) {
    std::vector<uint32_t> passed(weights.size());
    for (uint32_t number = 0; number < weights.size(); number++)
        for (uint32_t at = number; at != 0; at = binomial_parent(at))
            passed[at] += weights[(owner + number) % weights.size()];
    NoiseMoments total;
    for (const uint32_t contributions : passed) total += NoiseMoments::of(contributions);
    return total;
}

uint32_t tree_rounds_one_way(uint32_t size) {
    return static_cast<uint32_t>(std::bit_width(size - 1));
}

uint32_t root_of(Collective collective, const Team &t) {
    return row_of(collective).has_root ? t.root : 0;
}

// Returns the number of messages on a rank's way to the root for which `counts(from, to)` holds,
// for the rank and the tree that have the most. Where ranks have parts, a rank's part travels in
// one of the trees.
template <class Counts>
uint32_t most_in_trees(Collective collective, const Team &t, const Choices &choices,
                       Counts counts) {
    const uint32_t trees = chunks_of(choices);
    uint32_t most = 0;
    for (uint32_t c = 0; c < trees; c++) {
        const auto parents = Tree::of(t, choices, c, root_of(collective, t)).parents();
        for (uint32_t leaf = 0; leaf < parents.size(); leaf++) {
            if (has_part_per_rank(collective) && leaf % trees != c) continue;
            uint32_t found = 0;
            for (uint32_t rank = leaf; parents[rank] != rank; rank = parents[rank])
                found += counts(rank, parents[rank]);
            most = std::max(most, found);
        }
    }
    return most;
}

uint32_t both_ways(Collective collective) { return collective == Collective::all_reduce ? 2 : 1; }

// ---- Parts of ranks, which travel between them and the root

// A child of this rank, and the ranks whose parts pass it, in the order in which they come up: each
// rank before those below it, these from the nearest to the root round the ring.
struct Branch {
    uint32_t child;
    std::vector<uint32_t> parts;
};

// One of the trees, as this rank sees it. Part c travels in tree c mod the number of trees.
class PartTree {
public:
    PartTree(const Team &t, const Choices &choices, uint32_t number)
        : tree_(Tree::of(t, choices, number, t.root)), trees_(chunks_of(choices)), number_(number),
          parent_(tree_.parent(t.rank)), children_(t.size) {
        for (uint32_t distance = 1; distance < t.size; distance++) {
            const uint32_t rank = t.rank_at((t.position(t.root) + distance) % t.size);
            children_[tree_.parent(rank)].push_back(rank);
        }
        for (const uint32_t child : children_[t.rank]) {
            branches_.push_back({child, {}});
            collect(child, branches_.back().parts);
        }
    }

    uint32_t parent() const { return parent_; }
    bool has(uint32_t part) const { return part % trees_ == number_; }
    const std::vector<Branch> &branches() const { return branches_; }

private:
    void collect(uint32_t rank, std::vector<uint32_t> &parts) const {
        if (has(rank)) parts.push_back(rank);
        for (const uint32_t child : children_[rank]) collect(child, parts);
    }

    Tree tree_;
    uint32_t trees_, number_, parent_;
    std::vector<std::vector<uint32_t>> children_; // by rank
    std::vector<Branch> branches_;
};

// Trees in which the rank is a leaf come first.
std::vector<PartTree> part_trees(const Team &t, const Choices &choices) {
    std::vector<PartTree> trees;
    for (uint32_t number = 0; number < chunks_of(choices); number++)
        trees.emplace_back(t, choices, number);
    std::stable_partition(trees.begin(), trees.end(),
                          [](const PartTree &tree) { return tree.branches().empty(); });
    return trees;
}

Slot next_wire(const Schedule &s) { return wire(s.wires); }

// A rank sends its own part first, because it has that part from the start.
void gather_up(Schedule &s, const Team &t, const PartTree &tree) {
    const bool is_root = t.rank == t.root;
    if (tree.has(t.rank) && !is_root) s.send(tree.parent(), input(t.rank));
    for (const Branch &branch : tree.branches())
        for (const uint32_t part : branch.parts) {
            const Slot came = is_root ? output(part) : next_wire(s);
            s.recv(branch.child, came, part);
            if (!is_root) s.send(tree.parent(), came, part);
        }
}

// The reverse: the parts that have the longest way come first, and a rank's own comes last.
void scatter_down(Schedule &s, const Team &t, const PartTree &tree) {
    const bool is_root = t.rank == t.root;
    const auto &branches = tree.branches();
    for (auto branch = branches.rbegin(); branch != branches.rend(); ++branch)
        for (auto part = branch->parts.rbegin(); part != branch->parts.rend(); ++part) {
            const Slot came = is_root ? input(*part) : next_wire(s);
            if (!is_root) s.recv(tree.parent(), came, *part);
            s.send(branch->child, came, *part);
        }
    if (tree.has(t.rank) && !is_root) s.recv(tree.parent(), output(t.rank));
}

} // namespace

const GroupPhases tree_phases{tree_reduce_scatter, tree_all_gather, tree_fold, tree_encoded,
                              tree_rounds_one_way};

Schedule all_reduce_tree(const Team &t, const Choices &choices) {
    const uint32_t chunks = chunks_of(choices);
    Schedule s{.chunks = chunks, .outbox = t.size == 1 ? 0 : chunks};
    auto positions = positions_of(t, choices, 0);
    for (const Position &p : positions) tree_reduce_scatter(s, t, p);
    std::reverse(positions.begin(), positions.end());
    for (const Position &p : positions) tree_all_gather(s, t, p);
    return s;
}

Schedule broadcast_tree(const Team &t, const Choices &choices) {
    const uint32_t chunks = chunks_of(choices);
    Schedule s{.chunks = chunks, .outbox = t.size == 1 ? 0 : chunks};
    auto positions = positions_of(t, choices, t.root);
    if (t.rank == t.root)
        for (const Position &p : positions) s.copy(output(p.chunk), input(p.chunk));
    std::reverse(positions.begin(), positions.end());
    for (const Position &p : positions) tree_all_gather(s, t, p);
    return s;
}

Schedule reduce_tree(const Team &t, const Choices &choices) {
    const uint32_t chunks = chunks_of(choices);
    Schedule s{.chunks = chunks, .outbox = t.size == 1 ? 0 : chunks};
    for (const Position &p : positions_of(t, choices, t.root)) tree_reduce_scatter(s, t, p);
    return s;
}

Schedule gather_tree(const Team &t, const Choices &choices) {
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank == t.root) s.copy(output(t.rank), input(t.rank));
    for (const PartTree &tree : part_trees(t, choices)) gather_up(s, t, tree);
    return s;
}

Schedule scatter_tree(const Team &t, const Choices &choices) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    const auto trees = part_trees(t, choices);
    for (auto tree = trees.rbegin(); tree != trees.rend(); ++tree) scatter_down(s, t, *tree);
    if (t.rank == t.root) s.copy(output(t.rank), input(t.rank));
    return s;
}

std::vector<uint32_t> tree_parents(const Team &t, const Choices &choices, uint32_t chunk) {
    return Tree::of(t, choices, chunk, t.root).parents();
}

SumOrder by_tree(Collective collective, const Team &t, const Choices &choices, uint32_t chunk) {
    return SumOrder::by_tree(Tree::of(t, choices, chunk, root_of(collective, t)).parents());
}

uint32_t rounds_tree(Collective collective, const Team &t, const Choices &choices) {
    return both_ways(collective) *
           most_in_trees(collective, t, choices, [](uint32_t, uint32_t) { return true; });
}

uint32_t outer_rounds_tree(Collective collective, const Team &t, const Choices &choices) {
    if (!t.places) return 0;
    const Partition &hosts = t.places->hosts();
    const auto crosses_hosts = [&](uint32_t from, uint32_t to) {
        return hosts.group_of(from) != hosts.group_of(to);
    };
    return both_ways(collective) * most_in_trees(collective, t, choices, crosses_hosts);
}

// Every rank but the root encodes the sum of its own contribution and of all below it. The root's
// encode is the last. Parts that are not summed are encoded once, except the root's own.
NoiseMoments noise_tree(Collective collective, const Team &t, const Choices &choices) {
    if (t.size == 1) return {};
    if (!reduces(collective))
        return has_part_per_rank(collective) ? noise_of_parts(collective, t.size)
                                             : NoiseMoments::of(1);
    NoiseMoments encoded; // of contributions
    const uint32_t root = root_of(collective, t);
    for (uint32_t c = 0; c < chunks_of(choices); c++) {
        const std::vector<uint32_t> parents = Tree::of(t, choices, c, root).parents();
        std::vector<uint32_t> passed(t.size);
        for (uint32_t rank = 0; rank < t.size; rank++)
            for (uint32_t at = rank; at != root; at = parents[at]) passed[at]++;
        for (const uint32_t contributions : passed) encoded += NoiseMoments::of(contributions);
    }
    const NoiseMoments sums = encoded.shares_of(t.size) * (1.0 / chunks_of(choices));
    return collective == Collective::all_reduce ? sums + NoiseMoments::of(1) : sums;
}

} // namespace qccl
