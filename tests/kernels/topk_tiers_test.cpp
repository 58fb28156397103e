// Tests codec topk on every CPU tier that runs here: chunks of several pages, whose threshold a
// sample of the values proposes, give the reference's bytes, also where the sample misleads.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"

#include "kernels/cpu/cpu_tiers.hpp"

#include <string>

using namespace qccl;
using namespace operands;

namespace {

constexpr size_t counts[] = {4096, 4159, 65536, 140001};

// Encodes `src` by every tier, and compares bytes and decoded values with the reference's.
void check(const char *text, DataType type, size_t count, const std::byte *src,
           const std::string &values) {
    const Codec codec = *parse_codec(text);
    const PayloadLayout layout = payload_layout(codec, type, count);
    const ChunkRange whole{&codec, &layout, type, count, 0, count};
    Buffer want(layout.bytes), decoded(count * type_bytes(type));
    scalar_kernels().encode(whole, {}, type, src, want.data());
    scalar_kernels().decode(whole, want.data(), type, decoded.data(), false);
    for (const Kernels *const tier : available_kernels()) {
        Buffer got(layout.bytes), back(count * type_bytes(type));
        tier->encode(whole, {}, type, src, got.data());
        tier->decode(whole, want.data(), type, back.data(), false);
        if (!same(got, want) || !same(back, decoded))
            throw qtest::Failure{std::string(name(tier->tier)) + " differs: " + text + " " +
                                 name(type) + " count " + std::to_string(count) + " " + values};
    }
}

void check(const char *text, const std::vector<float> &values, const std::string &what) {
    check(text, DataType::float32, values.size(),
          reinterpret_cast<const std::byte *>(values.data()), what);
}

} // namespace

static void all_kinds_of_values_agree() {
    Values values(3);
    for (const char *text : {"topk", "topk:ratio=0.01", "topk:ratio=0.4", "topk:ratio=1"})
        for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float64})
            for (const Pattern pattern : patterns) {
                const size_t count = counts[values.pick(std::size(counts))];
                Buffer src(count * type_bytes(type));
                fill(values, pattern, type, src.data(), count);
                check(text, type, count, src.data(),
                      "pattern " + std::to_string(static_cast<int>(pattern)));
            }
}

// Where every 128th value, which the sample consists of, says nothing about the others.
static void misleading_samples_change_nothing() {
    Values random(4);
    for (const size_t count : counts)
        for (const float sampled : {0.0F, 1.0F, 5.0F, 1e30F}) {
            std::vector<float> values(count);
            for (size_t i = 0; i < count; i++)
                values[i] =
                    i % 32 == 0 ? sampled : static_cast<float>(random.next(Pattern::gauss, i));
            for (const char *text : {"topk:ratio=0.001", "topk:ratio=0.02", "topk:ratio=0.5"})
                check(text, values, "sampled " + std::to_string(sampled));
        }
}

// Ties begin and end anywhere, also within a vector, and are all that there is.
static void ties_agree_everywhere() {
    for (const size_t count : counts) {
        std::vector<float> values(count, -2.0F);
        for (const char *text : {"topk:ratio=0.0003", "topk:ratio=0.01", "topk:ratio=0.6"})
            check(text, values, "all equal");
        for (size_t i = 7; i < count; i += 1000) values[i] = 3;
        for (const char *text : {"topk:ratio=0.0003", "topk:ratio=0.001", "topk:ratio=0.01"})
            check(text, values, "two magnitudes");
        std::fill(values.begin(), values.end(), 0.0F);
        values[count / 2] = -0.0F;
        values[count - 1] = 1;
        check("topk:ratio=0.01", values, "zeros");
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(all_kinds_of_values_agree),
        QTEST(misleading_samples_change_nothing),
        QTEST(ties_agree_everywhere),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
