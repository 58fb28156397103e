// Tests parted_at() and split_specs() of lib/base/text: specs are split at their first mark, and
// lists only where an item starts a new spec.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"

using namespace qccl;

static void the_first_mark_parts() {
    const auto check = [](std::string_view text, std::string_view before, std::string_view behind,
                          bool is_marked) {
        const Parted parted = parted_at(text, ':');
        CHECK(parted.before == before);
        CHECK(parted.behind == behind);
        CHECK_EQ(parted.is_marked, is_marked);
    };
    check("tree:shape=double", "tree", "shape=double", true);
    check("a:b:c", "a", "b:c", true);
    check("tree:", "tree", "", true);
    check(":", "", "", true);
    check("tree", "tree", "", false);
    check("", "", "", false);
}

static void an_item_with_a_key_alone_continues_the_one_before() {
    using Items = std::vector<std::string>;
    CHECK(split_specs("ring") == Items({"ring"}));
    CHECK(split_specs("tree,shape=double,ring") == Items({"tree:shape=double", "ring"}));
    CHECK(split_specs("x:a=1,b=2,tree:shape=double") == Items({"x:a=1,b=2", "tree:shape=double"}));
    CHECK(split_specs("shape=double,ring") == Items({"shape=double", "ring"}));
    CHECK(split_specs("ring,") == Items({"ring", ""}));
    CHECK(split_specs("") == Items({""}));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_first_mark_parts),
        QTEST(an_item_with_a_key_alone_continues_the_one_before),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
