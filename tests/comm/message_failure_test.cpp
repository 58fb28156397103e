// Tests api/call/message_call: a message that ends because the communicator has failed has the
// error of the communicator, also if this rank hears of that later than of the end.
#include "tests/kit/qtest.hpp"

#include "api/call/entry.hpp"
#include "api/call/message_call.hpp"

#include <chrono>
#include <cstring>
#include <thread>

using namespace qccl;
using namespace std::chrono_literals;

namespace {

const Error ended = Error::make(Code::revoked, "the communicator of this channel has failed");

struct Pair {
    qcclComm_t ranks[2] = {};
    Pair() { CHECK_EQ(qcclCommInitAll(ranks, 2, nullptr), qcclSuccess); }
    ~Pair() {
        for (const qcclComm_t rank : ranks) qcclCommDestroy(rank);
    }
    CommRef rank(int number) const {
        auto comm = take_comm(ranks[number]);
        CHECK_OK(comm);
        return std::move(*comm);
    }
};

Error settled(const CommRef &comm) {
    const MessageArguments given{.peer_name = "dest", .peer = 0, .sends = true};
    const Done done = settle_message(*comm, given, ended);
    CHECK(!done);
    return done.error();
}

void the_failure_that_comes_later_counts() {
    const Pair pair;
    const CommRef first = pair.rank(0), second = pair.rank(1);
    std::thread fails([&] {
        std::this_thread::sleep_for(100ms);
        first->fail(Error::make(Code::mismatch, "rank 0 calls scan").at_rank(0));
    });
    const Error error = settled(second);
    fails.join();
    CHECK(error.code == Code::mismatch);
    CHECK_EQ(std::string(error.text), "rank 0 calls scan");
}

void without_a_failure_the_end_counts_soon() {
    const Pair pair;
    const auto start = std::chrono::steady_clock::now();
    const Error error = settled(pair.rank(1));
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    CHECK(error.code == Code::revoked);
    CHECK(std::strstr(error.text, "between rank 0 (0 here) and rank 1 (1 here)") != nullptr);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_failure_that_comes_later_counts),
        QTEST(without_a_failure_the_end_counts_soon),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
