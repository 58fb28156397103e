// What a slot holds, as an expression over the contributions of the ranks: which were added in
// which order, and what was encoded on the way. Equal expressions are one node, so that comparing
// two values of thousands of terms compares two numbers.
#pragma once

#include "schedule/sum_order.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace qccl {

using Expression = uint32_t;

// Contributions are named by their place in the order in which the contract sums them, not by rank:
// then the same sum of another chunk, started at another rank, is the same node.
class Expressions {
public:
    static constexpr Expression none = ~Expression{0};

    // Contributions [begin, end) of the order, summed in that order from the left.
    struct Node {
        enum class Kind : uint8_t { leaf, encode, add, finish };

        Kind kind;
        bool is_finished = false; // avg has divided
        bool has_final = false;   // what was encoded was the complete result
        uint32_t begin = 0, end = 0;
        uint32_t a = 0, b = 0; // operands: see each maker below
        // Sums over the encodes of the contributions encoded: in the outermost tier, and below.
        double noise = 0, inner_noise = 0;

        bool is_same(const Node &other) const {
            return kind == other.kind && begin == other.begin && a == other.a && b == other.b;
        }
    };

    // `complete` is how many contributions a result has.
    explicit Expressions(uint32_t complete) : complete_(complete), table_(initial_table, none) {}

    Expression leaf(uint32_t place);
    // The encode number `which` of its chunk on the rank at `place`: two encodes of the same values
    // are two different values, for they may round differently.
    Expression encode(Expression value, uint32_t place, uint32_t which, bool is_inner);
    // none where `term` is not the operand that the order has next after those of `sum`. A sum of
    // several may also be that operand: what is added to what makes no difference, and whoever has
    // summed something up need not put it aside for what comes first.
    Expression add(Expression sum, Expression term, const SumOrder &order);
    Expression finish(Expression value);

    const Node &operator[](Expression e) const { return nodes_[e]; }
    bool is_encode(Expression e, Expression of) const {
        return nodes_[e].kind == Node::Kind::encode && nodes_[e].a == of;
    }
    bool is_complete(Expression e) const {
        return nodes_[e].begin == 0 && nodes_[e].end == complete_;
    }
    // "contributions 0 to 3 of 5"
    std::string describe(Expression e) const;

private:
    static constexpr size_t initial_table = 1024; // a power of two
    static constexpr uint32_t which_bits = 8;     // of an encode's operand b; the rest is its place

    Expression intern(const Node &node);
    void grow();
    static uint64_t hash(const Node &node);

    uint32_t complete_;
    std::vector<Node> nodes_;
    std::vector<Expression> table_; // open addressing, at most half full
};

} // namespace qccl
