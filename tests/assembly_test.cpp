// bootstrap/assembly: members who do what a rank of this release never does are stopped by the
// server, and named to all.
#include "qtest.hpp"

#include "bootstrap/assembly.hpp"

using namespace qccl;
using namespace std::chrono_literals;

static constexpr TimePoint now{std::chrono::hours(1)};

static Assembly some_assembly(uint32_t joined, uint32_t size) {
    Assembly assembly(now, 30s);
    for (uint32_t rank = 0; rank < joined; rank++)
        CHECK_OK(assembly.join({.rank = rank, .size = size}, "somewhere"));
    return assembly;
}

static void check_failed(const Assembly &assembly, int32_t rank, const std::string &sentence) {
    CHECK(assembly.failure().has_value());
    CHECK_EQ(std::string(assembly.failure()->text), sentence);
    CHECK_EQ(assembly.failure()->rank, rank);
}

static void who_contributes_before_all_are_here_is_named() {
    Assembly assembly = some_assembly(2, 3);
    CHECK(!assembly.is_complete());
    assembly.contribute(1, {}, now);
    check_failed(assembly, 1, "rank 1 came to an exchange too early");
    CHECK(!assembly.take_result());
}

static void who_contributes_too_much_is_named() {
    const std::vector<std::byte> most(most_contributed_bytes);
    Assembly fits = some_assembly(2, 2);
    fits.contribute(0, most, now);
    fits.contribute(1, most, now);
    CHECK(!fits.failure());
    CHECK_EQ(fits.take_result()->size(), 2 * most.size());

    Assembly too_much = some_assembly(2, 2);
    too_much.contribute(1, std::vector<std::byte>(most.size() + 1), now);
    check_failed(too_much, 1, "rank 1 gives 1048577 bytes to an exchange: too many");

    // What one may give is too much where so many do.
    constexpr uint32_t many = most_gathered_bytes / most_contributed_bytes + 1;
    Assembly too_many = some_assembly(many, many);
    CHECK(too_many.is_complete());
    too_many.contribute(2, most, now);
    check_failed(too_many, 2, "rank 2 gives 1048576 bytes to an exchange: too many");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(who_contributes_before_all_are_here_is_named),
        QTEST(who_contributes_too_much_is_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
