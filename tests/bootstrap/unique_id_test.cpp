// Tests pack() and unpack() of bootstrap/rendezvous_protocol: unpacking a unique id gives what was
// packed, and no changed byte goes unnoticed.
#include "tests/kit/qtest.hpp"

#include "bootstrap/rendezvous_protocol.hpp"

#include <algorithm>
#include <cstring>

#include <sodium.h>

using namespace qccl;

static Endpoint some_endpoint(AddressFamily family, int first) {
    Endpoint endpoint{family, 4711, {}};
    for (size_t i = 0; i < (family == AddressFamily::ipv4 ? 4 : 16); i++)
        endpoint.address[i] = std::byte(static_cast<size_t>(first) + i);
    return endpoint;
}

static IdFields some_fields(const std::vector<AddressFamily> &families) {
    IdFields fields;
    for (const AddressFamily family : families)
        fields.endpoints.push_back(
            some_endpoint(family, 1 + 16 * static_cast<int>(fields.endpoints.size())));
    std::fill(fields.secret.begin(), fields.secret.end(), std::byte{0x5A});
    return fields;
}

constexpr AddressFamily v4 = AddressFamily::ipv4, v6 = AddressFamily::ipv6;

// Returns the id with a right checksum, as a program that knows the format could make it.
static UniqueId with_fitting_checksum(UniqueId id) {
    constexpr size_t checksum_bytes = 16;
    auto *bytes = reinterpret_cast<unsigned char *>(id.data());
    crypto_generichash(bytes + id.size() - checksum_bytes, checksum_bytes, bytes,
                       id.size() - checksum_bytes, nullptr, 0);
    return id;
}

static void check_same(const IdFields &got, const std::vector<Endpoint> &expected,
                       const Secret &secret) {
    CHECK(got.secret == secret);
    CHECK_EQ(got.endpoints.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        CHECK(got.endpoints[i].is_same_host(expected[i]));
        CHECK_EQ(got.endpoints[i].port, 4711);
    }
}

static void what_is_packed_is_unpacked() {
    for (const auto &families :
         {std::vector{v4}, std::vector{v6}, std::vector{v4, v6}, std::vector{v6, v4, v4, v6, v4},
          std::vector{v6, v6, v6, v6}, std::vector<AddressFamily>(13, v4)}) {
        const IdFields fields = some_fields(families);
        const auto again = unpack(pack(fields));
        CHECK_OK(again);
        check_same(*again, fields.endpoints, fields.secret);
    }
}

// The best endpoints come first. A short endpoint may still fit where a longer one does not.
static void what_has_no_room_is_left_out() {
    const IdFields fields = some_fields({v6, v6, v6, v4, v6, v4});
    const auto again = unpack(pack(fields));
    CHECK_OK(again);
    std::vector<Endpoint> fitting = fields.endpoints;
    fitting.erase(fitting.begin() + 4);
    check_same(*again, fitting, fields.secret);
}

static void every_changed_byte_is_noticed() {
    const UniqueId sound = pack(some_fields({v4, v6}));
    for (size_t i = 0; i < sound.size(); i++) {
        UniqueId changed = sound;
        changed[i] ^= std::byte{0x10};
        const auto refused = unpack(changed);
        CHECK(!refused);
        CHECK(refused.error().code == Code::invalid_argument);
        const std::string_view said = refused.error().text;
        CHECK(said.find(i < 8    ? "was not made by QCCL"
                        : i < 10 ? "different releases"
                                 : "is damaged") != std::string_view::npos);
    }
}

// The ids of the previous release and of a later one.
static void other_versions_are_refused_by_name() {
    for (const unsigned version : {1U, 3U}) {
        UniqueId other = pack(some_fields({v4}));
        other[8] = std::byte(version);
        const auto refused = unpack(with_fitting_checksum(other));
        CHECK(!refused);
        CHECK_EQ(std::string(refused.error().text),
                 "the unique id has version " + std::to_string(version) +
                     ", this library knows version 2: the ranks run different releases of QCCL");
        CHECK_EQ(refused.error().expected, int64_t{2});
        CHECK_EQ(refused.error().got, int64_t{version});
    }
}

// Bytes that this version leaves empty must be empty, because another version may use them.
static void what_is_not_known_is_refused() {
    const UniqueId sound = pack(some_fields({v4, v6}));
    CHECK_OK(unpack(with_fitting_checksum(sound)));
    constexpr size_t first_address = 12, behind_the_last = first_address + 5 + 17;
    for (const size_t reserved : {behind_the_last + 1, size_t{79}}) {
        UniqueId newer = sound;
        newer[reserved] = std::byte{1};
        CHECK(!unpack(with_fitting_checksum(newer)));
    }
    for (const unsigned family : {0U, 5U}) {
        UniqueId other_family = sound;
        other_family[first_address] = std::byte(family);
        CHECK(!unpack(with_fitting_checksum(other_family)));
    }
    UniqueId without_end = sound; // an address that reaches into the secret
    without_end[79] = std::byte{6};
    for (size_t at = behind_the_last; at + 5 <= 79; at += 5) without_end[at] = std::byte{4};
    CHECK(!unpack(with_fitting_checksum(without_end)));
    CHECK(!unpack(pack(IdFields{})));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_packed_is_unpacked),    QTEST(what_has_no_room_is_left_out),
        QTEST(every_changed_byte_is_noticed), QTEST(other_versions_are_refused_by_name),
        QTEST(what_is_not_known_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
