// Describes what a slot holds as an expression over the contributions of the ranks: which
// contributions were added in which order, and what was encoded on the way. Equal expressions are
// one node, so comparing two values of thousands of terms compares two numbers. verify() uses it,
// on one thread; nothing blocks.
#pragma once

#include "schedule/sum_order.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace qccl {

using Expression = uint32_t;

// Stores expressions. A contribution is named by its place in the order in which the contract sums
// it, and not by rank. Then the same sum of another chunk, which starts at another rank, is the
// same node.
class Expressions {
public:
    static constexpr Expression none = ~Expression{0};

    // A value made of contributions [begin, end) of the order, summed in that order from the left.
    struct Node {
        enum class Kind : uint8_t { leaf, encode, add, finish };

        Kind kind;
        bool is_finished = false; // avg has divided it
        bool has_final = false;   // a complete result has been encoded in it
        uint32_t begin = 0, end = 0;
        uint32_t a = 0, b = 0; // operands; the function that makes the node defines them
        // Contributions encoded, summed over all encodes: in the outermost tier, and below.
        double noise = 0, inner_noise = 0;

        bool is_same(const Node &other) const {
            return kind == other.kind && begin == other.begin && a == other.a && b == other.b;
        }
    };

    // `complete` is the number of contributions to a result.
    explicit Expressions(uint32_t complete) : complete_(complete), table_(initial_table, none) {}

    // Returns the contribution at `place` of the order.
    Expression leaf(uint32_t place);
    // Returns `value` as encoded by the rank at `place`; `which` numbers the encodes of a chunk on
    // that rank. Two encodes of the same values are two different values, because they may round
    // differently.
    Expression encode(Expression value, uint32_t place, uint32_t which, bool is_inner);
    // Adds `term` to `sum`. Returns none if `term` is not the operand that follows those of `sum`
    // in the order. If `sum` has several contributions, the two may also be exchanged: the result
    // is the same, so a rank that holds a partial sum need not set the sum aside for the operand
    // that comes first.
    Expression add(Expression sum, Expression term, const SumOrder &order);
    // Finishes a complete sum, which is where avg divides. Returns none if `value` is not complete,
    // or is finished already.
    Expression finish(Expression value);

    const Node &operator[](Expression e) const { return nodes_[e]; }
    bool is_encode(Expression e, Expression of) const {
        return nodes_[e].kind == Node::Kind::encode && nodes_[e].a == of;
    }
    bool is_complete(Expression e) const {
        return nodes_[e].begin == 0 && nodes_[e].end == complete_;
    }
    // Returns, for example, "contributions 0 to 3 of 5".
    std::string describe(Expression e) const;

private:
    static constexpr size_t initial_table = 1024; // a power of two
    static constexpr uint32_t which_bits = 8;     // low bits of an encode's operand b

    Expression intern(const Node &node);
    void grow();
    static uint64_t hash(const Node &node);

    uint32_t complete_;
    std::vector<Node> nodes_;
    std::vector<Expression> table_; // open addressing, at most half full
};

} // namespace qccl
