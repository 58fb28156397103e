// Tests located() of lib/comm/comm: the wording of a communicator's errors.
#include "comm/comm.hpp"
#include "tests/kit/qtest.hpp"

using namespace qccl;

namespace {

Error no_memory(int32_t rank = Error::no_rank) {
    return Error::make(Code::system_error, "no memory").at_rank(rank);
}

void a_failure_names_its_call_and_its_rank() {
    const Error error = located(no_memory(), {.collective = 3, .number = 7, .tag = 0}, 2);
    CHECK_EQ(std::string(error.text), std::string("rank 2: broadcast, call 7: no memory"));
    CHECK_EQ(error.rank, 2);
}

void a_failure_of_another_rank_stays_that_one_s() {
    const Error error = located(no_memory(1), {.collective = 3, .number = 7, .tag = 0}, 2);
    CHECK_EQ(std::string(error.text), std::string("broadcast, call 7: no memory"));
    CHECK_EQ(error.rank, 1);
}

// Such an error occurs for example when calls are confirmed before the communicator ends.
void a_failure_outside_every_call_names_none() {
    CHECK_EQ(std::string(located(no_memory(), {}, 2).text), std::string("rank 2: no memory"));
    CHECK_EQ(std::string(located(no_memory(1), {}, 2).text), std::string("no memory"));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_failure_names_its_call_and_its_rank),
        QTEST(a_failure_of_another_rank_stays_that_one_s),
        QTEST(a_failure_outside_every_call_names_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
