// Tests ProtocolOffer and SettingsDigest of lib/comm/creation: ranks whose settings do not
// fit together are refused when a communicator is created, with the same sentence on every rank.
#include "tests/kit/qtest.hpp"

#include "base/text.hpp"
#include "comm/creation/protocol_offer.hpp"
#include "comm/creation/settings_digest.hpp"

#include <string>
#include <vector>

using namespace qccl;

static std::vector<ProtocolOffer> offers(uint32_t size) {
    std::vector<ProtocolOffer> all(size);
    for (uint32_t rank = 0; rank < size; rank++) {
        all[rank].rank = rank;
        all[rank].size = size;
        all[rank].version = 100;
    }
    return all;
}

static std::string text(const Done &done) { return done ? "" : done.error().text; }

static void equal_ranks_agree() {
    const auto all = offers(3);
    CHECK_OK(check_offers(all));
    CHECK_OK(check_digests(std::vector<SettingsDigest>(3)));
}

static void a_common_protocol_is_enough() {
    auto all = offers(3);
    all[0].oldest = 1;
    all[0].newest = 7;
    all[1].oldest = all[1].newest = 5;
    all[2].oldest = 3;
    all[2].newest = 6;
    CHECK_OK(check_offers(all));
    all[2].oldest = 6;
    const auto refused = check_offers(all);
    CHECK(!refused && refused.error().code == Code::mismatch && refused.error().rank == 2);
    CHECK_EQ(std::string(refused.error().text),
             "protocol: rank 2 (version 100) speaks 6 to 6, rank 0 (version 100) speaks 1 to 7");
}

static void another_byte_order_is_refused() {
    auto all = offers(2);
    all[1].magic = __builtin_bswap64(all[1].magic);
    all[1].byte_order = __builtin_bswap32(all[1].byte_order);
    const auto refused = check_offers(all);
    CHECK(!refused && refused.error().rank == 1);
    CHECK_EQ(std::string(refused.error().text), "byte order: rank 1 has another one than rank 0");
}

static void what_is_no_offer_is_refused() {
    auto all = offers(2);
    all[1].magic++;
    const auto refused = check_offers(all);
    CHECK(!refused && refused.error().code == Code::mismatch && refused.error().rank == 1);
}

static void ranks_out_of_order_are_refused() {
    auto all = offers(3);
    std::swap(all[1], all[2]);
    const auto refused = check_offers(all);
    CHECK(!refused && refused.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(refused.error().text),
             "rank 1 of 3 came as rank 2 of 3; the all-gather must give contributions in rank "
             "order");
    all = offers(3);
    all[2].size = 4;
    CHECK(!check_offers(all));
}

static void each_field_is_compared_and_named() {
    struct Case {
        SettingsDigest::Text SettingsDigest::*field;
        const char *name;
    };
    for (const Case &each :
         {Case{&SettingsDigest::codec, "codec"}, Case{&SettingsDigest::algorithm, "algorithm"},
          Case{&SettingsDigest::plan, "QCCL_PLAN_FILE"},
          Case{&SettingsDigest::checksum, "QCCL_CHECKSUM"},
          Case{&SettingsDigest::reproducible, "reproducible"},
          Case{&SettingsDigest::segment, "QCCL_SEGMENT"},
          Case{&SettingsDigest::lanes, "QCCL_LANES"}, Case{&SettingsDigest::arena, "QCCL_ARENA"},
          Case{&SettingsDigest::oneshot_max, "QCCL_ONESHOT_MAX"},
          Case{&SettingsDigest::fusion, "fusion"},
          Case{&SettingsDigest::link_latency, "QCCL_LINK_LATENCY"},
          Case{&SettingsDigest::link_rate, "QCCL_LINK_RATE"},
          Case{&SettingsDigest::rack_rate, "QCCL_RACK_RATE"}}) {
        std::vector<SettingsDigest> all(4);
        SettingsDigest::set(all[2].*each.field, "this");
        SettingsDigest::set(all[3].*each.field, "that");
        const Done refused = check_digests(all);
        CHECK(!refused && refused.error().code == Code::mismatch && refused.error().rank == 2);
        CHECK(text(refused).starts_with(each.name));
        CHECK(text(refused).ends_with(
            ": rank 2 has \"this\", rank 0 has \"\"; all ranks need the same"));
    }
}

// Two spellings of the same value agree. If values differ, the sentence shows each rank's own
// spelling.
static void spellings_of_one_value_agree() {
    struct Case {
        SettingsDigest::Text SettingsDigest::*field;
        const char *one, *same, *other;
    };
    for (const auto &[field, one, same, other] :
         {Case{&SettingsDigest::segment, "256K", "262144", "1M"},
          Case{&SettingsDigest::lanes, "4", "04", "5"},
          Case{&SettingsDigest::arena, "16M", "16MiB", "auto"},
          Case{&SettingsDigest::oneshot_max, "2K", "2048", "2000"},
          Case{&SettingsDigest::link_latency, "30us", "0.03ms", "30ms"},
          Case{&SettingsDigest::link_rate, "100G", "12.5GB/s", "100mbit"},
          Case{&SettingsDigest::rack_rate, "40gbit", "5GB/s", "auto"}}) {
        std::vector<SettingsDigest> all(3);
        for (SettingsDigest &each : all) SettingsDigest::set(each.*field, one);
        SettingsDigest::set(all[1].*field, same);
        CHECK_OK(check_digests(all));
        SettingsDigest::set(all[2].*field, other);
        CHECK(text(check_digests(all))
                  .ends_with(std::string(": rank 2 has \"") + other + "\", rank 0 has \"" + one +
                             "\"; all ranks need the same"));
    }
    // A peer's text may fill the whole field.
    std::vector<SettingsDigest> all(2);
    all[1].link_rate.fill('9');
    CHECK(!check_digests(all));
}

static void places_are_told_by_node_host_and_rack() {
    struct Place {
        const char *node, *host, *rack;
    };
    const auto spots = [](const std::vector<Place> &places) {
        std::vector<SettingsDigest> all(places.size());
        for (size_t rank = 0; rank < places.size(); rank++) {
            SettingsDigest::set(all[rank].node, places[rank].node);
            SettingsDigest::set(all[rank].host, places[rank].host);
            SettingsDigest::set(all[rank].rack, places[rank].rack);
        }
        CHECK_OK(check_digests(all));
        return locations_of(all);
    };
    using Spots = std::vector<RankLocation>;
    CHECK(spots({{"", "a", ""}, {"", "a", ""}}).empty());
    CHECK(spots({{"0", "a", "r"}, {"0", "a", "r"}}).empty());
    CHECK(spots({{"0", "a", ""}, {"1", "a", ""}}) == Spots({{0, 0, 0}, {1, 0, 0}}));
    CHECK(spots({{"", "a", "r"}, {"", "b", "s"}, {"", "a", "r"}}) ==
          Spots({{0, 0, 0}, {0, 1, 1}, {0, 0, 0}}));
}

// If one rank has a spec from the communicator's config and another the same spec from the
// environment, the sentence says which.
static void quotes_hold_the_value_alone() {
    std::vector<SettingsDigest> all(2);
    SettingsDigest::set(all[0].codec, "int8");
    SettingsDigest::set(all[1].codec, "int8 by QCCL_CODEC");
    CHECK_EQ(text(check_digests(all)), "codec: rank 1 has \"int8\" by QCCL_CODEC, rank 0 has "
                                       "\"int8\"; all ranks need the same");
    std::swap(all[0], all[1]);
    CHECK_EQ(text(check_digests(all)), "codec: rank 1 has \"int8\", rank 0 has \"int8\" by "
                                       "QCCL_CODEC; all ranks need the same");
}

static void a_host_is_in_one_rack() {
    std::vector<SettingsDigest> all(4);
    for (const size_t rank : {1U, 3U}) {
        SettingsDigest::set(all[rank].host, "b");
        SettingsDigest::set(all[rank].rack, "east");
    }
    CHECK_OK(check_digests(all));
    SettingsDigest::set(all[3].rack, "west");
    const Done refused = check_digests(all);
    CHECK(!refused && refused.error().code == Code::mismatch && refused.error().rank == 3);
    CHECK_EQ(text(refused), "QCCL_RACK: rank 3 has \"west\", rank 1 on the same host has \"east\"");
}

static void ranks_on_gpus_are_counted() {
    std::vector<SettingsDigest> all(5);
    const char *const devices[] = {"host", "cuda:0", "cuda:0", "cuda:1", "cuda:0"};
    for (size_t rank = 0; rank < all.size(); rank++) {
        SettingsDigest::set(all[rank].device, devices[rank]);
        SettingsDigest::set(all[rank].host, "here");
    }
    CHECK_OK(check_digests(all)); // each rank has its own
    CHECK_EQ(gpus_of(all), 4U);
    CHECK_EQ(ranks_per_gpu_of(all), 3U);
    SettingsDigest::set(all[4].host, "there"); // where another GPU has the same name
    CHECK_EQ(ranks_per_gpu_of(all), 2U);
    for (SettingsDigest &rank : all) SettingsDigest::set(rank.device, "host");
    CHECK_EQ(gpus_of(all), 0U);
    CHECK_EQ(ranks_per_gpu_of(all), 0U);
}

static void long_texts_differ_in_their_ends() {
    const std::string a(100, 'x'), b = a + "y";
    std::vector<SettingsDigest> all(2);
    SettingsDigest::set(all[0].codec, a);
    SettingsDigest::set(all[1].codec, b);
    CHECK(!check_digests(all));
    SettingsDigest::set(all[1].codec, a);
    CHECK_OK(check_digests(all));
    // A peer's bytes without a terminating zero are shown up to the end of the field.
    all[1].codec.fill('h');
    CHECK(text(check_digests(all)).find(std::string(64, 'h') + "\"") != std::string::npos);
}

static void one_rank_warns_for_all_alike() {
    std::vector<SettingsDigest> all(5);
    all[1].warnings = all[3].warnings = hash_text("this");
    all[4].warnings = hash_text("that");
    CHECK_OK(check_digests(all));
    std::vector<bool> first;
    for (uint32_t rank = 0; rank < 5; rank++) first.push_back(is_first_to_warn(all, rank));
    CHECK(first == (std::vector<bool>{true, true, false, false, true}));
}

static void the_slowest_kernels_set_the_pace() {
    std::vector<SettingsDigest> all(3);
    for (SettingsDigest &each : all) each.codec_rates = CodecRates::of_tier("avx512");
    CHECK(slowest_codec_rates_of(all) == CodecRates::of_tier("avx512"));
    all[2].codec_rates = CodecRates({0.5F, 1000, 0.25F});
    const Codec codec = *parse_codec("int8");
    const CodecRate slowest = slowest_codec_rates_of(all).of(codec);
    const float decode = CodecRates::of_tier("avx512").of(codec).decode;
    CHECK(slowest == (CodecRate{0.5F, decode, 0.25F}));
    CHECK_OK(check_digests(all));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_slowest_kernels_set_the_pace),
        QTEST(equal_ranks_agree),
        QTEST(a_common_protocol_is_enough),
        QTEST(another_byte_order_is_refused),
        QTEST(what_is_no_offer_is_refused),
        QTEST(ranks_out_of_order_are_refused),
        QTEST(each_field_is_compared_and_named),
        QTEST(spellings_of_one_value_agree),
        QTEST(places_are_told_by_node_host_and_rack),
        QTEST(quotes_hold_the_value_alone),
        QTEST(a_host_is_in_one_rack),
        QTEST(ranks_on_gpus_are_counted),
        QTEST(long_texts_differ_in_their_ends),
        QTEST(one_rank_warns_for_all_alike),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
