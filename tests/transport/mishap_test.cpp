// Tests the transport with faults injected at one rank, over threads and over processes: late or
// reordered messages change nothing, and a rank that gives up at any operation is named.
#include "faulty_transport.hpp"
#include "transport_ways.hpp"

#include <random>

using namespace qccl;
using namespace qtest;

namespace {

// A rank sees each message only with a probability of one third at each look, so messages show late
// and out of order.
template <Kind kind> void what_comes_late_changes_nothing() {
    run_ranks(kind, 4, [](const Rank &rank) {
        std::minstd_rand random(rank.rank + 1);
        FaultyTransport transport(
            create(rank), {.holds = [&](uint32_t, MessageTag) { return random() % 3 != 0; }});
        for (uint64_t call = 1; call <= 24; call++)
            CHECK_OK(run(transport, call_number(call), call % 2 ? Way::ring : Way::mailbox));
        // The ranks leave together, because a rank that has left counts as one whose messages have
        // all arrived.
        rank.meeting.barrier();
    });
}

constexpr uint64_t calls = 2;
constexpr uint32_t quitter = 1;

// Returns the number of operations that the quitter has begun when it ends, or when it gives up at
// the n-th.
template <Kind kind> uint64_t give_up_at(uint64_t n, Way way) {
    const Shared<Meeting> meeting(3U);
    run_ranks(*meeting, kind, [&](const Rank &rank) {
        uint64_t operations = 0;
        Faults faults;
        if (rank.rank == quitter)
            faults.before = [&](const char *) -> Done {
                if (++operations != n) return {};
                return Error::make(Code::internal_error, "given up");
            };
        FaultyTransport transport(create(rank), faults);
        Done done;
        uint64_t call = 0;
        while (done && call < calls) done = run(transport, call_number(++call), way);
        if (rank.rank == quitter) {
            rank.meeting.board[0] = operations;
            CHECK_EQ(done.is_ok(), operations < n);
        } else if (!done) {
            // The sentence has the call of the rank that noticed it first.
            const std::string said = done.error().text;
            CHECK_EQ(done.error().rank, static_cast<int32_t>(quitter));
            CHECK(said.starts_with("rank 1 has left the communicator; all_reduce, call "));
            CHECK(said.ends_with(", waits for it"));
        }
    });
    return meeting->board[0];
}

template <Kind kind> void who_gives_up_at_any_operation_is_named() {
    for (const Way way : {Way::mailbox, Way::eager, Way::ring}) {
        uint64_t n = 1;
        while (give_up_at<kind>(n, way) == n) n++;
        CHECK(n > calls * 4);
    }
}

} // namespace

#define ON_BOTH(body) QTEST(body<Kind::inproc>), QTEST(body<Kind::shm>)

int main() {
    const CMUnitTest tests[] = {
        ON_BOTH(what_comes_late_changes_nothing),
        ON_BOTH(who_gives_up_at_any_operation_is_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
