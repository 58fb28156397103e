// Tests the bootstrap over the rendezvous: ranks join and exchange, and a rank that does not fit,
// comes late or never comes is named on every rank.
#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

using namespace kit;

static void ranks_meet_at_the_rendezvous() {
    for (const uint32_t size : {1U, 2U, 7U}) {
        const UniqueId id = make_id();
        for (const Done &done : crowd(size, [&](uint32_t rank) -> Done {
                 QCCL_TRY(const auto bootstrap, join_unique_id(id, size, rank, options()));
                 CHECK_EQ(bootstrap->rank(), rank);
                 CHECK_EQ(bootstrap->size(), size);
                 for (const size_t bytes : {0U, 1U, 100'000U, 8U, 0U, 1U << 20})
                     QCCL_TRY(exchange(*bootstrap, bytes, static_cast<uint32_t>(bytes)));
                 return {};
             }))
            CHECK_OK(done);
    }
}

static void sixty_four_ranks_take_well_under_a_second() {
    const UniqueId id = make_id();
    const Timer timer;
    for (const Done &done :
         crowd(64, [&](uint32_t rank) { return join_and_exchange(id, 64, rank); }))
        CHECK_OK(done);
    CHECK(timer.seconds() < 1.0);
}

static void too_many_bytes_are_refused() {
    const UniqueId id = make_id();
    const auto bootstrap = join_unique_id(id, 1, 0, options());
    CHECK_OK(bootstrap);
    CHECK(contains(exchange(**bootstrap, (1 << 20) + 1, 0), "are too many for the rendezvous"));
}

// Joins with the given ranks and sizes, one thread each, one shortly after the other.
static std::vector<Done> join_as(const std::vector<std::pair<uint32_t, uint32_t>> &rank_and_size) {
    const UniqueId id = make_id();
    return crowd(static_cast<uint32_t>(rank_and_size.size()), [&](uint32_t i) {
        std::this_thread::sleep_for(i * 100ms);
        const auto [rank, size] = rank_and_size[i];
        return join_and_exchange(id, size, rank);
    });
}

// The rank at index `culprit` of `done` must get invalid_argument, and all others remote_error.
static void check_culprit(std::vector<Done> done, size_t culprit, int32_t rank,
                          const std::string &words) {
    check_all_refused({done[culprit]}, Code::invalid_argument, rank, words);
    done.erase(done.begin() + static_cast<ptrdiff_t>(culprit));
    check_all_refused(done, Code::remote_error, rank, words);
}

static void ranks_that_do_not_fit_fail_everybody_at_once() {
    const Timer timer;
    auto done = join_as({{0, 4}, {2, 4}, {2, 4}});
    check_culprit(done, 2, 2, "two processes are rank 2 of 4: process ");

    done = join_as({{0, 4}, {3, 4}, {1, 5}});
    check_all_refused(done, Code::mismatch, 1, "says that there are 5 ranks, rank 0 says 4");
    CHECK_EQ(done[0].error().expected, int64_t{4});
    CHECK_EQ(done[0].error().got, int64_t{5});

    done = join_as({{0, 3}, {1, 3}, {3, 3}});
    check_culprit(done, 2, 3, "rank 3 of 3 (process ");
    CHECK(contains(done[0], "cannot be: ranks count from 0 to 2"));

    // The first rank to come is wrong, so every later one fails, too.
    done = join_as({{9, 2}, {0, 2}});
    check_culprit(done, 0, 9, "rank 9 of 2");
    done = join_as({{0, 0}});
    check_culprit(done, 0, 0, "says that there are 0 ranks");
    CHECK(timer.seconds() < 5);
}

static void one_too_many_does_not_disturb_a_complete_job() {
    const UniqueId id = make_id();
    const auto done = crowd(2, [&](uint32_t rank) -> Done {
        QCCL_TRY(const auto bootstrap, join_unique_id(id, 2, rank, options()));
        if (rank == 0)
            CHECK(contains(join_and_exchange(id, 2, 1), "two processes are rank 1 of 2"));
        return exchange(*bootstrap, 8, 0);
    });
    CHECK_OK(done[0]);
    CHECK_OK(done[1]);
}

static void a_rank_that_never_comes_is_named() {
    // Once the server's timeout ends first, and once that of the ranks.
    for (const bool server_is_first : {true, false}) {
        const Timer timer;
        const UniqueId id = make_id(options(server_is_first ? 300ms : 30s));
        const RendezvousOptions mine = options(server_is_first ? 30s : 300ms);
        const auto done =
            crowd(2, [&](uint32_t rank) { return join_and_exchange(id, 5, rank, mine); });
        check_all_refused(done, Code::timeout, 2, "ranks 2, 3 and 4 of 5");
        const std::string late = "ranks 2, 3 and 4 of 5 did not come within 0.3 s";
        CHECK(contains(done[0], late) || contains(done[1], late));
        CHECK(timer.seconds() * patience() > 0.25 && timer.seconds() < 3);
    }
}

static void a_rank_that_never_contributes_is_named() {
    // Once rank 0's timeout ends first, and once the server's.
    for (const bool server_is_first : {false, true}) {
        const UniqueId id = make_id(options(server_is_first ? 300ms : 30s));
        const auto done = crowd(3, [&](uint32_t rank) -> Done {
            const bool is_first = rank == 0 && !server_is_first;
            QCCL_TRY(const auto bootstrap,
                     join_unique_id(id, 3, rank, options(is_first ? 300ms : 30s)));
            if (rank == 1) std::this_thread::sleep_for(600ms);
            return exchange(*bootstrap, 8, 0);
        });
        const char *const late = "rank 1 of 3 did not come within 0.3 s";
        const char *const told = "rank 0 gave up waiting for rank 1 of 3";
        CHECK(contains(done[0], late));
        CHECK(contains(done[2], server_is_first ? late : told));
        CHECK(contains(done[1], server_is_first ? late : "rank 0 gave up"));
    }
}

// Ranks join late, and later one comes late to an exchange: each time the lowest of the waiting
// ranks warns for all.
static void late_ranks_cost_one_warning() {
    const UniqueId id = make_id();
    std::mutex mutex;
    std::vector<std::string> warnings;
    const auto done = crowd(5, [&](uint32_t rank) -> Done {
        RendezvousOptions mine = options();
        mine.warn_after = 200ms;
        mine.warn = [&, rank](const char *sentence) {
            const std::lock_guard lock(mutex);
            warnings.push_back(std::to_string(rank) + ": " + sentence);
        };
        if (rank == 2 || rank == 4) std::this_thread::sleep_for(800ms);
        QCCL_TRY(const auto bootstrap, join_unique_id(id, 5, rank, mine));
        if (rank == 0) std::this_thread::sleep_for(800ms);
        return exchange(*bootstrap, 8, 0);
    });
    for (const Done &one : done) CHECK_OK(one);
    CHECK_EQ(warnings.size(), size_t{2});
    CHECK_EQ(warnings[0], "0: waiting for ranks 2 and 4 of 5 (0.2 s so far)");
    CHECK_EQ(warnings[1], "1: waiting for rank 0 of 5 (0.2 s so far)");
}

// Returns the kind of the next message, for a rank whose protocol the test speaks itself.
static FrameKind next_kind(AuthenticatedChannel &rank) {
    for (;;) {
        const auto frame = rank.session.open(rank.channel.held(), most_gathered_bytes);
        CHECK_OK(frame);
        if (*frame) {
            const FrameKind kind = (*frame)->kind;
            rank.channel.drop((*frame)->whole_bytes);
            return kind;
        }
        const auto filled = rank.channel.fill(Session::wanted_bytes(rank.channel.held()));
        CHECK(filled != Channel::Filled::gone);
        if (filled == Channel::Filled::not_yet) wait_until(rank.channel, Clock::now() + 1s);
    }
}

static void say(AuthenticatedChannel &rank, FrameKind kind,
                std::span<const std::byte> payload = {}) {
    const Sealed sealed = rank.session.seal(kind, payload);
    rank.channel.queue(std::as_bytes(std::span(&sealed.head, 1)));
    rank.channel.queue(payload);
    rank.channel.queue(sealed.tag);
    CHECK(rank.channel.flush());
}

// An answer that comes too late would be taken for an answer to the next exchange.
static void who_asks_when_nobody_is_missing_gets_the_result_alone() {
    const UniqueId id = make_id();
    const auto fields = unpack(id);
    CHECK_OK(fields);
    const RendezvousOptions some = options();
    JoinAttempt attempt(fields->endpoints, some, Clock::now());
    auto met = introduce(fields->endpoints.front(), fields->secret, make_claim(0, 1), attempt);
    CHECK_OK(met);
    CHECK(met->has_value());
    AuthenticatedChannel &rank = **met;
    const std::array<std::byte, 8> bytes{};
    std::vector<FrameKind> kinds;
    for (int round = 0; round < 2; round++) {
        say(rank, FrameKind::contribute, bytes);
        say(rank, FrameKind::ask);
    }
    while (kinds.empty() || std::count(kinds.begin(), kinds.end(), FrameKind::result) < 2)
        kinds.push_back(next_kind(rank));
    CHECK_EQ(std::count(kinds.begin(), kinds.end(), FrameKind::missing), 0);
    say(rank, FrameKind::leave);
}

static void the_interface_can_be_chosen() {
    for (const char *interface : {"lo", "127.0.0.1", "", "::1"}) {
        RendezvousOptions some = options();
        some.interface = interface;
        const auto id = create_unique_id(some);
        if (!id && std::strcmp(interface, "::1") == 0) continue; // a machine without IPv6
        CHECK_OK(id);
        CHECK_OK(join_and_exchange(*id, 1, 0));
    }
    RendezvousOptions some = options();
    some.interface = "nosuch0";
    const auto id = create_unique_id(some);
    CHECK(!id && id.error().code == Code::invalid_argument);
    CHECK(
        std::string(id.error().text)
            .starts_with("QCCL_SOCKET_IFNAME: \"nosuch0\" is neither an address nor an interface"));
    CHECK(std::string(id.error().text).find("lo") != std::string::npos);
    some.interface = "0.0.0.0";
    CHECK(!create_unique_id(some));
    some.interface = "192.0.2.1"; // no interface has it
    CHECK(create_unique_id(some).error().code == Code::system_error);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(ranks_meet_at_the_rendezvous),
        QTEST(sixty_four_ranks_take_well_under_a_second),
        QTEST(too_many_bytes_are_refused),
        QTEST(ranks_that_do_not_fit_fail_everybody_at_once),
        QTEST(one_too_many_does_not_disturb_a_complete_job),
        QTEST(a_rank_that_never_comes_is_named),
        QTEST(a_rank_that_never_contributes_is_named),
        QTEST(late_ranks_cost_one_warning),
        QTEST(who_asks_when_nobody_is_missing_gets_the_result_alone),
        QTEST(the_interface_can_be_chosen),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
