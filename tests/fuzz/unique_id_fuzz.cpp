// Fuzzes unpack() of bootstrap/rendezvous_protocol: an id that it accepts packs to the very same
// bytes, so that no byte of an id goes unread. The mutator below makes inputs that are nearly ids,
// with checksums that fit.
#include "bootstrap/rendezvous_protocol.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sodium.h>

using namespace qccl;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

static constexpr size_t checksum_bytes = 16;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    UniqueId id{};
    std::memcpy(id.data(), data, std::min(bytes, id.size()));
    const auto fields = unpack(id);
    if (fields)
        require(pack(*fields) == id, "an id that is accepted packs to another");
    else
        require(fields.error().code == Code::invalid_argument && fields.error().text[0] != 0,
                "a refusal without a sentence");
    if (fields) require(!text(fields->endpoints).empty(), "an address without a text");
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    bytes = LLVMFuzzerMutate(data, bytes, most);
    if (seed % 4 == 0 || most < unique_id_bytes) return bytes;
    // Keeps most of the mutation in one of the fields; the rest is valid.
    IdFields fields;
    for (unsigned i = 0; i <= seed / 4 % 8; i++)
        fields.endpoints.push_back(
            {seed >> i & 1 ? AddressFamily::ipv4 : AddressFamily::ipv6, 4711, {}});
    const UniqueId sound = pack(fields);
    const size_t kept_from = seed / 8 % unique_id_bytes, kept = seed / 1024 % 16;
    uint8_t made[unique_id_bytes];
    std::memcpy(made, sound.data(), sizeof made);
    for (size_t i = kept_from; i < std::min({kept_from + kept, bytes, sizeof made}); i++)
        made[i] = data[i];
    if (seed / 16384 % 4 != 0)
        crypto_generichash(made + sizeof made - checksum_bytes, checksum_bytes, made,
                           sizeof made - checksum_bytes, nullptr, 0);
    std::memcpy(data, made, sizeof made);
    return sizeof made;
}
