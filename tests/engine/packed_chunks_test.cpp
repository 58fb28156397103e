// Tests lib/engine with codecs that pack their chunks: between hosts messages are as small as
// packing makes them, within a host they stay as they are, and damaged ones are refused.
// engine_hosts_test compares the results with the slow twin.
#include "tests/kit/engine_ranks.hpp"
#include "tests/transport/faulty_transport.hpp"

#include "codec/chunk.hpp"

#include <random>
#include <string_view>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint32_t ranks = 3;

TwinCall all_reduce(const char *algorithm, const char *codec, uint64_t count) {
    return {.algorithm = algorithm, .codec = *parse_codec(codec), .count = count, .ranks = ranks};
}

TransportOptions apart() { return on_hosts({0, 1, 2}); }

Chunking cut_of(const TransportOptions &options) {
    return {.outbox_bytes = options.outbox_bytes,
            .slots = options.slots,
            .inbox_bytes = options.hosts.empty() ? 0 : options.outbox_bytes,
            .segment_bytes = size_t{16} << 10,
            .lanes = 2};
}

std::vector<Bytes> gaussian_inputs(uint64_t count) {
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        std::mt19937 generator(rank);
        std::normal_distribution<float> draw(0, 1e-3F);
        std::vector<float> values(count);
        for (float &value : values) value = draw(generator);
        const auto bytes = std::as_bytes(std::span(values));
        inputs.emplace_back(bytes.begin(), bytes.end());
    }
    return inputs;
}

// Every pattern of bits, so that no exponent is more likely than another.
std::vector<Bytes> random_inputs(uint64_t count) {
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        std::mt19937 generator(rank);
        std::vector<uint32_t> words(count);
        for (uint32_t &word : words) word = static_cast<uint32_t>(generator());
        const auto bytes = std::as_bytes(std::span(words));
        inputs.emplace_back(bytes.begin(), bytes.end());
    }
    return inputs;
}

// Returns the bytes that all ranks have sent.
uint64_t sent_bytes(TwinCall call, const TransportOptions &options,
                    const std::vector<Bytes> &inputs) {
    Cluster cluster(ranks, options);
    const auto outputs = cluster.run_all(call, {cut_of(options)}, inputs, false);
    CHECK(outputs[0] == slow_twin(call, inputs));
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        bytes += cluster.rank(rank).engine->counts().wire_bytes;
    return bytes;
}

void packed_messages_are_counted_as_they_are() {
    constexpr uint64_t count = 60000;
    const auto inputs = gaussian_inputs(count);
    for (const char *algorithm : {"direct", "ring"}) {
        const auto sent = [&](const char *codec, const TransportOptions &options) {
            return static_cast<double>(
                sent_bytes(all_reduce(algorithm, codec, count), options, inputs));
        };
        const double plain = sent("none", apart());
        // Exponents of 8 bits take between 2 and 3.5.
        const double lossless = sent("lossless", apart()) / plain;
        CHECK(lossless > (24 + 2.0) / 32 && lossless < (24 + 3.5) / 32);
        // With a step of a sixth of the deviation multiples have 4.6 bits of entropy.
        CHECK(sent("bound:rel=0.01", apart()) / plain < 6.2 / 32);
        CHECK(sent("bound:rel=0.01,entropy=1", apart()) / plain < 5.2 / 32);
        CHECK(sent("minmax:bucket=all,entropy=1", apart()) <
              0.95 * sent("minmax:bucket=all", apart()));
        CHECK_EQ(sent("lossless", Cluster::test_options()), sent("none", Cluster::test_options()));
    }
}

void what_does_not_shrink_travels_as_it_is() {
    constexpr uint64_t count = 60000;
    const auto inputs = random_inputs(count);
    const TwinCall gather{.collective = Collective::all_gather,
                          .algorithm = "direct",
                          .codec = *parse_codec("lossless"),
                          .count = count,
                          .ranks = ranks};
    TwinCall plain = gather;
    plain.codec = {};
    CHECK_EQ(sent_bytes(gather, apart(), inputs), sent_bytes(plain, apart(), inputs));
}

struct Damage {
    const char *what;
    std::function<void(Bytes &)> inflict;
};

void shorten(Bytes &chunk, size_t bytes, bool says_so) {
    chunk.resize(bytes);
    const uint64_t payload = bytes - header_bytes;
    if (says_so) std::memcpy(chunk.data() + 32, &payload, sizeof payload);
}

const Damage damages[] = {
    {"packs", [](Bytes &chunk) { chunk[9] ^= std::byte{32}; }},
    {"codec", [](Bytes &chunk) { chunk[5] = std::byte{0}; }},
    {"count", [](Bytes &chunk) { chunk[16] ^= std::byte{1}; }},
    {"first index", [](Bytes &chunk) { chunk[24] ^= std::byte{64}; }},
    {"payload bytes", [](Bytes &chunk) { chunk[32] ^= std::byte{1}; }},
    {"no payload", [](Bytes &chunk) { shorten(chunk, header_bytes, true); }},
    {"one byte", [](Bytes &chunk) { shorten(chunk, header_bytes + 1, true); }},
    {"half", [](Bytes &chunk) { shorten(chunk, chunk.size() / 2, true); }},
    {"one byte less", [](Bytes &chunk) { shorten(chunk, chunk.size() - 1, true); }},
    {"one byte less than said", [](Bytes &chunk) { shorten(chunk, chunk.size() - 1, false); }},
    {"nothing", [](Bytes &chunk) { chunk.clear(); }},
};

void damaged_chunks_are_refused_by_all() {
    constexpr uint32_t injected = 1;
    const auto inputs = gaussian_inputs(9000);
    for (const char *codec : {"lossless", "int8:entropy=1", "bound"})
        for (const Damage &damage : damages) {
            const TwinCall call = all_reduce("direct", codec, 9000);
            const auto is_done = std::make_shared<bool>(false);
            const Faults faults{.damage = [&](Bytes &bytes) {
                if (!std::exchange(*is_done, true)) damage.inflict(bytes);
            }};
            Cluster cluster(ranks, apart(), inject_at(injected, faults));
            std::vector<Result<Bytes>> said(ranks, Bytes());
            cluster.on_each([&](uint32_t rank) {
                const auto program = compile_for(call, rank, cut_of(apart()));
                CHECK_OK(program);
                said[rank] = cluster.run(rank, call, *program, inputs[rank], false);
            });
            if (said[injected]) throw Failure{damage.what};
            for (const auto &each : said) {
                CHECK(!each);
                CHECK_EQ(static_cast<int>(each.error().code), static_cast<int>(Code::damaged_data));
                CHECK(std::string_view(each.error().text).find("from rank") !=
                      std::string_view::npos);
            }
        }
}

// The checksum is that of the bytes that travel.
void a_flipped_bit_breaks_the_checksum() {
    constexpr uint32_t injected = 1;
    const TwinCall call = all_reduce("direct", "lossless", 9000);
    const auto inputs = gaussian_inputs(9000);
    Chunking cut = cut_of(apart());
    cut.has_checksums = true;
    for (const bool flips : {false, true}) {
        const Faults faults{.damage = [&](Bytes &chunk) {
            if (flips) chunk.back() ^= std::byte{4};
        }};
        Cluster cluster(ranks, apart(), inject_at(injected, faults));
        std::vector<Result<Bytes>> said(ranks, Bytes());
        cluster.on_each([&](uint32_t rank) {
            const auto program = compile_for(call, rank, cut);
            CHECK_OK(program);
            said[rank] = cluster.run(rank, call, *program, inputs[rank], false);
        });
        const auto expected = slow_twin(call, inputs);
        for (uint32_t rank = 0; rank < ranks; rank++)
            CHECK(flips ? !said[rank] && said[rank].error().code == Code::damaged_data
                        : said[rank] && *said[rank] == expected[rank]);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(packed_messages_are_counted_as_they_are),
        QTEST(what_does_not_shrink_travels_as_it_is),
        QTEST(damaged_chunks_are_refused_by_all),
        QTEST(a_flipped_bit_breaks_the_checksum),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
