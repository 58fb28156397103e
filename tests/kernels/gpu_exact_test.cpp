// Tests the GPU's fold of exact sums: the bytes equal the scalar reference's for every type, sums
// that two doubles do not hold, values that are huge or not finite, and vectors of any length.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"
#include "tested_launchers.hpp"
#include "tests/kit/sample.hpp"

#include "device/exact_sum.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <random>

using namespace qccl;
using namespace operands;

namespace {

constexpr DataType float_types[] = {DataType::float32, DataType::float16,    DataType::bfloat16,
                                    DataType::float64, DataType::float8e4m3, DataType::float8e5m2};

using Sources = std::vector<Buffer>;

Buffer by_reference(DataType type, Sources &sources, size_t count, uint32_t ranks) {
    const Kernels &kernels = scalar_kernels();
    std::vector<ExactBlock> blocks(count / ExactBlock::values + 1);
    Buffer result(count * type_bytes(type));
    for (Buffer &source : sources)
        (&source == &sources[0] ? kernels.begin_exact : kernels.add_exact)(type, blocks.data(),
                                                                           source.data(), count);
    kernels.round_exact(type, result.data(), blocks.data(), count, ranks);
    return result;
}

Buffer by_gpu(const TestedLauncher &gpu, DataType type, Sources &sources, size_t count,
              uint32_t ranks) {
    const size_t bytes = count * type_bytes(type);
    Buffer result(bytes);
    std::vector<KernelLauncher::Source> operands;
    for (Buffer &source : sources) {
        gpu.lend(source.data(), bytes, false);
        operands.push_back({.type = type, .at = source.data()});
    }
    gpu.lend(result.data(), bytes, true);
    KernelLauncher launcher(gpu.launch, nullptr, MostBlocks{2, 2});
    CHECK_OK(launcher.fold_exact({.divisor = ranks, .sources = operands, .count = count}, type,
                                 result.data()));
    CHECK_OK(launcher.flush());
    for (Buffer &source : sources) gpu.take_back(source.data());
    gpu.take_back(result.data());
    return result;
}

void check(DataType type, Sources &sources, size_t count, uint32_t ranks, const std::string &what) {
    Buffer want = by_reference(type, sources, count, ranks);
    for (const TestedLauncher &gpu : tested_launchers()) {
        Buffer got = by_gpu(gpu, type, sources, count, ranks);
        if (!same(got, want))
            throw qtest::Failure{gpu.name + " differs: " + name(type) + ", " +
                                 std::to_string(sources.size()) + " summands, count " +
                                 std::to_string(count) + ", " + what};
    }
}

} // namespace

static void all_values_agree() {
    Values values(41);
    uint64_t number = 0;
    for (const DataType type : float_types)
        for (const size_t summands : {size_t{2}, size_t{5}, KernelLauncher::most_sources})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 511, 2100})
                for (const Pattern pattern : patterns) {
                    if (!is_chosen(number++)) continue;
                    Sources sources;
                    for (size_t i = 0; i < summands; i++) {
                        sources.emplace_back(count * type_bytes(type));
                        fill(values, i % 4 == 3 ? Pattern::special : pattern, type,
                             sources.back().data(), count);
                    }
                    for (const uint32_t ranks : {1U, static_cast<uint32_t>(summands)})
                        check(type, sources, count, ranks,
                              "pattern " + std::to_string(static_cast<int>(pattern)));
                }
}

// Doubles of any exponent, of which neighbours cancel.
static void far_exponents_agree() {
    std::mt19937_64 random(42);
    constexpr size_t count = 600;
    Sources sources;
    for (size_t i = 0; i < 12; i++) {
        sources.emplace_back(count * sizeof(double));
        for (size_t at = 0; at < count; at++) {
            uint64_t bits = random();
            if (i % 2 == 1 && random() % 3 == 0)
                bits = load_bits<uint64_t>(sources[i - 1].data(), at) ^ uint64_t { 1 } << 63;
            store_bits(sources[i].data(), at, bits);
        }
    }
    check(DataType::float64, sources, count, 1, "any bits");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(all_values_agree),
        QTEST(far_exponents_agree),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
