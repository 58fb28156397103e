// Tests schedule/place_codec: which steps encode and decode, and that placed schedules compute the
// sums of the contract on real numbers.
#include "tests/kit/qtest.hpp"

#include "schedule_twin.hpp"
#include "tests/kit/forms.hpp"
#include "tests/kit/sum_trees.hpp"

#include "schedule/schedule.hpp"

#include <bit>
#include <cstring>

using namespace qccl;

static std::string steps_of(const Schedule &author, OwnerKeeps owner = OwnerKeeps::decoded) {
    const auto placed = place_codec(author, owner);
    CHECK_OK(placed);
    std::string text;
    for (const Step &step : placed->steps) text += print(step) + "\n";
    return text;
}

static std::string refusal(const Schedule &author) {
    const auto placed = place_codec(author);
    CHECK(!placed);
    return placed.error().text;
}

static void a_value_is_encoded_once() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.send(1, input(0));
    s.send(2, input(0));
    CHECK_EQ(steps_of(s), "encode wire(0) <- input(0)\n"
                          "send wire(0) -> 1 chunk 0\n"
                          "send wire(0) -> 2 chunk 0\n");
}

static void what_was_sent_is_read_as_it_was_sent() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.send(1, input(0));
    s.recv(1, wire(0), 0);
    s.reduce(sum(0), input(0));
    s.reduce(sum(0), wire(0));
    s.finish(output(0), sum(0));
    CHECK_EQ(steps_of(s), "encode wire(0) <- input(0)\n"
                          "send wire(0) -> 1 chunk 0\n"
                          "recv wire(1) <- 1 chunk 0\n"
                          "decode sum(0) <- wire(0)\n"
                          "decode_add sum(0) += wire(1)\n"
                          "copy output(0) <- sum(0) finishes\n");
}

static void the_owner_keeps_what_it_gives() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.reduce(sum(0), input(0));
    s.finish(output(0), sum(0));
    s.send(1, output(0));
    CHECK_EQ(steps_of(s), "copy sum(0) <- input(0)\n"
                          "encode wire(0) <- sum(0) finishes\n"
                          "decode output(0) <- wire(0)\n"
                          "send wire(0) -> 1 chunk 0\n");
}

static void an_owner_may_keep_its_values() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.copy(output(0), input(0));
    s.send(1, output(0));
    s.send(2, output(0));
    CHECK_EQ(steps_of(s), "encode wire(0) <- input(0)\n"
                          "decode output(0) <- wire(0)\n"
                          "send wire(0) -> 1 chunk 0\n"
                          "send wire(0) -> 2 chunk 0\n");
    CHECK_EQ(steps_of(s, OwnerKeeps::exact), "encode wire(0) <- input(0)\n"
                                             "copy output(0) <- input(0)\n"
                                             "send wire(0) -> 1 chunk 0\n"
                                             "send wire(0) -> 2 chunk 0\n");
}

static void what_comes_is_passed_on_as_it_came() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.recv(1, output(0));
    s.send(2, output(0));
    s.send(3, output(0));
    CHECK_EQ(steps_of(s), "recv wire(1) <- 1 chunk 0\n"
                          "send wire(1) -> 2 chunk 0\n"
                          "send wire(1) -> 3 chunk 0\n"
                          "decode output(0) <- wire(1)\n");
}

static void a_hop_decodes_adds_and_encodes() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.recv(1, sum(0));
    s.reduce(sum(0), input(0));
    s.send(2, sum(0));
    CHECK_EQ(steps_of(s), "recv wire(1) <- 1 chunk 0\n"
                          "decode sum(0) <- wire(1)\n"
                          "reduce sum(0) += input(0)\n"
                          "encode wire(0) <- sum(0)\n"
                          "send wire(0) -> 2 chunk 0\n");
}

// A sum that has been sent continues from its decoded bytes, as at the receiver.
static void adding_to_what_was_sent_starts_from_its_bytes() {
    Schedule s{.chunks = 2, .outbox = 1};
    s.reduce(sum(0), input(0));
    s.send(1, sum(0));
    s.reduce(sum(0), input(0));
    CHECK_EQ(steps_of(s), "copy sum(0) <- input(0)\n"
                          "encode wire(0) <- sum(0)\n"
                          "send wire(0) -> 1 chunk 0\n"
                          "decode sum(0) <- wire(0)\n"
                          "reduce sum(0) += input(0)\n");
}

// The same holds if no peer gets the bytes: other ranks of the half continue from the same bytes,
// which they make themselves.
static void what_is_common_goes_on_from_its_bytes() {
    const Schedule s = make(ScheduleForm::author, algorithm_of("doubling"), Collective::all_reduce,
                            {.size = 5, .rank = 2});
    CHECK_EQ(steps_of(s), "encode wire(0) <- input(0)\n"
                          "send wire(0) -> 0 chunk 0\n"
                          "send wire(0) -> 1 chunk 0\n"
                          "recv wire(3) <- 0 chunk 0\n"
                          "decode sum(0) <- wire(3)\n"
                          "decode_add sum(0) += wire(0)\n"
                          "encode wire(1) <- sum(0) #2 common 0 stays\n"
                          "recv wire(4) <- 4 chunk 0\n"
                          "decode sum(0) <- wire(1)\n"
                          "decode_add sum(0) += wire(4)\n"
                          "copy output(0) <- sum(0) finishes\n");
}

static void ranges_stay_one_step_where_nothing_was_encoded() {
    Schedule s{.chunks = 3};
    s.reduce(sum(0), input(0), 3);
    CHECK_EQ(steps_of(s), "copy sum(0) <- input(0)\n"
                          "reduce sum(0) += input(1..2)\n");
}

static void what_nobody_is_sent_may_be_added_as_encoded() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.recv(1, wire(0), 0);
    s.reduce(sum(0), wire(0));
    s.reduce_as_encoded(sum(0), input(0));
    s.finish(output(0), sum(0));
    CHECK_EQ(steps_of(s), "recv wire(1) <- 1 chunk 0\n"
                          "decode sum(0) <- wire(1)\n"
                          "encode wire(0) <- input(0) stays\n"
                          "decode_add sum(0) += wire(0)\n"
                          "copy output(0) <- sum(0) finishes\n");
    s.outbox = 0;
    CHECK(refusal(s).find("step 2 needs a wire slot") != std::string::npos);
}

// The input is encoded only once, and this encode is not marked `stays`.
static void what_is_sent_too_is_encoded_once() {
    for (const bool is_sent_first : {true, false}) {
        Schedule s{.chunks = 1, .outbox = 1};
        if (is_sent_first) s.send(1, input(0));
        s.reduce_as_encoded(sum(0), input(0));
        if (!is_sent_first) s.send(1, input(0));
        const std::string send = "send wire(0) -> 1 chunk 0\n";
        const std::string decode = "decode sum(0) <- wire(0)\n";
        CHECK_EQ(steps_of(s),
                 "encode wire(0) <- input(0)\n" + (is_sent_first ? send + decode : decode + send));
    }
}

static void encodes_are_numbered_in_order() {
    for (const Algorithm &algorithm : algorithms()) {
        if (!algorithm.has(Collective::all_reduce)) continue;
        uint32_t next = 0;
        for (const Step &step :
             make(ScheduleForm::placed, algorithm, Collective::all_reduce, {.size = 6, .rank = 4})
                 .steps)
            if (step.verb == Verb::encode) CHECK_EQ(step.ordinal, next++);
        CHECK(next > 0);
    }
}

static void what_is_on_its_way_inside_keeps_its_tier() {
    Schedule s{.chunks = 1, .outbox = 1};
    s.recv(1, wire(0), 0);
    s.steps.back().flags |= Step::inner;
    s.reduce(sum(0), input(0));
    s.reduce(sum(0), wire(0));
    s.send(2, sum(0));
    s.steps.back().flags |= Step::inner;
    CHECK_EQ(steps_of(s), "recv wire(1) <- 1 chunk 0 inner\n"
                          "copy sum(0) <- input(0)\n"
                          "decode_add sum(0) += wire(1) inner\n"
                          "encode wire(0) <- sum(0) inner\n"
                          "send wire(0) -> 2 chunk 0 inner\n");
    Schedule mixed{.chunks = 1, .outbox = 1};
    mixed.recv(1, wire(0), 0);
    mixed.steps.back().flags |= Step::inner;
    mixed.send(2, wire(0), 0);
    CHECK_EQ(refusal(mixed), "place_codec: step 1 sends in one tier what was encoded in another");
}

static void own_slots_are_given_back() {
    Schedule s{.chunks = 3, .outbox = 2};
    for (uint32_t c = 0; c < 3; c++) s.send(1, input(c));
    CHECK_OK(place_codec(s));
    s.outbox = 1;
    CHECK_OK(place_codec(s));
    s.outbox = 0;
    CHECK(refusal(s).find("step 0 needs a wire slot") != std::string::npos);
    Schedule holds{.chunks = 2, .outbox = 1};
    holds.send(1, input(0));
    holds.send(1, input(1));
    holds.send(2, input(0));
    CHECK(refusal(holds).find("step 1 needs a wire slot") != std::string::npos);
}

static void nonsense_is_refused() {
    Schedule unwritten{.chunks = 1, .outbox = 1};
    unwritten.send(1, sum(0));
    CHECK_EQ(refusal(unwritten), "place_codec: step 0 reads what was never written");
    Schedule outside{.chunks = 1, .outbox = 1};
    outside.send(1, input(1));
    CHECK_EQ(refusal(outside), "place_codec: step 0 reads a slot that does not exist");
    Schedule late{.chunks = 1, .outbox = 1};
    late.reduce(sum(0), input(0));
    late.send(1, sum(0));
    late.finish(output(0), sum(0));
    CHECK_EQ(refusal(late), "place_codec: step 2 finishes what has already travelled");
    Schedule writes_input{.chunks = 1};
    writes_input.copy(input(0), input(0));
    CHECK_EQ(refusal(writes_input), "place_codec: step 0 writes an input");
    Schedule adds_to_output{.chunks = 1};
    adds_to_output.reduce(output(0), input(0));
    CHECK(!place_codec(adds_to_output));
    Schedule placed{.chunks = 1, .is_placed = true};
    CHECK(!place_codec(placed));
}

// ---- The contract's sums

namespace {

using Values = std::vector<std::vector<float>>;

struct Case {
    const Algorithm &algorithm;
    Collective collective;
    uint32_t P, root;
    const Values &in;

    bool is(const char *name) const { return algorithm.name() == name; }
};

float ring_sum(const Case &k, uint32_t c, uint32_t start, bool is_sent_on) {
    float value = k.in[start][c];
    for (uint32_t i = 1; i < k.P; i++) {
        value = quantize(value, (start + i - 1) % k.P, i - 1);
        value += k.in[(start + i) % k.P][c];
    }
    value /= static_cast<float>(k.P);
    return is_sent_on ? quantize(value, (start + k.P - 1) % k.P, k.P - 1) : value;
}

float direct_sum(const Case &k, uint32_t c, bool is_sent_on) {
    float value = 0;
    for (uint32_t r = 0; r < k.P; r++) {
        const bool is_exact = r == c && !k.is("oneshot");
        const float term = is_exact ? k.in[r][c] : quantize(k.in[r][c], r, (c + k.P - r - 1) % k.P);
        value = r == 0 ? term : value + term;
    }
    value /= static_cast<float>(k.P);
    return is_sent_on ? quantize(value, c, k.P - 1) : value;
}

float tree_sum(const Case &k, const qtest::SumTree &tree, uint32_t c, uint32_t rank) {
    float value = 0;
    qtest::each_operand(
        tree, rank, [&](uint32_t own) { value = k.in[own][c]; },
        [&](uint32_t child) {
            value += quantize(tree_sum(k, tree, c, child), child, tree.ordinal[child]);
        });
    return value;
}

std::vector<uint32_t> ring_from_root(const Case &k) {
    std::vector<uint32_t> ring;
    for (uint32_t at = 0; at < k.P; at++) ring.push_back((k.root + at) % k.P);
    return ring;
}

float tree_result(const Case &k, uint32_t c, bool is_sent_on) {
    qtest::SumTree tree = qtest::sum_tree(spec(k.algorithm), k.P, c);
    if (k.collective == Collective::reduce && !k.is("halving"))
        tree = qtest::placed(tree, ring_from_root(k));
    const float value = tree_sum(k, tree, c, tree.root) / static_cast<float>(k.P);
    return is_sent_on ? quantize(value, tree.root, tree.final_ordinal) : value;
}

float oneshot_sum(const Case &k) {
    float value = 0;
    for (uint32_t r = 0; r < k.P; r++) {
        const float term = quantize(k.in[r][0], r, 0);
        value = r == 0 ? term : value + term;
    }
    return value / static_cast<float>(k.P);
}

// The sum of positions [begin, end): that of the two halves, each encoded with the noise of its
// first rank.
float doubling_sum(const Case &k, uint32_t begin, uint32_t end) {
    if (end - begin == 1) return k.in[begin][0];
    const uint32_t middle = begin + (end - begin + 1) / 2;
    const auto given = [&](uint32_t first, uint32_t last) {
        uint32_t ordinal = 0;
        while ((1U << ordinal) < last - first) ordinal++;
        return quantize(doubling_sum(k, first, last), first, ordinal);
    };
    return given(begin, middle) + given(middle, end);
}

// A hierarchy of one tier is a chain that ends at the root.
float chain_sum(const Case &k) {
    const std::vector<uint32_t> ring = ring_from_root(k);
    float value = k.in[ring[1]][0];
    for (uint32_t i = 2; i <= k.P; i++)
        value = quantize(value, ring[i - 1], 0) + k.in[ring[i % k.P]][0];
    return value / static_cast<float>(k.P);
}

float expected_of_reduce(const Case &k, uint32_t c) {
    if (k.is("oneshot")) return oneshot_sum(k);
    if (k.is("hierarchy") || k.is("chain")) return chain_sum(k);
    if (k.is("halving")) return tree_result(k, c, c != k.root);
    if (k.is("tree")) return tree_result(k, c, false);
    if (k.is("ring")) return ring_sum(k, c, c, (c + k.P - 1) % k.P != k.root);
    return direct_sum(k, c, c != k.root);
}

float expected_of_scatter(const Case &k, uint32_t c) {
    if (c == k.root) return k.in[c][c];
    const auto order = qtest::scatter_order(spec(k.algorithm), ring_from_root(k));
    const auto ordinal =
        k.is("tree") ? std::ranges::find(order, c) - order.begin() : (c + k.P - k.root - 1) % k.P;
    return quantize(k.in[k.root][c], k.root, static_cast<uint32_t>(ordinal));
}

float sent_prefix(const Case &k, uint32_t rank) {
    float sum = k.in[0][0];
    for (uint32_t next = 1; next <= rank; next++) sum = quantize(sum, next - 1, 0) + k.in[next][0];
    return sum;
}

// A sum that a rank has, as the ranks after it get it if it has been encoded.
struct Prefix {
    float value;
    uint32_t encoder, ordinal = 0;
    bool is_encoded = false, is_single = true;

    float sent() const { return quantize(value, encoder, ordinal); }
    float kept() const { return is_encoded ? sent() : value; }
};

float doubled_prefix(const Case &k, uint32_t rank) {
    const bool is_exscan = k.collective == Collective::exscan;
    const uint32_t first = is_exscan ? 1 : 0;
    std::vector<uint32_t> encodes(k.P, first);
    std::vector<Prefix> all;
    for (uint32_t r = 0; r < k.P; r++) {
        const uint32_t giver = r == 0 ? 0 : r - first;
        all.push_back({.value = k.in[giver][0], .encoder = giver, .is_encoded = is_exscan});
    }
    const auto encode = [&](uint32_t r) {
        if (!all[r].is_encoded) all[r].ordinal = encodes[r]++;
        all[r].is_encoded = true;
    };
    for (uint32_t distance = 1; distance < k.P; distance *= 2) {
        for (uint32_t r = first; r + distance < k.P; r++) encode(r);
        const auto before = all;
        for (uint32_t r = first + distance; r < k.P; r++) {
            if (all[r].is_single) encode(r);
            all[r] = {.value = before[r - distance].sent() + all[r].kept(),
                      .encoder = r,
                      .is_single = false};
        }
    }
    return all[rank].kept();
}

float expected_prefix(const Case &k, uint32_t rank) {
    const uint32_t ranks = covered_ranks(k.collective, rank, k.P);
    if (k.P == 1) return k.in[0][0];
    if (k.is("doubling")) return doubled_prefix(k, rank);
    if (k.is("chain"))
        return ranks == k.P ? sent_prefix(k, rank)
                            : quantize(sent_prefix(k, ranks - 1), ranks - 1, 0);
    float value = quantize(k.in[0][0], 0, 0);
    for (uint32_t giver = 1; giver < ranks; giver++) value += quantize(k.in[giver][0], giver, 0);
    return value;
}

// The part that rank (c - rank) mod P has for the rank.
float expected_part(const Case &k, uint32_t c, uint32_t rank) {
    const uint32_t giver = (c + k.P - rank) % k.P, way = (rank + k.P - giver) % k.P;
    if (giver == rank) return k.in[giver][c];
    uint32_t ordinal = way - 1;
    if (k.is("pairwise")) ordinal = 2 * way <= k.P ? 2 * way - 2 : 2 * (k.P - way) - 1;
    if (k.is("bruck")) {
        ordinal = 0;
        const auto round = [](uint32_t of) { return std::countr_zero(of); };
        for (uint32_t other = 1; other < k.P; other++)
            ordinal += std::pair(round(other), other) < std::pair(round(way), way);
    }
    return quantize(k.in[giver][c], giver, ordinal);
}

float expected(const Case &k, uint32_t c) {
    const bool is_ring = k.is("ring");
    if (k.P == 1) return k.in[0][c];
    if (k.collective == Collective::reduce) return expected_of_reduce(k, c);
    if (k.collective == Collective::scatter) return expected_of_scatter(k, c);
    if (reduces(k.collective) && qtest::sums_by_tree(spec(k.algorithm)))
        return tree_result(k, c, k.collective == Collective::all_reduce);
    switch (k.collective) {
    case Collective::all_reduce:
        if (k.is("hierarchy")) return ring_sum(k, c, (c + 1) % k.P, true);
        if (k.is("oneshot")) return oneshot_sum(k);
        if (k.is("doubling")) return doubling_sum(k, 0, k.P) / static_cast<float>(k.P);
        return is_ring ? ring_sum(k, c, c, true) : direct_sum(k, c, true);
    case Collective::reduce_scatter:
        return is_ring || k.is("hierarchy") ? ring_sum(k, c, (c + 1) % k.P, false)
                                            : direct_sum(k, c, false);
    case Collective::all_gather: return quantize(k.in[c][c], c, 0);
    case Collective::send: return quantize(k.in[k.root][c], k.root, 0);
    case Collective::gather: return c == k.root ? k.in[c][c] : quantize(k.in[c][c], c, 0);
    default: break;
    }
    const uint32_t ordinal = k.is("direct") ? (c + k.P - k.root - 1) % k.P : c;
    return quantize(k.in[k.root][c], k.root, ordinal);
}

float expected_on(const Case &k, uint32_t c, uint32_t rank) {
    if (k.collective == Collective::all_to_all) return expected_part(k, c, rank);
    return is_prefix(k.collective) ? expected_prefix(k, rank) : expected(k, c);
}

void check_outputs(const Case &k, const ScheduleTwin &twin) {
    for (uint32_t rank = 0; rank < k.P; rank++)
        for (uint32_t c = 0; c < twin.outputs(rank).size(); c++) {
            const Team team{.size = k.P, .rank = rank, .root = k.root};
            if (!has_slot(k.collective, team, output(c))) continue;
            CHECK_EQ(twin.outputs(rank)[c], expected_on(k, c, rank));
        }
}

} // namespace

static void sums_are_the_contracts() {
    for (const Algorithm &algorithm : algorithms())
        for (const Collective collective : collectives_of(algorithm))
            for (const uint32_t P : {1U, 2U, 3U, 5U, 8U})
                for (const ScheduleForm form : {ScheduleForm::placed, ScheduleForm::joined}) {
                    const uint32_t root = P / 2;
                    const auto schedules = make_all(form, algorithm, collective, P, root);
                    const Values in = twin_inputs(P, schedules[0].chunks);
                    const Case k{algorithm, collective, P, root, in};
                    ScheduleTwin twin(schedules, in);
                    CHECK(twin.run_in_order());
                    check_outputs(k, twin);
                    for (uint32_t seed = 0; seed < 3; seed++) {
                        ScheduleTwin shuffled(schedules, in);
                        CHECK(shuffled.run_in_any_order(seed));
                        check_outputs(k, shuffled);
                    }
                }
}

// All other ranks have the same bits, whatever the owners keep.
static void exact_owners_change_their_own_results_alone() {
    for (const Algorithm &algorithm : algorithms())
        for (const Collective collective : owned_collectives_of(algorithm))
            for (const uint32_t P : {2U, 3U, 5U, 8U}) {
                const uint32_t root = P / 2;
                const auto schedules = make_all(ScheduleForm::joined, algorithm, collective, P,
                                                root, nullptr, OwnerKeeps::exact);
                const Values in = twin_inputs(P, schedules[0].chunks);
                const Case k{algorithm, collective, P, root, in};
                ScheduleTwin twin(schedules, in);
                CHECK(twin.run_in_any_order(P));
                for (uint32_t rank = 0; rank < P; rank++)
                    for (uint32_t c = 0; c < schedules[0].chunks; c++) {
                        const uint32_t owner = row_of(collective).gathers ? c : root;
                        CHECK_EQ(twin.outputs(rank)[c],
                                 rank == owner ? in[owner][c] : expected(k, c));
                    }
            }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_value_is_encoded_once),
        QTEST(what_was_sent_is_read_as_it_was_sent),
        QTEST(the_owner_keeps_what_it_gives),
        QTEST(an_owner_may_keep_its_values),
        QTEST(what_comes_is_passed_on_as_it_came),
        QTEST(a_hop_decodes_adds_and_encodes),
        QTEST(adding_to_what_was_sent_starts_from_its_bytes),
        QTEST(what_is_common_goes_on_from_its_bytes),
        QTEST(ranges_stay_one_step_where_nothing_was_encoded),
        QTEST(what_nobody_is_sent_may_be_added_as_encoded),
        QTEST(what_is_sent_too_is_encoded_once),
        QTEST(encodes_are_numbered_in_order),
        QTEST(what_is_on_its_way_inside_keeps_its_tier),
        QTEST(own_slots_are_given_back),
        QTEST(nonsense_is_refused),
        QTEST(sums_are_the_contracts),
        QTEST(exact_owners_change_their_own_results_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
