// Tests the bootstraps of threads and over the caller's own all-gather: the gathered data is right,
// and a rank that does not come is named on every rank.
#include "tests/kit/rendezvous_kit.hpp"

#include <atomic>
#include <cstring>

using namespace kit;

static void threads_gather_in_rank_order() {
    for (const uint32_t size : {1U, 2U, 5U, 16U}) {
        const auto ranks = create_local_bootstraps(size, 30s);
        for (const Done &done : crowd(size, [&](uint32_t rank) -> Done {
                 CHECK_EQ(ranks[rank]->rank(), rank);
                 CHECK_EQ(ranks[rank]->size(), size);
                 for (uint32_t round = 0; round < 200; round++)
                     QCCL_TRY(exchange(*ranks[rank], round % 9, round));
                 return {};
             }))
            CHECK_OK(done);
    }
}

static void a_missing_thread_is_named() {
    const auto ranks = create_local_bootstraps(4, 200ms);
    const auto done = crowd(4, [&](uint32_t rank) -> Done {
        if (rank == 1 || rank == 3)
            return Error::make(Code::timeout, "ranks 1 and 3 of 4").at_rank(1);
        return exchange(*ranks[rank], 8, 0);
    });
    check_all_refused(done, Code::timeout, 1, "ranks 1 and 3 of 4");
    CHECK(contains(exchange(*ranks[1], 8, 0), "ranks 1 and 3 of 4 did not come within 0.2 s"));
}

static void a_thread_that_leaves_is_named() {
    const Timer timer;
    auto ranks = create_local_bootstraps(3, 30s);
    const auto done = crowd(3, [&](uint32_t rank) -> Done {
        if (rank != 2) return exchange(*ranks[rank], 8, 0);
        std::this_thread::sleep_for(50ms);
        ranks[2].reset();
        return Error::make(Code::peer_lost, "rank 2 left").at_rank(2);
    });
    check_all_refused(done, Code::peer_lost, 2, "rank 2 left");
    CHECK(timer.seconds() < 5);
}

static void threads_that_disagree_on_bytes_learn_it() {
    const auto ranks = create_local_bootstraps(3, 30s);
    std::atomic<int> turn = 0;
    const auto done = crowd(3, [&](uint32_t rank) -> Done {
        while (turn != static_cast<int>(rank)) std::this_thread::yield();
        std::thread next([&] {
            std::this_thread::sleep_for(50ms);
            turn++;
        });
        const Done mine = exchange(*ranks[rank], rank == 1 ? 24 : 8, 0);
        next.join();
        return mine;
    });
    check_all_refused(done, Code::mismatch, 1, "rank 1 gives 24 bytes to an exchange, rank 0 8");
    CHECK_EQ(done[2].error().expected, int64_t{8});
    CHECK_EQ(done[2].error().got, int64_t{24});
}

static void the_callers_all_gather_serves() {
    struct Caller {
        int status = 0;
        bool turns_ranks_round = false;
    };
    const auto two_ranks = [](const void *mine, void *all, size_t bytes, void *context) {
        const auto *caller = static_cast<const Caller *>(context);
        auto *to = static_cast<char *>(all);
        std::memset(to, 0x55, 2 * bytes);
        std::memcpy(caller->turns_ranks_round ? to : to + bytes, mine, bytes);
        return caller->status;
    };
    Caller caller;
    const auto bootstrap = create_oob_bootstrap(2, 1, two_ranks, &caller);
    CHECK_EQ(bootstrap->size(), 2U);
    const uint32_t mine = 7;
    uint32_t all[2] = {};
    CHECK_OK(bootstrap->all_gather(&mine, all, sizeof mine));
    CHECK_EQ(all[0], 0x55555555U);
    CHECK_EQ(all[1], 7U);
    caller.status = 42;
    CHECK(contains(bootstrap->all_gather(&mine, all, sizeof mine), "returned 42 on rank 1"));
    caller = {0, true};
    CHECK(contains(bootstrap->all_gather(&mine, all, sizeof mine), "in the place of rank 1"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(threads_gather_in_rank_order),  QTEST(a_missing_thread_is_named),
        QTEST(a_thread_that_leaves_is_named), QTEST(threads_that_disagree_on_bytes_learn_it),
        QTEST(the_callers_all_gather_serves),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
