// Tests StatusAllGather of lib/comm/creation: if a rank fails during creation, all ranks
// learn of the failure at their next exchange.
#include "tests/kit/qtest.hpp"
#include "tests/kit/rank_threads.hpp"

#include "bootstrap/bootstraps.hpp"
#include "comm/creation/status_all_gather.hpp"

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
    qtest::on_each_thread(size, [&](size_t rank) {
        const auto own = std::move(bootstraps[rank]);
        StatusAllGather exchange(*own);
        dones[rank] = body(static_cast<uint32_t>(rank), exchange);
    });
    return dones;
}

// Counts the all-gathers of one rank.
class CountedBootstrap final : public Bootstrap {
public:
    explicit CountedBootstrap(Bootstrap &inner) : inner_(inner) {}

    uint32_t rank() const override { return inner_.rank(); }
    uint32_t size() const override { return inner_.size(); }
    std::string means() const override { return inner_.means(); }
    Done all_gather(const void *mine, void *all, size_t bytes) override {
        count_++;
        if (count_ == failing_) return failure_;
        return inner_.all_gather(mine, all, bytes);
    }
    void fail_in(int number) { failing_ = number; }
    void fail_with(const Error &failure) { failure_ = failure; }
    int count() const { return count_; }

private:
    Bootstrap &inner_;
    int count_ = 0, failing_ = 0;
    Error failure_ = Error::make(Code::timeout, "in vain");
};

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

// A rank may have left because a third one has died, which the bootstrap then knows.
static void the_death_for_which_a_lost_rank_has_left_is_returned() {
    const Error death = Error::make(Code::peer_lost, "rank 2 died").at_rank(2);
    for (const int64_t lost : {int64_t{0}, int64_t{2}, int64_t{Error::no_rank}}) {
        const auto bootstraps = create_local_bootstraps(1, 20s);
        CountedBootstrap failing(*bootstraps[0]);
        failing.fail_in(1);
        failing.fail_with(death);
        StatusAllGather exchange(failing);
        const Done own = Error::make(Code::peer_lost, "a rank left").at_rank(lost);
        CHECK_EQ(std::string(exchange.conclude(own).error().text),
                 lost == 0 ? "rank 2 died" : "a rank left");
    }
    const auto bootstraps = create_local_bootstraps(1, 20s);
    CountedBootstrap failing(*bootstraps[0]);
    failing.fail_in(1);
    failing.fail_with(death);
    StatusAllGather exchange(failing);
    const Done own = Error::make(Code::system_error, "no more files").at_rank(0);
    CHECK_EQ(std::string(exchange.conclude(own).error().text), "no more files");
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

// Once a rank knows that all know of a failure, it exchanges nothing more: the other ranks would
// not come.
static void nothing_is_exchanged_after_a_failure() {
    constexpr size_t many = StatusAllGather::most_in_one + 1;
    struct Case {
        const char *what;
        bool fails;       // rank 0 concludes with an error of its own
        bool other_fails; // rank 1 does
        size_t bytes;     // that rank 0 gathers
        int failing;      // the all-gather of the bootstrap that fails; 0: none
        int all_gathers;  // as counted on rank 0
    };
    for (const Case &each : {Case{"own error", true, false, 8, 0, 2},
                             Case{"error of another rank", false, true, 8, 0, 1},
                             Case{"another size", false, false, 16, 0, 1},
                             Case{"bootstrap fails", false, false, 8, 1, 1},
                             Case{"bootstrap fails at a long one", false, false, many, 2, 2}}) {
        const auto bootstraps = create_local_bootstraps(2, 20s);
        CountedBootstrap counted(*bootstraps[0]);
        counted.fail_in(each.failing);
        std::thread other([&] {
            CountedBootstrap own(*bootstraps[1]);
            if (each.failing == 2) own.fail_in(2); // neither rank waits for the other
            StatusAllGather exchange(own);
            std::vector<std::byte> mine(many), all(2 * many);
            if (each.other_fails)
                (void)exchange.conclude(Error::make(Code::system_error, "no memory"));
            else if (each.failing != 1)
                (void)exchange.all_gather(mine.data(), all.data(), each.failing == 2 ? many : 8);
            if (each.fails) (void)exchange.conclude({});
        });
        StatusAllGather exchange(counted);
        std::vector<std::byte> mine(many), all(2 * many);
        Done done = exchange.all_gather(mine.data(), all.data(), each.bytes);
        if (each.fails) done = exchange.conclude(Error::make(Code::system_error, "no memory"));
        CHECK(!done);
        const Error error = done.error();
        for (int i = 0; i < 2; i++) {
            const Done concluded = exchange.conclude(error);
            CHECK(!concluded);
            CHECK_EQ(std::string(concluded.error().text), std::string(error.text));
        }
        other.join();
        CHECK_EQ(std::string(each.what) + std::to_string(counted.count()),
                 std::string(each.what) + std::to_string(each.all_gathers));
    }
}

// The error that a rank has told keeps the rank at fault, and its sentence can be shown.
static void a_told_error_names_its_rank_and_is_printable() {
    const auto dones = run(3, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank != 1) return exchange.conclude({});
        Error error = Error::make(Code::timeout, "bell: rank 2 is late").at_rank(2);
        error.text[0] = '\a';
        return exchange.conclude(error);
    });
    for (const uint32_t rank : {0U, 2U}) {
        CHECK_EQ(dones[rank].error().rank, 2);
        CHECK_EQ(std::string(dones[rank].error().text), "rank 1: ?ell: rank 2 is late");
    }
}

// A rank that has lost another one without knowing which keeps its own error.
static void a_loss_without_a_rank_is_its_own_reason() {
    const auto dones = run(2, [](uint32_t rank, StatusAllGather &exchange) -> Done {
        if (rank == 0) return exchange.conclude(Error::make(Code::system_error, "no more files"));
        return exchange.conclude(Error::make(Code::peer_lost, "a rank has left"));
    });
    CHECK_EQ(std::string(dones[1].error().text), "a rank has left");
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
        QTEST(the_death_for_which_a_lost_rank_has_left_is_returned),
        QTEST(a_failure_is_heard_in_the_middle_of_the_others_work),
        QTEST(nothing_is_exchanged_after_a_failure),
        QTEST(a_told_error_names_its_rank_and_is_printable),
        QTEST(a_loss_without_a_rank_is_its_own_reason),
        QTEST(a_rank_is_not_named_twice),
        QTEST(different_work_is_noticed),
        QTEST(a_rank_that_vanishes_ends_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
