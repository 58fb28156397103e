// Tests the GPU's topk kernels, which consist of several launches and handle chunks of several
// pages. The bytes equal the scalar reference's for any sample, any ties and any cut of a chunk,
// and invalid payloads cause no access to other memory.
#include "kernel_operands.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/qtest.hpp"
#include "tested_kernels.hpp"
#include "tests/kit/sample.hpp"

using namespace qccl;
using namespace operands;

namespace {

constexpr DataType float_types[] = {DataType::float32, DataType::float16,    DataType::bfloat16,
                                    DataType::float64, DataType::float8e4m3, DataType::float8e5m2};

struct Chunk {
    Codec codec;
    DataType type;
    size_t count;
    PayloadLayout layout = payload_layout(codec, type, count);
    ChunkRange range(uint64_t begin, uint64_t values) const {
        return {.codec = &codec,
                .layout = &layout,
                .type = type,
                .whole = count,
                .begin = begin,
                .count = values};
    }
    ChunkRange whole() const { return range(0, count); }
    std::string text() const {
        return spec(codec) + " " + name(type) + " count " + std::to_string(count);
    }
};

void expect(bool holds, const Chunk &chunk, const TestedKernels &gpu, const std::string &what) {
    if (!holds) throw qtest::Failure{gpu.name + " differs in " + what + ": " + chunk.text()};
}

// Returns the reference's payload, after checking that every GPU produces the same one.
Buffer encoded(const Chunk &chunk, DataType in, Buffer &values) {
    Buffer want(chunk.layout.bytes);
    scalar_kernels().encode(chunk.whole(), {}, in, values.data(), want.data());
    for (const TestedKernels &gpu : tested_kernels()) {
        Buffer got(chunk.layout.bytes);
        gpu->encode(chunk.whole(), {}, in, values.data(), got.data());
        expect(same(got, want), chunk, gpu, std::string("encode from ") + name(in));
    }
    return want;
}

void check_decode(const Chunk &chunk, const ChunkRange &range, Buffer &payload) {
    const DataType sums = accumulator_of(chunk.type);
    Values random(7);
    Buffer want(range.count * type_bytes(chunk.type)), start(range.count * type_bytes(sums));
    fill(random, Pattern::special, sums, start.data(), range.count);
    Buffer want_sum = start;
    scalar_kernels().decode(range, payload.data(), chunk.type, want.data(), false);
    scalar_kernels().decode_add(range, RedOp::sum, payload.data(), want_sum.data());
    for (const TestedKernels &gpu : tested_kernels()) {
        Buffer got(range.count * type_bytes(chunk.type)), got_sum = start;
        gpu->decode(range, payload.data(), chunk.type, got.data(), false);
        gpu->decode_add(range, RedOp::sum, payload.data(), got_sum.data());
        const std::string part =
            std::to_string(range.count) + " from " + std::to_string(range.begin) + " on";
        expect(same(got, want), chunk, gpu, "decode of " + part);
        expect(same(got_sum, want_sum), chunk, gpu, "decode_add of " + part);
    }
}

void check(const Chunk &chunk, DataType in, Buffer &values) {
    Buffer payload = encoded(chunk, in, values);
    check_decode(chunk, chunk.whole(), payload);
}

Buffer floats(size_t count) { return Buffer(count * sizeof(float)); }

void check_floats(const char *text, const std::vector<float> &values) {
    Buffer copy = floats(values.size());
    std::memcpy(copy.data(), values.data(), values.size() * sizeof(float));
    check({*parse_codec(text), DataType::float32, values.size()}, DataType::float32, copy);
}

} // namespace

static void chunks_of_several_pages_agree() {
    Values random(1);
    size_t number = 0;
    for (const DataType type : float_types)
        for (const DataType in : {type, accumulator_of(type)})
            for (const char *text : {"topk", "topk:ratio=0.07", "topk:ratio=1"})
                for (const Pattern pattern : {Pattern::gauss, Pattern::ties, Pattern::bits}) {
                    if (!is_chosen(number++)) continue;
                    const Chunk chunk{*parse_codec(text), type, 131072 + random.pick(5000)};
                    Buffer values(chunk.count * type_bytes(in), random.pick(2) * random.pick(64));
                    fill(random, pattern, in, values.data(), chunk.count);
                    check(chunk, in, values);
                }
}

// The sample contains the first row but not the next 63; a row has 256 or 512 values.
static void a_sample_that_misleads_costs_nothing_but_time() {
    Values random(2);
    for (const char *text : {"topk:ratio=0.05", "topk:ratio=0.3", "topk"})
        for (const double scale : {1000.0, 0.001}) {
            std::vector<float> values(16000);
            for (size_t i = 0; i < values.size(); i++)
                values[i] =
                    static_cast<float>((i < 512 ? scale : 1) * random.next(Pattern::gauss, i));
            check_floats(text, values);
        }
}

// Among equal values the first are kept, also if the last kept one is at the start, at the end or
// inside of a page, tile or octet.
static void of_equals_the_first_are_kept() {
    std::vector<float> values(70000);
    for (size_t i = 0; i < values.size(); i++) values[i] = i % 3 == 0 ? -2.0F : 2.0F;
    for (const uint32_t kept : {1U, 7U, 8U, 9U, 16383U, 16384U, 16385U, 65535U, 65536U, 65537U})
        check_floats(("topk:ratio=" + std::to_string((kept - 0.5) / 70000)).c_str(), values);
    // A few larger values lie between them, and before and after pages without any.
    for (const size_t i : {5U, 16384U, 65535U, 65536U, 69999U}) values[i] = 3;
    for (const char *text : {"topk:ratio=0.00005", "topk:ratio=0.01", "topk:ratio=0.95"})
        check_floats(text, values);
}

static void parts_decode_as_the_whole() {
    Values random(3);
    const Chunk chunk{*parse_codec("topk:ratio=0.05"), DataType::bfloat16, 140001};
    Buffer values(chunk.count * sizeof(uint16_t));
    fill(random, Pattern::gauss, chunk.type, values.data(), chunk.count);
    Buffer payload = encoded(chunk, chunk.type, values);
    for (const uint64_t begin : {64U, 65472U, 65536U, 65600U, 130560U, 139968U})
        for (const uint64_t length : {1U, 64U, 4096U, 70000U})
            check_decode(chunk, chunk.range(begin, std::min(length, chunk.count - begin)), payload);
}

// A check precedes every decoder. If a check fails, the kernels touch only the chunk's own memory.
static void pages_that_lie_reach_no_other_memory() {
    Values random(4);
    const Chunk chunk{*parse_codec("topk:ratio=0.02"), DataType::float32, 140001};
    Buffer values = floats(chunk.count);
    fill(random, Pattern::gauss, chunk.type, values.data(), chunk.count);
    Buffer whole = encoded(chunk, chunk.type, values);
    const auto decode_all = [&](Buffer &payload) {
        for (const TestedKernels &gpu : tested_kernels()) {
            Buffer got = floats(chunk.count);
            gpu->decode(chunk.whole(), payload.data(), chunk.type, got.data(), false);
            for (size_t i = 0; i < chunk.count; i++) {
                const auto value = load_bits<float>(got.data(), i);
                expect(value == 0 || std::abs(value) > 1, chunk, gpu, "what is in no payload");
            }
            Buffer fresh = floats(chunk.count);
            std::copy_n(got.data(), chunk.count * sizeof(float), fresh.data());
            expect(same(got, fresh), chunk, gpu, "memory that is not its own");
        }
    };
    for (const uint32_t number : {0U, 1U, 65536U, 0x7FFFFFFFU, 0xFFFFFFFFU})
        for (const size_t page : {0U, 1U, 2U}) {
            Buffer payload = whole;
            store_bits(payload.data() + chunk.layout.page_counts, page, number);
            decode_all(payload);
        }
    for (const uint32_t noise : {0U, 0xFFFFU, 1U}) {
        Buffer payload = whole;
        for (size_t i = 0; i < chunk.layout.kept; i++)
            store_bits(payload.data() + chunk.layout.indices, i,
                       static_cast<uint16_t>(noise == 1 ? random.word() : noise));
        decode_all(payload);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(chunks_of_several_pages_agree),
        QTEST(a_sample_that_misleads_costs_nothing_but_time),
        QTEST(of_equals_the_first_are_kept),
        QTEST(parts_decode_as_the_whole),
        QTEST(pages_that_lie_reach_no_other_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
