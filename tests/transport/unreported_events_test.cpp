// Tests transport/remote_endpoint: a rank that waits does not go to sleep behind an event that it
// has not looked at yet, and does not sleep on when another thread takes the event. Rank 0 counts
// how often its network is armed, which comes before a sleep.
#include "transport_ways.hpp"

#include <sys/eventfd.h>

#include <functional>
#include <utility>

using namespace qccl;
using namespace qtest;

namespace {

std::atomic<bool> hides_progress{false}; // rank 0's network reports events, but returns false
std::atomic<uint64_t> arms{0};
std::atomic<int> silent{-1}; // rank 0 polls this descriptor instead of the network's

NetworkModule watched_module() {
    NetworkModule module = memory_network::module;
    module.progress = [](NetworkEnd *end) {
        const bool has_moved = memory_network::progress(end);
        return has_moved && !(is_end_of(0, end) && hides_progress);
    };
    module.arm = [](NetworkEnd *end) {
        if (is_end_of(0, end)) arms++;
        return memory_network::arm(end);
    };
    module.descriptor = [](NetworkEnd *end) {
        const int instead = silent;
        return instead >= 0 && is_end_of(0, end) ? instead : memory_network::module.descriptor(end);
    };
    return module;
}

constexpr size_t bytes = Transport::long_message_bytes;

enum class Looks { before_wait, before_sleep };

// Rank 1 sends message 0 once rank 0 sleeps again and again. Rank 0 handles its arrival in `look`,
// before a wait or in one that is about to sleep: that wait must return before it arms.
void check_event(bool is_hidden, void (*look)(Transport &transport),
                 Looks when = Looks::before_wait) {
    static const NetworkModule module = watched_module();
    TransportOptions options;
    options.outbox_bytes = 2 * bytes;
    options.slots = 2;
    options.spin = 0ns; // a wait that spins returns without a sleep in any case
    hides_progress = false;
    run_ranks(
        Kind::inproc_apart, 2,
        [&](const Rank &plain) {
            Rank rank = plain;
            rank.options.remote.network = &module;
            std::function<void()> idle = [] {};
            rank.options.idle = [&] { idle(); };
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::ring));
            CHECK_OK(begin(*transport, call_number(2), 30s));
            if (rank.rank == 1) {
                rank.meeting.barrier();
                CHECK_OK(transport->send(0, {.instance = 0},
                                         MessageView{transport->outbox().data(), bytes, 0, 0},
                                         Transport::Sends::at_once));
                rank.meeting.barrier();
            } else {
                const WaitScope waiting(*transport);
                const auto is_here = [&] {
                    const auto view = transport->receive(1, {.instance = 0},
                                                         buffer_of_message(*transport, 0, bytes));
                    CHECK_OK(view);
                    if (*view) transport->release(**view);
                    return view->has_value();
                };
                CHECK(!is_here());
                for (const uint64_t before = arms; arms < before + 3;) CHECK_OK(transport->wait(1));
                hides_progress = is_hidden;
                uint64_t before = 0;
                bool has_come = false;
                const auto take = [&] {
                    if (std::exchange(has_come, true)) return;
                    rank.meeting.barrier();
                    rank.meeting.barrier();
                    before = arms;
                    look(*transport);
                };
                if (when == Looks::before_sleep) idle = take;
                if (when == Looks::before_wait) take();
                do {
                    CHECK_OK(transport->wait(1));
                } while (!has_come);
                idle = [] {};
                CHECK_EQ(arms, before);
                CHECK(is_here());
            }
            CHECK_OK(transport->end());
            rank.meeting.barrier();
        },
        options);
}

// UCX returns 0 from a look in which the last piece of a long message has come.
void an_event_counts_although_the_network_says_that_nothing_happened() {
    check_event(true, [](Transport &) {});
}

// A look for one message handles what has come for all.
void an_event_counts_although_a_receive_has_handled_it() {
    check_event(false, [](Transport &transport) {
        const auto other =
            transport.receive(1, {.instance = 1}, buffer_of_message(transport, 1, bytes));
        CHECK_OK(other);
        CHECK(!other->has_value());
    });
}

// A rank that waits long looks at the network while it asks others for their status.
void an_event_counts_although_it_came_right_before_the_sleep() {
    check_event(
        false, [](Transport &transport) { transport.progress(); }, Looks::before_sleep);
}

// Rank 1 is another thread of rank 0's process, which asks for the state of rank 0's communicator
// while rank 0 sleeps for as long as ranks do, and finds rank 0's message. Rank 0 polls a
// descriptor that never becomes readable, as the network's is not any more when the message has
// been found.
void a_rank_is_woken_when_another_thread_has_handled_its_event() {
    static const NetworkModule module = watched_module();
    static std::atomic<Transport *> waiting_rank{nullptr};
    constexpr uint64_t rounds = 5, naps = 8;
    constexpr auto half_a_nap = 25ms;
    TransportOptions options = small_options();
    options.spin = 0ns;
    hides_progress = false;
    const FileDescriptor never(eventfd(0, EFD_CLOEXEC));
    run_ranks(
        Kind::inproc_apart, 2,
        [&](const Rank &plain) {
            Rank rank = plain;
            rank.options.remote.network = &module;
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::ring));
            if (rank.rank == 0) waiting_rank = transport.get();
            rank.meeting.barrier();
            if (rank.rank == 0) silent = never.number();
            std::atomic<uint64_t> &least = rank.meeting.board[0], &asked = rank.meeting.board[1];
            if (rank.rank == 0) least = ~uint64_t{0};
            for (uint64_t call = 2; call < 2 + rounds; call++) {
                CHECK_OK(begin(*transport, call_number(call), 30s));
                const uint64_t before = arms;
                rank.meeting.barrier();
                if (rank.rank == 0) {
                    const auto view = receive(*transport, 1);
                    CHECK_OK(view);
                    least = std::min<uint64_t>(least, since_ticks(asked).count());
                    transport->release(*view);
                } else {
                    await([&] { return arms >= before + naps; });
                    CHECK_OK(send(*transport, 0, *free_view(*transport)));
                    asked = now_ticks();
                    CHECK(!waiting_rank.load()->failure());
                }
                rank.meeting.barrier();
                CHECK_OK(transport->end());
            }
            rank.meeting.barrier();
            if (rank.rank == 0) silent = -1;
            CHECK(Clock::duration(least) < half_a_nap);
            rank.meeting.barrier();
        },
        options);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(an_event_counts_although_the_network_says_that_nothing_happened),
        QTEST(an_event_counts_although_a_receive_has_handled_it),
        QTEST(an_event_counts_although_it_came_right_before_the_sleep),
        QTEST(a_rank_is_woken_when_another_thread_has_handled_its_event),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
