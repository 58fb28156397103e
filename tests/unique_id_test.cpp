// bootstrap/unique_id: an id says what was put into it, and no byte of it can be changed unnoticed.
#include "qtest.hpp"

#include "bootstrap/unique_id.hpp"

#include <algorithm>
#include <cstring>

#include <sodium.h>

using namespace qccl;

static IdFields some_fields(AddressFamily family) {
    IdFields fields{{family, 4711, {}}, {}};
    for (size_t i = 0; i < fields.endpoint.address.size(); i++)
        fields.endpoint.address[i] = std::byte(i + 1);
    std::fill(fields.secret.begin(), fields.secret.end(), std::byte{0x5A});
    return fields;
}

// What somebody could make who knows how ids are made.
static UniqueId with_fitting_checksum(UniqueId id) {
    constexpr size_t checksum_bytes = 16;
    auto *bytes = reinterpret_cast<unsigned char *>(id.data());
    crypto_generichash(bytes + id.size() - checksum_bytes, checksum_bytes, bytes,
                       id.size() - checksum_bytes, nullptr, 0);
    return id;
}

static void what_is_packed_is_unpacked() {
    for (const AddressFamily family : {AddressFamily::ipv4, AddressFamily::ipv6}) {
        const IdFields fields = some_fields(family);
        const auto again = unpack(pack(fields));
        CHECK_OK(again);
        CHECK(again->endpoint.family == family);
        CHECK_EQ(again->endpoint.port, 4711);
        CHECK(again->endpoint.address == fields.endpoint.address);
        CHECK(again->secret == fields.secret);
    }
}

static void every_changed_byte_is_noticed() {
    const UniqueId sound = pack(some_fields(AddressFamily::ipv4));
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

// Fields that this version leaves empty are not ignored where another one fills them.
static void what_is_not_known_is_refused() {
    const UniqueId sound = pack(some_fields(AddressFamily::ipv4));
    CHECK_OK(unpack(with_fitting_checksum(sound)));
    for (const size_t reserved : {size_t{14}, size_t{64}, size_t{111}}) {
        UniqueId newer = sound;
        newer[reserved] = std::byte{1};
        CHECK(!unpack(with_fitting_checksum(newer)));
    }
    UniqueId other_family = sound;
    other_family[10] = std::byte{5};
    CHECK(!unpack(with_fitting_checksum(other_family)));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_packed_is_unpacked),
        QTEST(every_changed_byte_is_noticed),
        QTEST(what_is_not_known_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
