// Fuzzes hostile messages of a rendezvous: first a hello or a greeting, then a stream of frames.
// Only frames that the other side has sealed are opened, whole and in order. Their content is read
// safely, because a holder of the secret may be another release, or broken.
#include "bootstrap/rendezvous_protocol.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace qccl;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

namespace {

constexpr size_t limit = 512;
constexpr Key key{std::byte{7}};

void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

void greet(std::span<const std::byte> bytes) {
    Hello hello;
    Challenge challenge;
    Proof proof;
    std::vector<std::byte> padded(bytes.begin(), bytes.end());
    padded.resize(sizeof hello + sizeof challenge + sizeof proof);
    std::memcpy(&hello, padded.data(), sizeof hello);
    std::memcpy(&challenge, padded.data() + sizeof hello, sizeof challenge);
    std::memcpy(&proof, padded.data() + sizeof hello + sizeof challenge, sizeof proof);
    (void)check_greeting(hello);
    (void)check_server_greeting(challenge.greeting);
    const Secret secret{std::byte{9}};
    require(!is_genuine({hello, challenge}, secret), "a challenge without the secret");
    require(!is_genuine(proof, {hello, challenge}, secret), "a proof without the secret");
}

// Checks that every frame that is opened was sealed: seal() makes the same bytes from its content.
void open_all(std::span<const std::byte> held) {
    Session reader(key, Session::Side::rank), writer(key, Session::Side::server);
    for (;;) {
        const size_t wanted = Session::wanted_bytes(held);
        const auto frame = reader.open(held, limit);
        if (!frame) {
            require(frame.error().code == Code::damaged_data, "a refusal of the wrong kind");
            return;
        }
        if (!*frame) {
            require(wanted > held.size(), "a whole frame that waits for more");
            return;
        }
        const auto payload = (*frame)->payload;
        require((*frame)->whole_bytes == wanted && payload.size() <= limit, "a wrong size");
        const Sealed sealed = writer.seal((*frame)->kind, payload);
        require(std::memcmp(&sealed.head, held.data(), sizeof sealed.head) == 0 &&
                    std::memcmp(&sealed.tag, held.data() + wanted - sizeof sealed.tag,
                                sizeof sealed.tag) == 0,
                "a frame that nobody has sealed");
        const Error error = to_error(payload);
        require(std::memchr(error.text, 0, sizeof error.text) != nullptr, "a text without an end");
        held = held.subspan(wanted);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto all = std::as_bytes(std::span(data, bytes));
    greet(all);
    open_all(all);
    return 0;
}

// Keeps every third input. Seals the first bytes of the others as one or two frames.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    bytes = LLVMFuzzerMutate(data, bytes, most);
    if (seed % 3 == 0) return bytes;
    Session writer(key, Session::Side::server);
    std::vector<uint8_t> made;
    for (unsigned i = 0; i <= seed / 3 % 2; i++) {
        const size_t fits = seed / 6 % 4 == 0 ? sizeof(Error) : seed / 24 % (limit + 2);
        std::vector<uint8_t> payload(data, data + std::min(bytes, fits));
        if (fits == sizeof(Error)) payload.resize(fits);
        const Sealed sealed = writer.seal(static_cast<FrameKind>(seed / 16384 % 13),
                                          std::as_bytes(std::span(payload)));
        const auto *head = reinterpret_cast<const uint8_t *>(&sealed.head);
        const auto *tag = reinterpret_cast<const uint8_t *>(&sealed.tag);
        made.insert(made.end(), head, head + sizeof sealed.head);
        made.insert(made.end(), payload.begin(), payload.end());
        made.insert(made.end(), tag, tag + sizeof sealed.tag);
    }
    if (made.size() > most) return bytes;
    std::memcpy(data, made.data(), made.size());
    return made.size();
}
