// Tests no_choice() of lib/base/text: the error for a wrong name lists the possible names, also
// after a very long text.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"

#include <array>

using namespace qccl;

struct Row {
    const char *name;
    int number;
};
static constexpr std::array<Row, 3> table{{{"ring", 1}, {"direct", 2}, {"oneshot", 3}}};

static std::string said(std::string_view text, const Names &possible) {
    const Error error = no_choice("algorithm", text, possible);
    CHECK(error.code == Code::invalid_argument);
    return error.text;
}

static void what_is_possible_is_listed() {
    CHECK_EQ(said("star", names_of(table)),
             "algorithm is \"star\"; possible are ring, direct, oneshot");
    CHECK_EQ(said("star", {"ring"}), "algorithm is \"star\"; possible is ring");
    CHECK_EQ(said("", {"ring", "direct"}), "algorithm is \"\"; possible are ring, direct");
    CHECK_EQ(listed(names_of(table)), "ring, direct, oneshot");
    CHECK_EQ(listed({}), "");
}

static void a_long_text_is_cut() {
    const std::string sentence = said(std::string(5000, 'x'), names_of(table));
    CHECK(sentence.ends_with("xxx\"; possible are ring, direct, oneshot"));
}

// Names may be parts of longer texts, without a terminating zero.
static void texts_need_no_end() {
    const std::string_view list = "star,ring";
    CHECK_EQ(said(list.substr(0, 4), {"ring"}), "algorithm is \"star\"; possible is ring");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_possible_is_listed),
        QTEST(a_long_text_is_cut),
        QTEST(texts_need_no_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
