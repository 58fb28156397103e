// Tests the handshake and the frames of bootstrap/rendezvous_protocol on bytes: what each tag
// authenticates, and that no message opens at another position, in another order, or at the side
// that sent it.
#include "tests/kit/qtest.hpp"

#include "bootstrap/rendezvous_protocol.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include <sodium.h>

using namespace qccl;

static constexpr Secret secret{std::byte{7}};

// Calls `look` once for each byte of `value`, with that byte changed.
template <class T> static void with_each_byte_changed(const T &value, auto look) {
    for (size_t i = 0; i < sizeof value; i++) {
        std::array<std::byte, sizeof value> bytes;
        std::memcpy(bytes.data(), &value, sizeof value);
        bytes[i] ^= std::byte{0x20};
        T changed;
        std::memcpy(&changed, bytes.data(), sizeof changed);
        look(changed);
    }
}

static Transcript some_transcript() {
    const Hello hello = make_hello();
    return {hello, make_challenge(hello, secret)};
}

static void a_challenge_vouches_for_all_that_was_said() {
    const Transcript seen = some_transcript();
    CHECK(is_genuine(seen, secret));
    CHECK(!is_genuine(seen, Secret{std::byte{8}}));
    with_each_byte_changed(seen,
                           [](const Transcript &changed) { CHECK(!is_genuine(changed, secret)); });
}

static void a_proof_vouches_for_all_that_was_said() {
    const Transcript seen = some_transcript();
    const Proof proof = make_proof(seen, make_claim(1, 3), secret);
    CHECK(is_genuine(proof, seen, secret));
    CHECK(!is_genuine(proof, seen, Secret{std::byte{8}}));
    with_each_byte_changed(
        seen, [&](const Transcript &changed) { CHECK(!is_genuine(proof, changed, secret)); });
    with_each_byte_changed(
        proof, [&](const Proof &changed) { CHECK(!is_genuine(changed, seen, secret)); });
}

static void every_connection_has_a_key_of_its_own() {
    const Transcript seen = some_transcript();
    const Key key = session_key(seen, secret);
    CHECK(session_key(seen, secret) == key);
    CHECK(session_key(seen, Secret{std::byte{8}}) != key);
    with_each_byte_changed(
        seen, [&](const Transcript &changed) { CHECK(session_key(changed, secret) != key); });
    // The key was never sent on the wire.
    CHECK(key != seen.challenge.tag);
    CHECK(key != make_proof(seen, {}, secret).tag);
}

static constexpr Key key{std::byte{9}};
static constexpr std::array<std::byte, 5> words{std::byte{1}, std::byte{2}, std::byte{3}};

static std::vector<std::byte> as_sent(const Sealed &sealed) {
    const auto head = std::as_bytes(std::span(&sealed.head, 1));
    std::vector<std::byte> sent(head.begin(), head.end());
    sent.insert(sent.end(), words.begin(), words.end());
    sent.insert(sent.end(), sealed.tag.begin(), sealed.tag.end());
    return sent;
}

static bool opens(Session &session, const std::vector<std::byte> &sent) {
    const auto frame = session.open(sent, words.size());
    CHECK(!frame || frame->has_value());
    return frame.is_ok();
}

static void frames_open_in_order_and_once() {
    Session server(key, Session::Side::server), rank(key, Session::Side::rank);
    const auto first = as_sent(server.seal(FrameKind::result, words));
    const auto second = as_sent(server.seal(FrameKind::result, words));
    CHECK(!opens(rank, second));
    const auto frame = rank.open(first, words.size());
    CHECK(frame && *frame && (*frame)->kind == FrameKind::result);
    CHECK(
        std::equal(words.begin(), words.end(), (*frame)->payload.begin(), (*frame)->payload.end()));
    CHECK_EQ((*frame)->whole_bytes, first.size());
    CHECK(!opens(rank, first));
    CHECK(opens(rank, second));
}

static void a_frame_does_not_open_where_it_was_sent() {
    for (const Session::Side side : {Session::Side::server, Session::Side::rank}) {
        Session sender(key, side);
        const auto sent = as_sent(sender.seal(FrameKind::result, words));
        CHECK(!opens(sender, sent));
        Session other(key,
                      side == Session::Side::rank ? Session::Side::server : Session::Side::rank);
        CHECK(opens(other, sent));
    }
}

static void no_byte_of_a_frame_can_be_changed() {
    Session server(key, Session::Side::server), rank(key, Session::Side::rank);
    const auto sent = as_sent(server.seal(FrameKind::result, words));
    for (size_t i = 0; i < sent.size(); i++) {
        auto changed = sent;
        changed[i] ^= std::byte{0x20};
        CHECK(!opens(rank, changed));
    }
    Session stranger(Key{}, Session::Side::rank);
    CHECK(!opens(stranger, sent));
    CHECK(!rank.open(sent, words.size() - 1)); // larger than the reader accepts
    CHECK(opens(rank, sent));
}

int main() {
    if (sodium_init() < 0) return 1;
    const CMUnitTest tests[] = {
        QTEST(a_challenge_vouches_for_all_that_was_said),
        QTEST(a_proof_vouches_for_all_that_was_said),
        QTEST(every_connection_has_a_key_of_its_own),
        QTEST(frames_open_in_order_and_once),
        QTEST(a_frame_does_not_open_where_it_was_sent),
        QTEST(no_byte_of_a_frame_can_be_changed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
