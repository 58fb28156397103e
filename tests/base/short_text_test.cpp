// Tests hash_text() and shortened() of lib/base/text: hashes are the published ones, a text that
// fits is unchanged, and longer texts that differ still differ after shortening.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"

using namespace qccl;

static void hashes_are_those_of_fnv_1a() {
    // The published 64-bit values.
    CHECK_EQ(hash_text(""), 0xCBF29CE484222325ULL);
    CHECK_EQ(hash_text("a"), 0xAF63DC4C8601EC8CULL);
    CHECK_EQ(hash_text("foobar"), 0x85944171F73967E8ULL);
}

static void what_fits_stays() {
    const std::string text(40, 'x');
    CHECK_EQ(shortened("", 20), "");
    CHECK_EQ(shortened(text, 40), text);
    CHECK_EQ(shortened(text, 41), text);
}

static void what_does_not_fit_keeps_its_beginning_and_its_identity() {
    const std::string text = "minmax:" + std::string(60, '1'), other = text + "2";
    CHECK_EQ(shortened("foobarfoobarfoobarfoobar", 20).substr(0, 4), "foo~");
    CHECK_EQ(shortened(text, 39).size(), 39U);
    CHECK_EQ(shortened(text, 39).substr(0, 23), text.substr(0, 22) + "~");
    CHECK(shortened(text, 39) != shortened(other, 39));
    CHECK_EQ(shortened(text, 39), shortened(text, 39));
    CHECK_EQ(shortened(text, 17).substr(0, 1), "~");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(hashes_are_those_of_fnv_1a),
        QTEST(what_fits_stays),
        QTEST(what_does_not_fit_keeps_its_beginning_and_its_identity),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
