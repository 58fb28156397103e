// Tests base/call_descriptor: the hash covers exactly the fields that must agree between ranks,
// and the first difference is reported with both values.
#include "tests/kit/qtest.hpp"

#include "base/call_descriptor.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

using namespace qccl;

static CallDescriptor sample() {
    CallDescriptor call;
    call.call = 17;
    call.count = 1000;
    call.collective = Collective::reduce;
    call.type = DataType::float32;
    std::strcpy(call.codec, "int4:block=32");
    std::strcpy(call.algorithm, "ring");
    return call;
}

struct Change {
    std::function<void(CallDescriptor &)> apply;
    const char *sentence; // null: the change makes it another call, not another field
};

static const std::vector<Change> &changes() {
    static const std::vector<Change> all{
        {[](CallDescriptor &d) { d.collective = Collective::barrier; },
         "rank 2 calls barrier, rank 0 calls reduce, in call 17"},
        {[](CallDescriptor &d) { d.count++; },
         "rank 2 calls reduce with count 1001, rank 0 with count 1000, in call 17"},
        {[](CallDescriptor &d) { d.type = DataType::float64; },
         "rank 2 calls reduce with type double, rank 0 with type float, in call 17"},
        {[](CallDescriptor &d) { d.op = RedOp::max; },
         "rank 2 calls reduce with op max, rank 0 with op sum, in call 17"},
        {[](CallDescriptor &d) {
             std::memset(d.codec, 0, sizeof d.codec), std::strcpy(d.codec, "none");
         },
         "rank 2 calls reduce with codec none, rank 0 with codec int4:block=32, in call 17"},
        {[](CallDescriptor &d) { std::strcpy(d.algorithm, "direct"); },
         "rank 2 calls reduce with algorithm direct, rank 0 with algorithm ring, in call 17"},
        {[](CallDescriptor &d) { d.root = 3; },
         "rank 2 calls reduce with root 3, rank 0 with root 0, in call 17"},
        {[](CallDescriptor &d) { d.root = 4, std::strcpy(d.algorithm, "tree"); },
         "rank 2 calls reduce with root 4, rank 0 with root 0, in call 17"},
        {[](CallDescriptor &d) { d.earlier = 3; },
         "rank 2 and rank 0 have made different calls before call 17"},
        {[](CallDescriptor &d) { d.captured = 3; },
         "rank 2 makes captured call 3, rank 0 a call of no graph, in call 17"},
        {[](CallDescriptor &d) { d.call++; }, nullptr},
    };
    return all;
}

static void hash_covers_what_must_agree() {
    std::vector<uint64_t> seen{sample().hash()};
    for (const Change &change : changes()) {
        CallDescriptor other = sample();
        change.apply(other);
        for (const uint64_t hash : seen) CHECK(other.hash() != hash);
        seen.push_back(other.hash());
    }
    CallDescriptor tagged = sample();
    tagged.tag = 99;
    CHECK_EQ(tagged.hash(), sample().hash());
}

static void hash_tells_neighbours_apart() {
    // Counts, calls and roots are small numbers; their hashes must not collide.
    std::vector<uint64_t> hashes;
    for (uint64_t call = 1; call <= 32; call++)
        for (uint64_t count = 0; count < 32; count++)
            for (uint32_t root = 0; root < 8; root++) {
                CallDescriptor d;
                d.call = call, d.count = count, d.root = root;
                hashes.push_back(d.hash());
            }
    std::sort(hashes.begin(), hashes.end());
    CHECK(std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end());
}

static void first_difference_is_named() {
    CHECK(!sample().difference(0, sample(), 2));
    for (const Change &change : changes()) {
        if (!change.sentence) continue;
        CallDescriptor other = sample();
        change.apply(other);
        const auto error = sample().difference(0, other, 2);
        CHECK(error.has_value());
        CHECK_EQ(std::string(error->text), std::string(change.sentence));
        CHECK(error->code == Code::mismatch);
        CHECK_EQ(error->rank, 2);
    }
    CallDescriptor other = sample();
    other.count = 7, other.root = 1;
    const auto error = sample().difference(0, other, 2);
    CHECK_EQ(error->expected, 1000);
    CHECK_EQ(error->got, 7);
}

// A message is a call of two ranks that the reader does not know by these numbers.
static void messages_name_their_ends() {
    const MessageEnds down{.sender = 7, .receiver = 3}, up{.sender = 3, .receiver = 7};
    CHECK_EQ(down.rank_of(0), 3U);
    CHECK_EQ(down.rank_of(1), 7U);
    CallDescriptor other = sample();
    other.count = 7;
    CHECK_EQ(std::string(sample().difference(0, other, 1, &down)->text),
             "rank 7 sends with count 7, rank 3 receives with count 1000, in a message from rank 7 "
             "to rank 3");
    const auto error = sample().difference(0, other, 1, &up);
    CHECK_EQ(std::string(error->text),
             "rank 7 receives with count 7, rank 3 sends with count 1000, in a message from rank 3 "
             "to rank 7");
    CHECK_EQ(error->rank, 1);
    CHECK_EQ(error->expected, 1000);
    CHECK_EQ(error->got, 7);
}

// Calls without a root have a hash of their counts in its place, if they have several counts.
static void other_counts_are_named() {
    for (const Collective collective : {Collective::all_reduce, all_gather_v}) {
        CallDescriptor ours = sample(), theirs = sample();
        ours.collective = theirs.collective = collective;
        theirs.root = 0x12345678;
        CHECK_EQ(std::string(ours.difference(0, theirs, 2)->text),
                 std::string("rank 2 calls ") + name(collective) +
                     " with other counts than rank 0, in call 17");
    }
}

static void longest_specs_fit() {
    CallDescriptor ours = sample(), theirs = sample();
    std::memset(ours.codec, 'a', sizeof ours.codec - 1);
    std::memset(theirs.codec, 'b', sizeof theirs.codec - 1);
    const auto error = ours.difference(0, theirs, 4095);
    CHECK(std::string(error->text).ends_with(", in call 17"));
}

// A descriptor from another host may hold any bytes.
static void what_names_nothing_is_told_by_its_number() {
    const std::pair<std::function<void(CallDescriptor &)>, const char *> faults[] = {
        {[](CallDescriptor &d) { d.collective = static_cast<Collective>(99); },
         "rank 2 calls 99, rank 0 calls reduce, in call 17"},
        {[](CallDescriptor &d) { d.type = static_cast<DataType>(-1); },
         "rank 2 calls reduce with type -1, rank 0 with type float, in call 17"},
        {[](CallDescriptor &d) { d.op = static_cast<RedOp>(INT32_MAX); },
         "rank 2 calls reduce with op 2147483647, rank 0 with op sum, in call 17"},
        {[](CallDescriptor &d) { std::memset(d.codec, 'x', sizeof d.codec); },
         "rank 2 calls reduce with codec xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx, rank 0 with codec "
         "int4:block=32, in call 17"},
        {[](CallDescriptor &d) { std::memset(d.algorithm, 'x', sizeof d.algorithm); },
         "rank 2 calls reduce with algorithm xxxxxxxxxxxxxxxxxxxxxxxx, rank 0 with algorithm "
         "ring, in call 17"},
    };
    for (const auto &[apply, sentence] : faults) {
        CallDescriptor other = sample();
        apply(other);
        CHECK_EQ(std::string(sample().difference(0, other, 2)->text), std::string(sentence));
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_name_their_ends),
        QTEST(hash_covers_what_must_agree),
        QTEST(hash_tells_neighbours_apart),
        QTEST(first_difference_is_named),
        QTEST(other_counts_are_named),
        QTEST(longest_specs_fit),
        QTEST(what_names_nothing_is_told_by_its_number),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
