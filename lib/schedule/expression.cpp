// Interns the nodes of expressions in a hash table, so that equal expressions get the same number.
#include "schedule/expression.hpp"

#include <utility>

namespace qccl {

Expression Expressions::leaf(uint32_t place) {
    return intern({.kind = Node::Kind::leaf, .begin = place, .end = place + 1});
}

Expression Expressions::encode(Expression value, uint32_t place, uint32_t which, bool is_inner) {
    Node node = nodes_[value];
    node.kind = Node::Kind::encode;
    node.a = value;
    node.b = (place << 1 | (is_inner ? 1U : 0U)) << which_bits | which;
    (is_inner ? node.inner_noise : node.noise) += node.end - node.begin;
    node.has_final = node.has_final || is_complete(value);
    return intern(node);
}

Expression Expressions::add(Expression sum, Expression term, const SumOrder &order) {
    if (nodes_[sum].end - nodes_[sum].begin > 1 && nodes_[term].begin < nodes_[sum].begin)
        std::swap(sum, term);
    const Node &left = nodes_[sum], &right = nodes_[term];
    const bool follows = left.end == right.begin && left.begin == order.sum_begin(right.begin) &&
                         right.end == order.operand_end(right.begin);
    if (!follows || left.is_finished || right.is_finished) return none;
    return intern({.kind = Node::Kind::add,
                   .begin = left.begin,
                   .end = right.end,
                   .a = sum,
                   .b = term,
                   .noise = left.noise + right.noise,
                   .inner_noise = left.inner_noise + right.inner_noise});
}

Expression Expressions::finish(Expression value) {
    Node node = nodes_[value];
    if (node.is_finished || !is_complete(value)) return none;
    node.kind = Node::Kind::finish;
    node.is_finished = true;
    node.a = value;
    node.b = 0;
    return intern(node);
}

std::string Expressions::describe(Expression e) const {
    const Node &node = nodes_[e];
    std::string text = "contributions ";
    text.append(std::to_string(node.begin)).append(" to ").append(std::to_string(node.end - 1));
    text.append(" of ").append(std::to_string(complete_));
    return text;
}

Expression Expressions::intern(const Node &node) {
    const size_t mask = table_.size() - 1;
    size_t at = hash(node) & mask;
    for (; table_[at] != none; at = (at + 1) & mask)
        if (nodes_[table_[at]].is_same(node)) return table_[at];
    const auto made = static_cast<Expression>(nodes_.size());
    nodes_.push_back(node);
    table_[at] = made;
    if (2 * nodes_.size() > table_.size()) grow();
    return made;
}

void Expressions::grow() {
    table_.assign(2 * table_.size(), none);
    const size_t mask = table_.size() - 1;
    for (Expression e = 0; e < nodes_.size(); e++) {
        size_t at = hash(nodes_[e]) & mask;
        while (table_[at] != none) at = (at + 1) & mask;
        table_[at] = e;
    }
}

// Multiplies by odd constants with well mixed bits, as in MurmurHash3's finalizer.
uint64_t Expressions::hash(const Node &node) {
    uint64_t h = (uint64_t{node.a} << 32 | node.b) ^ (uint64_t{node.begin} << 3) ^
                 static_cast<uint64_t>(node.kind);
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDULL;
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53ULL;
    return h ^ h >> 33;
}

} // namespace qccl
