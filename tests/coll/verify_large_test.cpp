// Tests lib/schedule/verify on large teams. It takes long and gigabytes, so it is kept apart from
// the quick tests. Each schedule is verified in its last form, which is made from the others, for
// 400 ranks, and two of them for 1000. QTEST_FULL=1 verifies all forms, for 1000 and 4096 ranks.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/verify.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>

using namespace qccl;

static const bool is_full = std::getenv("QTEST_FULL") != nullptr;
static const uint32_t many_ranks = is_full ? 1000 : 400, most_ranks = is_full ? 4096 : 1000;
static constexpr std::array before_joining{ScheduleForm::author, ScheduleForm::placed};

static void prove(const Algorithm &algorithm, Collective collective, uint32_t P,
                  ScheduleForm form) {
    const auto start = std::chrono::steady_clock::now();
    const Team team{.size = P, .root = P / 3};
    const auto verified = verify({collective, algorithm.order(team), P, team.root, algorithm.own()},
                                 [&](uint32_t rank) -> Result<Schedule> {
                                     return make(form, algorithm, collective,
                                                 {.size = P, .rank = rank, .root = team.root});
                                 });
    CHECK_OK(verified);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK_EQ(verified->rounds, algorithm.rounds(collective, team));
    std::printf("%s %s of %u ranks, %s: %.1f million steps in %.1f s\n", name(collective),
                spec(algorithm).c_str(), P,
                form == ScheduleForm::author   ? "as written"
                : form == ScheduleForm::placed ? "with a codec"
                                               : "joined",
                static_cast<double>(verified->steps) / 1e6, took.count());
}

static void prove_forms(const Algorithm &algorithm, Collective collective, uint32_t P,
                        std::span<const ScheduleForm> all) {
    for (const ScheduleForm form : is_full ? all : all.last(1))
        prove(algorithm, collective, P, form);
}

static void hundreds_of_ranks() {
    for (const Algorithm &algorithm : algorithms())
        for (const Collective collective : collectives_of(algorithm))
            prove_forms(algorithm, collective, many_ranks, forms);
}

static void a_ring_of_thousands() {
    prove_forms(algorithm_of("ring"), Collective::all_reduce, most_ranks, before_joining);
}

static void direct_among_thousands() {
    prove_forms(algorithm_of("direct"), Collective::all_reduce, most_ranks, before_joining);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(hundreds_of_ranks),
        QTEST(a_ring_of_thousands),
        QTEST(direct_among_thousands),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
