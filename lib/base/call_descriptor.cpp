// Hashes a call's descriptor and words the first difference between two descriptors.
#include "base/call_descriptor.hpp"

#include <array>
#include <cinttypes>
#include <cstring>
#include <string>
#include <string_view>

namespace qccl {

namespace {

__extension__ using Wide = unsigned __int128;

// Odd numbers with about as many ones as zeros, one for each word; they need no other property.
constexpr std::array<uint64_t, sizeof(CallDescriptor) / sizeof(uint64_t)> secrets{
    0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93,
    0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53,
    0xA24BAED4963EE407, 0x9FB21C651E98DF25, 0x8BB84B93962EACC9, 0xD1B54A32D192ED03,
    0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3};

uint64_t fold(uint64_t a, uint64_t b) {
    const Wide product = Wide{a} * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

struct Value {
    std::optional<std::string_view> text; // empty: the number is shown
    int64_t number;
};

struct Field {
    const char *name;
    Value ours, theirs;

    bool agrees() const { return ours.number == theirs.number && ours.text == theirs.text; }
};

// A rank of another host may be broken: its numbers may have no name, and its texts may not end.
template <class Named, class Table> Value named(Named value, const Table &names) {
    const auto number = static_cast<int64_t>(value);
    if (number < 0 || static_cast<size_t>(number) >= names.size()) return {std::nullopt, number};
    return {name(value), number};
}
Value named(Collective value) { return named(value, collective_table); }
Value named(DataType value) { return named(value, type_table); }
Value named(RedOp value) { return named(value, names_of_ops); }
Value number(uint64_t value) { return {std::nullopt, static_cast<int64_t>(value)}; }
template <size_t most> Value word(const char (&text)[most]) {
    return {std::string_view(text, strnlen(text, most)), 0};
}

struct Spelled {
    char text[48];
    explicit Spelled(const Value &value) {
        if (value.text)
            std::snprintf(text, sizeof text, "%.*s", static_cast<int>(value.text->size()),
                          value.text->data());
        else
            std::snprintf(text, sizeof text, "%" PRId64, value.number);
    }
};

struct Maker {
    char text[48];
    explicit Maker(uint64_t captured) {
        if (captured == 0)
            std::snprintf(text, sizeof text, "a call of no graph");
        else
            std::snprintf(text, sizeof text, "captured call %" PRIu64, captured);
    }
};

// The number may be that of no collective.
bool has_counts_hash(Collective collective) {
    return named(collective).text && !row_of(collective).has_root;
}

} // namespace

static uint64_t fold_pair(size_t i, uint64_t first, uint64_t second) {
    return fold(first ^ secrets[i], second ^ secrets[i + 1]);
}

// Of the words that stand in no pair with a number.
static uint64_t digest_of(const CallDescriptor &call) {
    uint64_t mixed = 0;
    for (size_t i = 6; i < secrets.size(); i += 2)
        mixed ^= fold_pair(i, call.word_at(i), call.word_at(i + 1));
    return mixed;
}

// Products that do not wait for each other, because this runs in every call. The tag is not
// compared, so its place is 0.
static uint64_t hash_with(const CallNumbers &numbers, const CallDescriptor &call, uint64_t digest) {
    const uint64_t mixed = fold_pair(0, numbers.call, call.count) ^
                           fold_pair(2, 0, numbers.captured) ^
                           fold_pair(4, numbers.earlier, call.word_at(5)) ^ digest;
    return fold(mixed ^ secrets[0], secrets[1]);
}

uint64_t CallDescriptor::hash() const { return hash_with(numbers(), *this, digest_of(*this)); }

CallShape::CallShape(const CallDescriptor &descriptor)
    : descriptor_(descriptor), digest_(digest_of(descriptor)) {
    descriptor_.set({});
    fingerprint_ = hash({});
}

uint64_t CallShape::hash(const CallNumbers &numbers) const {
    return hash_with(numbers, descriptor_, digest_);
}

namespace {

// Returns what "rank 3" does in the words of a message: "rank 3 sends".
std::string end_text(const MessageEnds &ends, uint32_t of_two) {
    const uint32_t rank = ends.rank_of(of_two);
    return "rank " + std::to_string(rank) + (rank == ends.sender ? " sends" : " receives");
}

// Messages have no number that a caller could know.
Error differing_messages(const MessageEnds &ends, uint32_t reference, uint32_t rank,
                         const Field &field) {
    return Error::make(Code::mismatch,
                       "%s with %s %s, %s with %s %s, in a message from rank %u to rank %u",
                       end_text(ends, rank).c_str(), field.name, Spelled(field.theirs).text,
                       end_text(ends, reference).c_str(), field.name, Spelled(field.ours).text,
                       ends.sender, ends.receiver);
}

} // namespace

std::optional<Error> CallDescriptor::difference(uint32_t reference, const CallDescriptor &theirs,
                                                uint32_t rank, const MessageEnds *ends) const {
    // Compared first, because the other differences may follow from this one.
    if (captured != theirs.captured)
        return Error::make(Code::mismatch, "rank %u makes %s, rank %u %s, in call %" PRIu64, rank,
                           Maker(theirs.captured).text, reference, Maker(captured).text, call)
            .at_rank(rank)
            .compared(static_cast<int64_t>(captured), static_cast<int64_t>(theirs.captured));
    if (collective != theirs.collective)
        return Error::make(Code::mismatch, "rank %u calls %s, rank %u calls %s, in call %" PRIu64,
                           rank, Spelled(named(theirs.collective)).text, reference,
                           Spelled(named(collective)).text, call)
            .at_rank(rank)
            .compared(static_cast<int64_t>(collective), static_cast<int64_t>(theirs.collective));
    if (count == theirs.count && root != theirs.root && has_counts_hash(collective))
        return Error::make(Code::mismatch,
                           "rank %u calls %s with other counts than rank %u, in call %" PRIu64,
                           rank, Spelled(named(collective)).text, reference, call)
            .at_rank(rank);
    const Field fields[] = {
        {"count", number(count), number(theirs.count)},
        {"type", named(type), named(theirs.type)},
        {"op", named(op), named(theirs.op)},
        // Before codec and algorithm, which the planner may choose by the root.
        {"root", number(root), number(theirs.root)},
        {"codec", word(codec), word(theirs.codec)},
        {"algorithm", word(algorithm), word(theirs.algorithm)},
    };
    for (const Field &field : fields) {
        if (field.agrees()) continue;
        if (ends)
            return differing_messages(*ends, reference, rank, field)
                .at_rank(rank)
                .compared(field.ours.number, field.theirs.number);
        return Error::make(Code::mismatch,
                           "rank %u calls %s with %s %s, rank %u with %s %s, in call %" PRIu64,
                           rank, Spelled(named(collective)).text, field.name,
                           Spelled(field.theirs).text, reference, field.name,
                           Spelled(field.ours).text, call)
            .at_rank(rank)
            .compared(field.ours.number, field.theirs.number);
    }
    if (earlier != theirs.earlier)
        return Error::make(Code::mismatch,
                           "rank %u and rank %u have made different calls before call %" PRIu64,
                           rank, reference, call)
            .at_rank(rank);
    return std::nullopt;
}

} // namespace qccl
