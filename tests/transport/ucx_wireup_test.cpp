// Tests lib/transport/ucx: of two network ends over UCX in one process, one goes away at any moment
// of the wire-up. The other lives on, and reports that its peer is lost if it still talks to it.
#include "tests/kit/qtest.hpp"
#include "transport/network.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using namespace qccl;

namespace {

#ifdef QCCL_UCX_MODULE

// What has been reported to one end.
struct Told {
    int messages = 0, sent = 0, fetched = 0, lost = 0;
    std::string last;
    RendezvousHandle *handle = nullptr; // of the last rendezvous message
};

NetworkEvents telling(Told &told) {
    return {
        .context = &told,
        .on_message =
            [](void *context, const void *head, size_t head_bytes, const void *, size_t,
               RendezvousHandle *handle) {
                auto &to = *static_cast<Told *>(context);
                to.messages++;
                to.handle = handle;
                to.last.assign(static_cast<const char *>(head), head_bytes);
            },
        .on_sent = [](void *context, uint64_t) { static_cast<Told *>(context)->sent++; },
        .on_pulled = [](void *context, uint64_t, bool) { static_cast<Told *>(context)->fetched++; },
        .on_peer_lost = [](void *context, uint32_t,
                           const char *) { static_cast<Told *>(context)->lost++; }};
}

struct Pair {
    std::array<Told, 2> told;
    std::array<Network, 2> ends;

    Pair() {
        const auto module = load_network_module(QCCL_UCX_MODULE);
        CHECK_OK(module);
        for (uint32_t own = 0; own < 2; own++) {
            const NetworkSettings settings{.own = own,
                                           .peers = 2,
                                           .peer_timeout_ns = 10'000'000'000,
                                           .transports = "tcp",
                                           .devices = "lo"};
            auto end = Network::open(**module, settings, telling(told[own]));
            CHECK_OK(end);
            ends[own] = std::move(*end);
        }
        for (uint32_t own = 0; own < 2; own++) ends[own].add_peer(1 - own, ends[1 - own].address());
    }

    void say(uint32_t from, std::string_view words) {
        (void)ends[from].post(1 - from, std::as_bytes(std::span(words)), {}, true, 1);
    }
};

void a_network_that_is_not_there_is_refused_by_name() {
    const auto module = load_network_module(QCCL_UCX_MODULE);
    CHECK_OK(module);
    struct Wish {
        const char *transports, *devices, *said;
    };
    for (const Wish &wish :
         {Wish{"tcp", "nowhere0", "QCCL_UCX_TLS=tcp and QCCL_UCX_DEVICES=nowhere0"},
          Wish{nullptr, "nowhere0", "with QCCL_UCX_DEVICES=nowhere0: "},
          Wish{"nothing", nullptr, "with QCCL_UCX_TLS=nothing: "},
          Wish{"shm", nullptr, "with QCCL_UCX_TLS=shm: "}}) {
        Told told;
        const NetworkSettings settings{.own = 0,
                                       .peers = 2,
                                       .peer_timeout_ns = 10'000'000'000,
                                       .transports = wish.transports,
                                       .devices = wish.devices};
        const auto end = Network::open(**module, settings, telling(told));
        CHECK(!end);
        CHECK(std::string(end.error().text).find(wish.said) != std::string::npos);
    }
}

constexpr int all_words = 20000; // calls of progress() in which what comes usually has come

// Lets the ends progress until `has_come`, for 20 seconds at most. On a busy machine the kernel may
// deliver late what it carries from one socket to another.
template <class Condition> bool comes(std::span<Network> ends, Condition has_come) {
    const auto end_of_time = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!has_come()) {
        if (std::chrono::steady_clock::now() > end_of_time) return false;
        for (Network &end : ends) end.progress();
    }
    return true;
}

// Lets the ends progress for a while, so that what must not come would be seen.
void let_come(std::span<Network> ends) {
    for (int look = 0; look < all_words; look++)
        for (Network &end : ends) end.progress();
}

void words_arrive_in_their_order_from_both() {
    Pair pair;
    for (const char *const words : {"one", "two", "three"})
        for (uint32_t from = 0; from < 2; from++) pair.say(from, words);
    CHECK(
        comes(pair.ends, [&] { return pair.told[0].messages >= 3 && pair.told[1].messages >= 3; }));
    let_come(pair.ends);
    for (const Told &told : pair.told) {
        CHECK_EQ(told.messages, 3);
        CHECK_EQ(told.last, std::string("three"));
        CHECK_EQ(told.lost, 0);
    }
}

void whoever_stays_outlives_the_other() {
    int lost = 0;
    for (const int looks :
         {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 30, 40, 60, 100, 300, 1000})
        for (uint32_t leaves = 0; leaves < 2; leaves++)
            for (const bool both_speak : {false, true}) {
                Pair pair;
                pair.say(0, "hello");
                if (both_speak) pair.say(1, "hello");
                for (int look = 0; look < looks; look++)
                    pair.ends[(leaves + static_cast<uint32_t>(look)) % 2].progress();
                pair.ends[leaves] = Network();
                for (int look = 0; look < all_words && !pair.told[1 - leaves].lost; look++)
                    pair.ends[1 - leaves].progress();
                lost += pair.told[1 - leaves].lost;
            }
    CHECK(lost > 0);
}

// UCX ends a request at once if it is made on a broken connection. pull() must not report that,
// because its caller may be in the middle of changing what the report changes, too.
void a_fetch_from_who_has_gone_is_told_of_by_progress() {
    const std::vector<std::byte> data(size_t{1} << 20);
    std::vector<std::byte> buffer(data.size());
    int told_at_once = 0, told = 0;
    for (const int looks : {0, 1, 2, 3, 5, 10, 100, 1000}) {
        Pair pair;
        const NetworkPart part{data.data(), data.size()};
        (void)pair.ends[0].post(1, std::as_bytes(std::span("large")), std::span(&part, 1), false,
                                1);
        CHECK(comes(pair.ends, [&] { return pair.told[1].handle != nullptr; }));
        pair.ends[0] = Network();
        for (int look = 0; look < looks; look++) pair.ends[1].progress();
        pair.ends[1].pull(pair.told[1].handle, buffer, 1);
        told_at_once += pair.told[1].fetched;
        CHECK(comes(std::span(pair.ends).last(1), [&] { return pair.told[1].fetched != 0; }));
        told += pair.told[1].fetched;
    }
    CHECK_EQ(told_at_once, 0);
    CHECK_EQ(told, 8);
}

void a_stranger_is_not_listened_to() {
    Pair pair;
    Pair others;
    // Another pair's end 0 has the address of this pair's end 1, but with a wrong secret before it.
    auto address = pair.ends[1].address();
    address[0] ^= std::byte{1};
    others.ends[0].add_peer(1, address);
    others.say(0, "wrong");
    for (int look = 0; look < all_words; look++) {
        others.ends[0].progress();
        pair.ends[1].progress();
    }
    CHECK_EQ(pair.told[1].messages, 0);
    pair.say(0, "right");
    CHECK(comes(pair.ends, [&] { return pair.told[1].messages != 0; }));
    let_come(pair.ends);
    CHECK_EQ(pair.told[1].messages, 1);
    CHECK_EQ(pair.told[1].last, std::string("right"));
}

#endif

} // namespace

int main() {
#ifdef QCCL_UCX_MODULE
    const CMUnitTest tests[] = {
        QTEST(words_arrive_in_their_order_from_both),
        QTEST(whoever_stays_outlives_the_other),
        QTEST(a_fetch_from_who_has_gone_is_told_of_by_progress),
        QTEST(a_stranger_is_not_listened_to),
        QTEST(a_network_that_is_not_there_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
#else
    std::puts("skipped: built without UCX");
    return 77;
#endif
}
