// Tests transport/remote_endpoint: a rank that waits does not go to sleep behind an event that it
// has not looked at yet. Rank 0 counts how often its network is armed, which comes before a sleep.
#include "transport_ways.hpp"

#include <functional>
#include <utility>

using namespace qccl;
using namespace qtest;

namespace {

std::atomic<bool> hides_progress{false}; // rank 0's network reports events, but returns false
std::atomic<uint64_t> arms{0};

NetworkModule watched_module() {
    NetworkModule module = memory_network::module;
    module.progress = [](NetworkEnd *end) {
        const bool has_moved = memory_network::progress(end);
        return has_moved && !(end == &end_of(0) && hides_progress);
    };
    module.arm = [](NetworkEnd *end) {
        if (end == &end_of(0)) arms++;
        return memory_network::arm(end);
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

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(an_event_counts_although_the_network_says_that_nothing_happened),
        QTEST(an_event_counts_although_a_receive_has_handled_it),
        QTEST(an_event_counts_although_it_came_right_before_the_sleep),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
