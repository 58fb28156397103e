// Tests the numbers of perf/report/tool_files: a number stays within its columns, with as many
// decimals as nccl-tests keeps, and sizes and times get units.
#include "tests/kit/qtest.hpp"

#include "perf/report/tool_files.hpp"

#include <limits>

using namespace qccl::perf;

static void decimals_go_as_numbers_grow() {
    CHECK_EQ(fitted(0, 7), "   0.00");
    CHECK_EQ(fitted(1.234, 7), "   1.23");
    CHECK_EQ(fitted(1234.56, 7), "1234.56");
    CHECK_EQ(fitted(12345.6, 7), "12345.6");
    CHECK_EQ(fitted(1234567, 7), "1234567");
    CHECK_EQ(fitted(12345678, 7), "1.2e+07");
    CHECK_EQ(fitted(999.99, 6), "999.99");
    CHECK_EQ(fitted(1234567, 6), " 1e+06");
}

// Rounding may add a digit.
static void rounding_stays_in_the_columns() {
    for (const double value : {9.996, 99.996, 999.996, 9999.996, 99999.96, 999999.6, 9999999.6})
        for (const int width : {6, 7}) CHECK_EQ(fitted(value, width).size(), size_t(width));
    CHECK_EQ(fitted(std::numeric_limits<double>::max(), 7), "1.8e+308");
}

static void memory_has_units() {
    CHECK_EQ(memory_text(0), "0.00 B");
    CHECK_EQ(memory_text(1536), "1.50 KB");
    CHECK_EQ(memory_text(20.0 * 1048576), "20.0 MB");
    CHECK_EQ(memory_text(300.0 * 1073741824), "300 GB");
    CHECK_EQ(memory_text(0x1p60), "1048576 TB");
}

static void times_have_units() {
    CHECK_EQ(time_text(0), "0.00 ns");
    CHECK_EQ(time_text(9.994), "9.99 ns");
    CHECK_EQ(time_text(9.996), "10.0 ns");
    CHECK_EQ(time_text(99.96), "100 ns");
    CHECK_EQ(time_text(999.6), "1.00 us");
    CHECK_EQ(time_text(12345678), "12.3 ms");
    CHECK_EQ(time_text(5e12), "5000 s");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(decimals_go_as_numbers_grow),
        QTEST(rounding_stays_in_the_columns),
        QTEST(memory_has_units),
        QTEST(times_have_units),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
