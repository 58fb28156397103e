// Tests nearest() of lib/base/text: it finds the name that is meant, and none if no name is
// similar.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"

using namespace qccl;

static const Names names{"codec", "codes", "ring", "direct"};

static std::string meant(std::string_view text, size_t most_edits) {
    return std::string(nearest(text, names, most_edits).value_or("nothing"));
}

static void the_nearest_is_meant() {
    CHECK_EQ(meant("ring", 0), "ring");
    CHECK_EQ(meant("rings", 1), "ring");
    CHECK_EQ(meant("rnig", 2), "ring");
    CHECK_EQ(meant("diret", 5), "direct");
    CHECK_EQ(meant("code", 1), "codec"); // the first of several
    CHECK_EQ(meant("codess", 3), "codes");
}

static void what_is_far_is_not_meant() {
    CHECK_EQ(meant("rings", 0), "nothing");
    CHECK_EQ(meant("rnig", 1), "nothing");
    CHECK_EQ(meant("", 3), "nothing");
    CHECK_EQ(meant("", 4), "ring");
    CHECK(!nearest("ring", {}, SIZE_MAX));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_nearest_is_meant),
        QTEST(what_is_far_is_not_meant),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
