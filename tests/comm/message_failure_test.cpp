// Tests api/call/message_call: a message that ends because the communicator has failed has the
// error of the communicator, also if this rank hears of that later than of the end.
#include "tests/kit/qtest.hpp"

#include "api/call/entry.hpp"
#include "api/call/message_call.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

using namespace qccl;
using namespace std::chrono_literals;

namespace {

const Error ended = Error::make(Code::revoked, "the communicator of this channel has failed");

struct World {
    std::vector<qcclComm_t> ranks;
    explicit World(int size) : ranks(static_cast<size_t>(size)) {
        CHECK_EQ(qcclCommInitAll(ranks.data(), size, nullptr), qcclSuccess);
    }
    ~World() {
        for (const qcclComm_t rank : ranks) qcclCommAbort(rank);
    }
    CommRef rank(size_t number) const {
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
    const World world(2);
    const CommRef first = world.rank(0), second = world.rank(1);
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
    const World world(2);
    const auto start = std::chrono::steady_clock::now();
    const Error error = settled(world.rank(1));
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    CHECK(error.code == Code::revoked);
    CHECK(std::strstr(error.text, "between rank 0 (0 here) and rank 1 (1 here)") != nullptr);
}

// A channel numbers its two ranks from 0 on. A sentence of the channel's own waits is about ranks
// of the communicator already.
void an_error_of_a_channel_names_ranks_of_the_communicator(Code code, const char *text,
                                                           const char *shown) {
    const World world(4);
    const CommRef rank = world.rank(2);
    std::thread peer([&] { CHECK_OK(world.rank(3)->pairs().open(2, true, 10s)); });
    const auto opened = rank->pairs().open(3, false, 10s);
    peer.join();
    CHECK_OK(opened);
    (*opened)->comm->fail(Error::make(code, "%s", text).at_rank(1));
    const Done done = rank->pairs().finalize();
    CHECK(!done);
    CHECK(done.error().code == code);
    CHECK_EQ(done.error().rank, 3);
    CHECK_EQ(std::string(done.error().text), shown);
}

void errors_of_channels_name_ranks_of_the_communicator() {
    an_error_of_a_channel_names_ranks_of_the_communicator(
        Code::system_error, "rank 1 has no memory",
        "between rank 2 (0 here) and rank 3 (1 here): rank 1 has no memory");
    for (const Code code : {Code::timeout, Code::peer_lost, Code::mismatch})
        an_error_of_a_channel_names_ranks_of_the_communicator(code, "rank 3 died", "rank 3 died");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_failure_that_comes_later_counts),
        QTEST(without_a_failure_the_end_counts_soon),
        QTEST(errors_of_channels_name_ranks_of_the_communicator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
