// Tests the GPU's passes of the codec shared: scales, integers, residuals and values equal the
// scalar reference's byte for byte, for every type, blocks of any length and vectors of any length
// and start.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"
#include "tested_launchers.hpp"
#include "tests/kit/sample.hpp"

#include "codec/shared_scales.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

using namespace qccl;
using namespace operands;

namespace {

constexpr DataType float_types[] = {DataType::float32, DataType::float16,    DataType::bfloat16,
                                    DataType::float64, DataType::float8e4m3, DataType::float8e5m2};

float *floats(Buffer &buffer) { return reinterpret_cast<float *>(buffer.data()); }
uint16_t *scales_in(Buffer &buffer) { return reinterpret_cast<uint16_t *>(buffer.data()); }

// What one rank's part of a call makes of values, all of it from the rank's own scales.
struct Passed {
    Buffer scales, integers, residual, values;
};

struct SharedCase {
    DataType type;
    size_t count;
    uint32_t block, limit, ranks;
    size_t shift; // of all values, in values

    size_t blocks() const { return (count + block - 1) / block; }
    DataType sum_type() const { return accumulator_of(type); }
    // Residuals are those of inputs in the accumulator's type.
    bool has_residual() const { return type == sum_type(); }
    Buffer values_of(DataType of) const {
        return Buffer(count * type_bytes(of), shift * type_bytes(of));
    }
    Passed passed() const {
        return {Buffer(blocks() * sizeof(uint16_t), 2 * shift), values_of(DataType::float32),
                values_of(sum_type()), values_of(type)};
    }
    std::string text() const {
        return std::string(name(type)) + ", count " + std::to_string(count) + ", block " +
               std::to_string(block) + ", limit " + std::to_string(limit) + ", shift " +
               std::to_string(shift);
    }
};

// Sums of integers: those of so many ranks that have the same.
void multiply(Buffer &integers, size_t count, uint32_t ranks) {
    for (size_t i = 0; i < count; i++) floats(integers)[i] *= static_cast<float>(ranks);
}

Passed by_reference(const SharedCase &of, Buffer &x) {
    const Kernels &kernels = scalar_kernels();
    Passed got = of.passed();
    Buffer inputs = of.values_of(DataType::float32), decoded = inputs;
    kernels.copy(DataType::float32, inputs.data(), of.type, x.data(), of.count, false);
    std::vector<uint32_t> greatest(of.blocks());
    kernels.find_magnitudes(greatest.data(), floats(inputs), of.count, of.block);
    for (size_t i = 0; i < of.blocks(); i++)
        scales_in(got.scales)[i] = shared_scale(greatest[i], of.limit);
    const uint16_t *const scales = scales_in(got.scales);
    kernels.to_integers(floats(got.integers), floats(inputs), scales, of.count, of.block);
    if (of.has_residual()) {
        Buffer wide = of.values_of(of.type);
        kernels.from_integers(floats(decoded), floats(got.integers), scales, of.count, of.block, 1);
        kernels.copy(of.type, wide.data(), DataType::float32, decoded.data(), of.count, false);
        std::fill_n(got.residual.data(), of.count * type_bytes(of.type), std::byte{0});
        kernels.keep_error(of.type, got.residual.data(), x.data(), wide.data(), of.count, 1,
                           nullptr);
    }
    multiply(got.integers, of.count, 3);
    kernels.from_integers(floats(decoded), floats(got.integers), scales, of.count, of.block,
                          of.ranks);
    kernels.copy(of.type, got.values.data(), DataType::float32, decoded.data(), of.count, false);
    return got;
}

Passed by_gpu(const TestedLauncher &gpu, const SharedCase &of, Buffer &x) {
    Passed got = of.passed();
    const auto run = [&](std::initializer_list<Buffer *> read, std::initializer_list<Buffer *> made,
                         const auto &pass) {
        for (Buffer *const each : read) gpu.lend(each->data(), each->bytes(), false);
        for (Buffer *const each : made) gpu.lend(each->data(), each->bytes(), true);
        KernelLauncher launcher(gpu.launch, nullptr, MostBlocks{2, 2});
        CHECK_OK(pass(launcher));
        CHECK_OK(launcher.flush());
        for (const auto &each : {read, made})
            for (Buffer *const buffer : each) gpu.take_back(buffer->data());
    };
    run({&x}, {&got.scales}, [&](KernelLauncher &launcher) {
        return launcher.find_scales(scales_in(got.scales), of.type, x.data(), of.count, of.block,
                                    of.limit);
    });
    const auto to_integers = [&](void *residual) {
        return [&, residual](KernelLauncher &launcher) {
            return launcher.to_integers(floats(got.integers), of.type, x.data(),
                                        scales_in(got.scales), of.count, of.block, residual);
        };
    };
    if (of.has_residual())
        run({&x, &got.scales}, {&got.integers, &got.residual}, to_integers(got.residual.data()));
    else
        run({&x, &got.scales}, {&got.integers}, to_integers(nullptr));
    multiply(got.integers, of.count, 3);
    run({&got.integers, &got.scales}, {&got.values}, [&](KernelLauncher &launcher) {
        return launcher.from_integers(of.type, got.values.data(), floats(got.integers),
                                      scales_in(got.scales), of.count, of.block, of.ranks);
    });
    return got;
}

void check(const SharedCase &of, Buffer &x) {
    Passed want = by_reference(of, x);
    for (const TestedLauncher &gpu : tested_launchers()) {
        Passed got = by_gpu(gpu, of, x);
        const auto compare = [&](Buffer &a, Buffer &b, const char *what) {
            if (!same(a, b))
                throw qtest::Failure{gpu.name + " differs: " + what + ", " + of.text()};
        };
        compare(got.scales, want.scales, "scales");
        compare(got.integers, want.integers, "integers");
        compare(got.residual, want.residual, "residual");
        compare(got.values, want.values, "values");
    }
}

} // namespace

static void all_passes_agree() {
    Values values(51);
    uint64_t number = 0;
    for (const DataType type : float_types)
        for (const uint32_t block : {1U, 2U, 4U, 7U, 12U, 32U, 64U, 128U, 256U, 1000U, 9000U})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 63, 1100, 9500})
                for (const Pattern pattern : patterns) {
                    if (!is_chosen(number++)) continue;
                    const SharedCase of{.type = type,
                                        .count = count,
                                        .block = block,
                                        .limit = (2U << values.pick(7)) - 1,
                                        .ranks = values.pick(2) == 0 ? 1U : 3U,
                                        .shift = values.pick(4)};
                    Buffer x = of.values_of(type);
                    fill(values, pattern, type, x.data(), count);
                    check(of, x);
                }
}

// The parts of a vector in one launch, with integers and values in place.
static void parts_agree_in_place() {
    constexpr size_t parts = 11, count = 77;
    constexpr uint32_t block = 10;
    Values values(52);
    Buffer x(parts * count * sizeof(float));
    fill(values, Pattern::gauss, DataType::float32, x.data(), parts * count);
    for (const TestedLauncher &gpu : tested_launchers()) {
        Buffer scales(parts * 8 * sizeof(uint16_t)), got = x;
        gpu.lend(got.data(), got.bytes(), true);
        gpu.lend(scales.data(), scales.bytes(), true);
        KernelLauncher launcher(gpu.launch, nullptr, MostBlocks{2, 2});
        const auto for_each_part = [&](const auto &pass) {
            for (size_t part = 0; part < parts; part++)
                CHECK_OK(pass(floats(got) + part * count, scales_in(scales) + part * 8));
            CHECK_OK(launcher.flush());
        };
        for_each_part([&](float *part, uint16_t *of_part) {
            return launcher.find_scales(of_part, DataType::float32, part, count, block, 7);
        });
        for_each_part([&](float *part, uint16_t *of_part) {
            return launcher.to_integers(part, DataType::float32, part, of_part, count, block,
                                        nullptr);
        });
        for_each_part([&](float *part, uint16_t *of_part) {
            return launcher.from_integers(DataType::float32, part, part, of_part, count, block, 1);
        });
        gpu.take_back(got.data());
        gpu.take_back(scales.data());
        Buffer want = x;
        for (size_t part = 0; part < parts; part++) {
            float *const at = floats(want) + part * count;
            uint32_t greatest[8] = {};
            uint16_t own[8];
            scalar_kernels().find_magnitudes(greatest, at, count, block);
            std::ranges::transform(greatest, own,
                                   [](uint32_t each) { return shared_scale(each, 7); });
            scalar_kernels().to_integers(at, at, own, count, block);
            scalar_kernels().from_integers(at, at, own, count, block, 1);
        }
        CHECK(same(got, want));
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(all_passes_agree),
        QTEST(parts_agree_in_place),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
