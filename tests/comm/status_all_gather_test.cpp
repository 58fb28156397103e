// Tests StatusAllGather of lib/comm/creation_exchange: if a rank fails during creation, all ranks
// learn of the failure at their next exchange.
#include "tests/kit/qtest.hpp"

#include "bootstrap/bootstraps.hpp"
#include "comm/creation_exchange.hpp"

#include <functional>
#include <string>
#include <thread>

using namespace qccl;
using namespace std::chrono_literals;

// Runs body(rank, exchange) on a thread for each rank and returns the results by rank.
static std::vector<Done> run(uint32_t size,
                             const std::function<Done(uint32_t, StatusAllGather &)> &body) {
    auto bootstraps = create_local_bootstraps(size, 20s);
    std::vector<Done> dones(size);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; rank++)
        threads.emplace_back([&, rank] {
            const auto own = std::move(bootstraps[rank]);
            StatusAllGather exchange(*own);
            dones[rank] = body(rank, exchange);
        });
    for (std::thread &thread : threads) thread.join();
    return dones;
}

static void values_come_in_rank_order() {
    const auto dones = run(4, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        std::array<uint64_t, 4> all{};
        const uint64_t mine = rank * 10;
        QCCL_TRY(exchange.all_gather(&mine, all.data(), sizeof mine));
        CHECK(all == (std::array<uint64_t, 4>{0, 10, 20, 30}));
        return exchange.conclude({});
    });
    for (const Done &done : dones) CHECK_OK(done);
}

// One more byte than travels with the status takes a second all-gather.
static void values_of_any_size_arrive() {
    for (const size_t bytes : {StatusAllGather::most_in_one, StatusAllGather::most_in_one + 1}) {
        const auto dones = run(3, [&](uint32_t rank, StatusAllGather &exchange) -> Done {
            const std::vector<uint8_t> mine(bytes, static_cast<uint8_t>(rank + 1));
            std::vector<uint8_t> all(3 * bytes);
            QCCL_TRY(exchange.all_gather(mine.data(), all.data(), bytes));
            for (size_t i = 0; i < all.size(); i++) CHECK_EQ(uint64_t{all[i]}, i / bytes + 1);
            return exchange.conclude({});
        });
        for (const Done &done : dones) CHECK_OK(done);
    }
}

static void a_rank_that_has_failed_keeps_its_own_error() {
    const auto dones = run(3, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 0) return exchange.conclude({});
        return exchange.conclude(Error::make(Code::mismatch, "reason %u", rank));
    });
    CHECK_EQ(std::string(dones[0].error().text), "rank 1: reason 1");
    CHECK_EQ(std::string(dones[1].error().text), "reason 1");
    CHECK_EQ(std::string(dones[2].error().text), "reason 2");
    CHECK(dones[2].error().code == Code::mismatch);
}

// A rank that has lost another one returns the reason for which that one has left.
static void a_lost_rank_s_reason_is_returned() {
    const auto dones = run(2, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 0) return exchange.conclude(Error::make(Code::system_error, "no more files"));
        return exchange.conclude(Error::make(Code::peer_lost, "rank 0 has left").at_rank(0));
    });
    CHECK_EQ(std::string(dones[0].error().text), "no more files");
    CHECK_EQ(std::string(dones[1].error().text), "rank 0: no more files");
    CHECK_EQ(dones[1].error().rank, 0);
}

static void a_failure_is_heard_in_the_middle_of_the_others_work() {
    const auto dones = run(3, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 1) {
            const Done mine = Error::make(Code::system_error, "no memory here").compared(7, 9);
            const Done concluded = exchange.conclude(mine);
            CHECK(!concluded && concluded.error().code == Code::system_error);
            return exchange.conclude(concluded); // all ranks know: not sent twice
        }
        std::array<uint32_t, 3> all{};
        const Done gathered = exchange.all_gather(&rank, all.data(), sizeof rank);
        CHECK(!gathered);
        return exchange.conclude(gathered);
    });
    CHECK(dones[1].error().code == Code::system_error);
    for (const uint32_t rank : {0U, 2U}) {
        const Error &error = dones[rank].error();
        CHECK(error.code == Code::remote_error && error.rank == 1);
        CHECK(error.expected == 7 && error.got == 9);
        CHECK_EQ(std::string(error.text), "rank 1: no memory here");
    }
}

static void a_rank_is_not_named_twice() {
    const auto dones = run(2, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 0) return exchange.conclude({});
        return exchange.conclude(Error::make(Code::system_error, "rank 1: no more files"));
    });
    CHECK_EQ(std::string(dones[0].error().text), "rank 1: no more files");
}

static void different_work_is_noticed() {
    const auto dones = run(2, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        std::array<std::byte, 64> mine{}, all{};
        return exchange.all_gather(mine.data(), all.data(), rank == 0 ? 8 : 16);
    });
    for (const Done &done : dones) CHECK(!done && done.error().code == Code::mismatch);
}

static void a_rank_that_vanishes_ends_it() {
    const auto dones = run(3, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 2) return {};
        return exchange.conclude({});
    });
    for (const uint32_t rank : {0U, 1U}) {
        CHECK(!dones[rank] && dones[rank].error().code == Code::peer_lost);
        CHECK_EQ(dones[rank].error().rank, 2);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(values_come_in_rank_order),
        QTEST(values_of_any_size_arrive),
        QTEST(a_rank_that_has_failed_keeps_its_own_error),
        QTEST(a_lost_rank_s_reason_is_returned),
        QTEST(a_failure_is_heard_in_the_middle_of_the_others_work),
        QTEST(a_rank_is_not_named_twice),
        QTEST(different_work_is_noticed),
        QTEST(a_rank_that_vanishes_ends_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
