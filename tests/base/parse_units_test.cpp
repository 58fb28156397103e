// Tests the parsers of numbers in lib/base/text: the accepted spellings of sizes, counts, durations
// and rates, and the refused ones.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"

using namespace qccl;
using namespace std::chrono_literals;

static void sizes_take_units() {
    CHECK(parse_bytes("0") == 0U);
    CHECK(parse_bytes("4096") == 4096U);
    CHECK(parse_bytes("64K") == 65536U);
    CHECK(parse_bytes("64k") == 65536U);
    CHECK(parse_bytes("3MiB") == 3U << 20);
    CHECK(parse_bytes("2GB") == uint64_t{2} << 30);
    CHECK(parse_bytes("1.5K") == 1536U);
    CHECK(parse_bytes("0.5M") == 1U << 19);
    CHECK(parse_bytes("1.3K") == 1331U);
    CHECK(parse_bytes("1.5GiB") == 3U << 29);
    CHECK(parse_bytes("7.9") == 7U);
    CHECK(parse_bytes("2.K") == 2048U);
    CHECK(parse_bytes("18446744073709551615") == UINT64_MAX);
    CHECK(parse_bytes("16777215T") == uint64_t{16777215} << 40);
    for (const char *bad :
         {"", "K", "-1", "+1", ".5K", "1.5.2K", "1,5K", "1e3", "inf", "99999999999.0G", "1Q",
          "1KB2", "1 K", "16777216T", "0x10", "18446744073709551616"})
        CHECK(!parse_bytes(bad));
}

static void counts_are_digits() {
    CHECK(parse_count("17") == 17U);
    for (const char *bad : {"", "1K", "-1", " 1", "1 "}) CHECK(!parse_count(bad));
}

static void durations_take_units() {
    CHECK(parse_duration("30") == 30s);
    CHECK(parse_duration("0") == 0s);
    CHECK(parse_duration("1.5s") == 1500ms);
    CHECK(parse_duration("500ms") == 500ms);
    CHECK(parse_duration("20us") == 20us);
    CHECK(parse_duration("7ns") == 7ns);
    CHECK(parse_duration("2m") == 2min);
    CHECK(parse_duration("1h") == 1h);
    for (const char *bad :
         {"", "s", "-1", "+1", "inf", "nan", "1 s", "1x", "1e300h", "1e3", "99999999999999999999h"})
        CHECK(!parse_duration(bad));
}

static void rates_are_bits_a_second() {
    CHECK(parse_rate("10gbit") == 1'250'000'000U);
    CHECK(parse_rate("2.5gbit") == 312'500'000U);
    CHECK(parse_rate("100mbit") == 12'500'000U);
    CHECK(parse_rate("8bit") == 1U && parse_rate("0kbit") == 0U);
    for (const char *same :
         {"100G", "100g", "100Gbit", "100gbit", "100Gbps", "100Gb/s", "100Gbit/s", "100000M",
          "0.1T", "12.5GB/s", "12.5GBps", "12500000KB/s"})
        CHECK_EQ(parse_rate(same).value_or(0), 12'500'000'000U);
    for (const char *bad : {"", "10", "gbit", "-1gbit", "10 gbit", "1e9tbit", "G", "10GB", "10GBPS",
                            "10GiB/s", "10GG", "10/s", "1.5.5G", ".G", "10Gbits"})
        CHECK(!parse_rate(bad));
}

static void decimals_are_counted() {
    const auto read = [](const char *text) { return parse_decimal(text, 3); };
    CHECK(read("2.5") == 2500U && read("0.001") == 1U && read("7") == 7000U &&
          read("1.250") == 1250U);
    CHECK(parse_decimal("12", 0) == 12U && parse_decimal("0.000001", 6) == 1U);
    for (const char *text : {"", ".", "1.", ".5", "1.2345", "-1", "+1", "1e3", "1.2.3", " 1", "1,5",
                             "18446744073709551616", "1.-5"})
        CHECK(!read(text));
    CHECK_EQ(write_decimal(2500, 3), "2.5");
    CHECK_EQ(write_decimal(1, 3), "0.001");
    CHECK_EQ(write_decimal(1000000, 3), "1000");
    CHECK_EQ(write_decimal(0, 6), "0");
    CHECK_EQ(write_decimal(30, 0), "30");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(decimals_are_counted), QTEST(sizes_take_units),        QTEST(counts_are_digits),
        QTEST(durations_take_units), QTEST(rates_are_bits_a_second),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
