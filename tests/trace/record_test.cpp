// Tests trace/rank_record: what is read from records that are whole, torn, cut short, foreign or
// hostile, how the states of ranks are described, and which call is named as the first difference.
#include "tests/kit/qtest.hpp"

#include "trace/rank_record.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

using namespace qccl;

namespace {

using Bytes = std::vector<std::byte>;

CallDescriptor call_number(uint64_t number) {
    CallDescriptor call;
    call.call = number;
    call.count = 100;
    call.tag = number * 10;
    call.collective = Collective::all_reduce;
    std::strcpy(call.codec, "int8");
    std::strcpy(call.algorithm, "ring");
    return call;
}

template <class T> T *at(Bytes &bytes, size_t offset) {
    return reinterpret_cast<T *>(bytes.data() + offset);
}

RecordedCall &slot(Bytes &bytes, uint64_t number) {
    const auto calls = at<RecordHead>(bytes, 0)->calls;
    return at<RecordedCall>(bytes, RecordShape::calls_offset)[number % calls];
}

void put(Bytes &bytes, const CallDescriptor &call) {
    slot(bytes, call.call) = {.check = RecordedCall::check_of(call, call.hash()), .call = call};
}

// Returns the record of a rank that has begun `calls` calls and is in the last of them.
Bytes record(uint32_t rank, uint64_t calls, uint32_t kept = calls_recorded) {
    const RecordShape shape{.calls = kept, .local_ranks = 2};
    Bytes bytes(shape.bytes());
    *at<RecordHead>(bytes, 0) = {.magic = RecordHead::our_magic,
                                 .calls = kept,
                                 .bytes = shape.bytes(),
                                 .session = 7,
                                 .rank = rank,
                                 .ranks = 4,
                                 .local_ranks = 2,
                                 .pid = 4711,
                                 .name = "train"};
    for (uint64_t number = 1; number <= calls; number++) put(bytes, call_number(number));
    auto &state = *at<RecordedState>(bytes, RecordShape::state_offset);
    state.begun = calls;
    state.ended = calls - 1;
    at<RecordedProcess>(bytes, shape.processes_offset())[1] = {.rank = 3, .pid = 99};
    return bytes;
}

RankRecord parsed(const Bytes &bytes) {
    const auto records = parse_records(bytes);
    CHECK_OK(records);
    CHECK_EQ(records->size(), size_t{1});
    return records->front();
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

void the_last_calls_are_kept_and_no_others() {
    const RankRecord found = parsed(record(1, 1000));
    CHECK_EQ(found.calls.size(), size_t{calls_recorded});
    CHECK_EQ(found.calls.front().call, uint64_t{1000 - calls_recorded + 1});
    CHECK_EQ(found.calls.back().call, uint64_t{1000});
    CHECK(!found.find(744) && found.find(745) && !found.find(1001));
    CHECK_EQ(std::string(found.head.name), "train");
    CHECK_EQ(found.processes.at(1).pid, 99);
    CHECK_EQ(describe(*found.find(1000)),
             "call 1000: all_reduce, count 100, type float, op sum, codec int8, algorithm ring, "
             "root 0, tag 10000");
    // Calls without a root may have a hash of their counts in its place.
    CallDescriptor call = *found.find(1000);
    call.root = 77;
    CHECK(contains(describe(call), ", root 0, "));
    call.collective = Collective::reduce;
    CHECK(contains(describe(call), ", root 77, "));
}

void a_process_with_many_ranks_keeps_fewer() {
    CHECK_EQ(RecordShape::calls_of(0), calls_recorded);
    CHECK_EQ(RecordShape::calls_of(256), calls_recorded);
    CHECK_EQ(RecordShape::calls_of(257), 128U);
    CHECK_EQ(RecordShape::calls_of(1 << 16), 16U);
    CHECK_EQ(parsed(record(0, 100, 16)).calls.size(), size_t{16});
}

void calls_that_are_half_written_are_left_out() {
    Bytes bytes = record(0, 10);
    slot(bytes, 4).call.count++;
    slot(bytes, 5).call.tag++;
    slot(bytes, 6) = slot(bytes, 7); // belongs in another slot
    const RankRecord found = parsed(bytes);
    CHECK_EQ(found.calls.size(), size_t{7});
    CHECK(!found.find(4) && !found.find(5) && !found.find(6) && found.find(7));
}

void a_file_may_hold_several() {
    Bytes file = record(0, 3);
    const Bytes second = record(1, 2);
    file.insert(file.end(), second.begin(), second.end());
    const Bytes unwritten(second.size());
    file.insert(file.end(), unwritten.begin(), unwritten.end());
    const auto records = parse_records(file);
    CHECK_OK(records);
    CHECK_EQ(records->size(), size_t{2});
    CHECK_EQ((*records)[1].head.rank, 1U);
}

void what_is_no_record_is_refused() {
    const struct {
        std::function<void(Bytes &)> damage;
        const char *sentence;
    } cases[] = {
        {[](Bytes &bytes) { bytes.resize(100); }, "too short"},
        {[](Bytes &bytes) { bytes.resize(bytes.size() - 1); }, "cut short"},
        {[](Bytes &bytes) { bytes[0] ^= std::byte{1}; }, "no record"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->version = 3; }, "version 3"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->calls = UINT32_MAX; }, "damaged"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->calls = 0; }, "damaged"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->local_ranks = UINT32_MAX; }, "damaged"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->bytes = 0; }, "damaged"},
        {[](Bytes &bytes) { at<RecordHead>(bytes, 0)->rank = 4; }, "damaged"},
    };
    for (const auto &each : cases) {
        Bytes bytes = record(0, 3);
        each.damage(bytes);
        const auto records = parse_records(bytes);
        CHECK(!records && contains(records.error().text, each.sentence));
    }
    CHECK(parse_records({})->empty());
}

void texts_end_and_can_be_shown() {
    Bytes bytes = record(0, 1);
    std::memset(at<RecordHead>(bytes, 0)->name, 0x1B, sizeof RecordHead{}.name);
    CallDescriptor call = call_number(1);
    std::memset(call.codec, '\n', sizeof call.codec);
    call.collective = static_cast<Collective>(-9);
    call.type = static_cast<DataType>(99);
    put(bytes, call);
    const RankRecord found = parsed(bytes);
    CHECK_EQ(std::string(found.head.name), std::string(sizeof found.head.name - 1, '?'));
    CHECK(contains(describe(found.calls.at(0)), "collective -9, count 100, type ?"));
}

void the_first_difference_is_named() {
    std::vector<Bytes> files{record(0, 20), record(1, 19), record(3, 20)};
    const auto difference = [&] {
        std::vector<RankRecord> records;
        for (const Bytes &file : files) records.push_back(parsed(file));
        return first_difference(records);
    };
    CHECK_EQ(difference(), "");
    CallDescriptor call = call_number(18);
    call.tag = 5;
    put(files[2], call);
    CHECK_EQ(difference(), "rank 3 calls all_reduce with tag 5, rank 0 with tag 180, in call 18");
    call = call_number(12);
    call.count = 99;
    put(files[1], call);
    CHECK_EQ(difference(),
             "rank 1 calls all_reduce with count 99, rank 0 with count 100, in call 12");
    CHECK_EQ(first_difference({}), "");
}

// Ranks in call 17 that wait for the given rank, and ranks in no call after call 16.
RankState waiting(uint32_t rank, uint32_t on, uint64_t call = 17) {
    RankState state{.rank = rank, .begun = call, .ended = call - 1};
    state.call = call_number(call);
    state.wait = Wait(on);
    return state;
}
RankState idle(uint32_t rank) {
    RankState state{.rank = rank, .begun = 16, .ended = 16};
    state.call = call_number(16);
    return state;
}

void ranks_are_grouped_by_whom_they_wait_for_in_the_end() {
    std::vector<RankState> ring;
    for (uint32_t rank = 0; rank < 64; rank++) ring.push_back(waiting(rank, (rank + 63) % 64));
    ring[5] = idle(5);
    ring[9].process = RankState::Process::stopped;
    const auto sentences = summarize(ring);
    CHECK_EQ(sentences.size(), size_t{4});
    CHECK_EQ(sentences[0], "ranks 0-4, 10-63 wait in call 17 (all_reduce) for rank 9");
    CHECK_EQ(sentences[1], "rank 5 is in no call since call 16 (all_reduce)");
    CHECK_EQ(sentences[2], "ranks 6-8 wait in call 17 (all_reduce) for rank 5");
    CHECK_EQ(sentences[3], "rank 9 waits in call 17 (all_reduce) for rank 5, and is stopped");
    CHECK_EQ(one_sentence(sentences, 1000).size(), sentences[0].size() + sentences[1].size() +
                                                       sentences[2].size() + sentences[3].size() +
                                                       6);
    CHECK_EQ(one_sentence(sentences, 110), sentences[0] + "; " + sentences[1] + "; ...");
    CHECK(one_sentence(sentences, 109) == sentences[0] + "; ...");
    CHECK_EQ(one_sentence(sentences, 3), "...");
}

RankState in_message(uint32_t rank, uint32_t on, WaitPhase phase) {
    RankState state = idle(rank);
    state.wait = Wait(on, phase);
    return state;
}

void deadlocks_of_messages_are_named() {
    const auto receives = WaitPhase::receive, sends = WaitPhase::send;
    // Of two ranks, one of which waits in a call; the others wait for them.
    const std::vector<RankState> mixed{waiting(0, 1), in_message(1, 2, receives), waiting(2, 0),
                                       waiting(3, 2), in_message(4, 1, sends)};
    auto said = summarize(mixed);
    CHECK_EQ(said.size(), size_t{4});
    CHECK_EQ(said[0], "ranks 0-2 wait for each other");
    CHECK_EQ(said[1], "ranks 0, 2, 3 wait in call 17 (all_reduce) for rank 1");
    CHECK_EQ(said[2], "rank 1 waits to receive from rank 2");
    CHECK_EQ(said[3], "rank 4 waits to send to rank 1");
    CHECK_EQ(describe(mixed[1]), "waits to receive from rank 2, for 0.0 s");
    // Nobody waits for each other where the chain ends, at a rank that goes on or is stopped.
    CHECK_EQ(summarize(std::vector{in_message(0, 1, receives), idle(1)})[0],
             "rank 0 waits to receive from rank 1");
    std::vector<RankState> stopped{in_message(0, 1, receives), in_message(1, 0, receives)};
    CHECK_EQ(summarize(stopped)[0], "ranks 0, 1 wait for each other");
    stopped[1].process = RankState::Process::stopped;
    said = summarize(stopped);
    CHECK_EQ(said[0], "rank 0 waits to receive from rank 1");
    CHECK_EQ(said[1], "rank 1 waits to receive from rank 0, and is stopped");
    // A cycle of calls alone is none: the states were read one after the other.
    CHECK_EQ(summarize(std::vector{waiting(0, 1), waiting(1, 0)}).size(), size_t{1});
}

// Follows the chain of every rank by itself, as a slow reference.
std::string awaited_slowly(const std::vector<RankState> &states, uint32_t rank) {
    const RankState *state = &states[rank];
    for (size_t hops = 0; hops <= states.size(); hops++) {
        const uint32_t on = state->wait->on;
        if (on == state->rank) break;
        if (on >= states.size() || !states[on].is_waiting())
            return "for rank " + std::to_string(on);
        state = &states[on];
    }
    return "for others to read";
}

// Draws chains, trees and cycles. Each rank is in a call of its own, which keeps the ranks'
// sentences apart.
void chains_end_where_following_each_ends() {
    std::mt19937 random(7);
    for (int trial = 0; trial < 300; trial++) {
        const auto ranks = static_cast<uint32_t>(1 + random() % 40);
        std::vector<RankState> states;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const auto on = static_cast<uint32_t>(random() % (ranks + 1));
            states.push_back(waiting(rank, on, 100 + rank));
            if (random() % 8 == 0) states.back().process = RankState::Process::stopped;
        }
        const auto said = summarize(states);
        CHECK_EQ(said.size(), size_t{ranks});
        for (uint32_t rank = 0; rank < ranks; rank++)
            CHECK_EQ(said[rank].substr(0, said[rank].find(", and is stopped")),
                     "rank " + std::to_string(rank) + " waits in call " +
                         std::to_string(100 + rank) + " (all_reduce) " +
                         awaited_slowly(states, rank));
    }
}

// Returns seconds, the best of several attempts, for chains and a cycle through all ranks.
double seconds_to_summarize(uint32_t ranks) {
    std::vector<RankState> chain, group;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        chain.push_back(waiting(rank, rank + 1));
        group.push_back(waiting(rank, (rank + 1) % ranks));
    }
    double best = 1e9;
    for (int attempt = 0; attempt < 5; attempt++) {
        const auto begin = std::chrono::steady_clock::now();
        CHECK_EQ(summarize(chain).size() + summarize(group).size(), size_t{2});
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        best = std::min(best, taken.count());
    }
    return best;
}

// Sixteen times the ranks take sixteen times as long. If each chain were followed by itself, they
// would take 256 times as long and more.
void many_ranks_are_summarized_in_linear_time() {
    const double few = seconds_to_summarize(256), many = seconds_to_summarize(4096);
    CHECK(many < 64 * few);
}

void every_state_has_its_words() {
    std::vector<RankState> states{waiting(0, 0), waiting(1, 2), waiting(2, 1), idle(3)};
    states[3].ended = 15;
    states.push_back(idle(4));
    states[4].has_left = true;
    states.push_back({.rank = 5});
    states.push_back(idle(6));
    states[6].process = RankState::Process::ended;
    states.push_back(idle(7));
    states[7].is_remote = true;
    states.push_back(waiting(8, 3));
    states[8].silent_ns = 5'000'000'000;
    states.push_back(waiting(9, 3));
    states[9].has_failed = true;
    states.push_back(waiting(10, 99));
    states.push_back(waiting(11, 98));
    states.back().call->collective = comm_split;
    const char *const sentences[] = {
        "ranks 0-2 wait in call 17 (all_reduce) for others to read",
        "rank 3 is busy in call 16 (all_reduce)",
        "rank 4 has left after call 16 (all_reduce)",
        "rank 5 is in no call before the first",
        "rank 6 has ended after call 16 (all_reduce)",
        "rank 7 was last heard of after call 16 (all_reduce)",
        "rank 8 waits in call 17 (all_reduce) for rank 3, but does not run",
        "rank 9 has failed in call 17 (all_reduce)",
        "rank 10 waits in call 17 (all_reduce) for rank 99",
        "rank 11 waits in call 17 (comm_split) for rank 98",
    };
    const auto said = summarize(states);
    CHECK_EQ(said.size(), std::size(sentences));
    for (size_t i = 0; i < said.size(); i++) CHECK_EQ(said[i], sentences[i]);
}

void a_wait_is_described_with_its_step() {
    Bytes bytes = record(1, 17);
    auto &state = *at<RecordedState>(bytes, RecordShape::state_offset);
    state.waits = 1;
    state.on = 2;
    state.phase = static_cast<uint64_t>(WaitPhase::message);
    state.step = 3, state.steps = 8;
    state.segment = 5, state.segments = 32;
    state.since_ns = 1'000'000'000;
    state.awake_ns = 13'200'000'000;
    const std::string where = "waits for a chunk of rank 2, step 3 of 8, segment 5 of 32, for ";
    CHECK_EQ(describe(parsed(bytes).rank_state(13'300'000'000)), where + "12.3 s");
    CHECK_EQ(describe(parsed(bytes).rank_state(std::nullopt)), where + "12.2 s");
    CHECK_EQ(describe(parsed(bytes).rank_state(16'000'000'000)),
             where + "15.0 s; has not run for 2.8 s");
    state.since_ns = INT64_MIN, state.awake_ns = INT64_MAX, state.phase = UINT64_MAX;
    state.on = UINT64_MAX, state.step = 0, state.segment = 0;
    CHECK_EQ(describe(parsed(bytes).rank_state(1)), "waits for rank 4294967295, for 0.0 s");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_last_calls_are_kept_and_no_others),
        QTEST(a_process_with_many_ranks_keeps_fewer),
        QTEST(calls_that_are_half_written_are_left_out),
        QTEST(a_file_may_hold_several),
        QTEST(what_is_no_record_is_refused),
        QTEST(texts_end_and_can_be_shown),
        QTEST(the_first_difference_is_named),
        QTEST(ranks_are_grouped_by_whom_they_wait_for_in_the_end),
        QTEST(every_state_has_its_words),
        QTEST(chains_end_where_following_each_ends),
        QTEST(deadlocks_of_messages_are_named),
        QTEST(many_ranks_are_summarized_in_linear_time),
        QTEST(a_wait_is_described_with_its_step),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
