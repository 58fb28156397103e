// Tests lib/device/kernel_launcher: operations that one kernel serves share launches, in order and
// without losing one. A hop of a ring in one launch equals its three steps. The launches of topk
// stay in their place and need scratch memory.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"

#include "device/kernel_launcher.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "kernels/gpu/emulated.hpp"

#include <vector>

using namespace qccl;
using namespace operands;

namespace {

// Runs kernels on the emulated GPU, and counts launches and tensors.
struct Gpu {
    unsigned lanes = 32, launcher = 0, tensors = 0;
    static Done launch(void *device, KernelId kernel, unsigned blocks, const Batch &batch) {
        auto *const self = static_cast<Gpu *>(device);
        self->launcher++;
        self->tensors += batch.tensors;
        return launch_emulated(self->lanes, emulated::Order::forward, kernel, blocks, batch);
    }
    KernelLauncher begin(unsigned most_blocks = 3) {
        return KernelLauncher(launch, this, MostBlocks{most_blocks, most_blocks});
    }
};

struct Chunk {
    Codec codec;
    DataType type;
    size_t count;
    PayloadLayout layout = payload_layout(codec, type, count);
    ChunkRange range() const {
        return {.codec = &codec,
                .layout = &layout,
                .type = type,
                .whole = count,
                .begin = 0,
                .count = count};
    }
};

} // namespace

static void many_tensors_share_launches() {
    constexpr size_t tensors = 50;
    Values random(1);
    for (const unsigned lanes : {32U, 64U}) {
        Gpu gpu{.lanes = lanes};
        KernelLauncher launcher = gpu.begin();
        std::vector<Chunk> chunks;
        std::vector<Buffer> inputs, payloads, wanted;
        for (size_t i = 0; i < tensors; i++) {
            chunks.push_back({*parse_codec("int4"), DataType::float32, random.pick(3000)});
            inputs.emplace_back(chunks[i].count * sizeof(float));
            payloads.emplace_back(chunks[i].layout.bytes);
            wanted.emplace_back(chunks[i].layout.bytes);
            fill(random, Pattern::gauss, DataType::float32, inputs[i].data(), chunks[i].count);
        }
        for (size_t i = 0; i < tensors; i++) {
            const ChunkRange range = chunks[i].range();
            CHECK_OK(launcher.encode(range, {}, DataType::float32, inputs[i].data(),
                                     payloads[i].data()));
            scalar_kernels().encode(range, {}, DataType::float32, inputs[i].data(),
                                    wanted[i].data());
        }
        CHECK_OK(launcher.flush());
        for (size_t i = 0; i < tensors; i++) CHECK(same(payloads[i], wanted[i]));
        CHECK_EQ(gpu.tensors, tensors);
        CHECK_EQ(gpu.launcher, (tensors + Batch::most_tensors - 1) / Batch::most_tensors);
    }
}

static void what_moves_is_counted() {
    constexpr size_t count = 100000;
    const size_t value_bytes = count * sizeof(float);
    Values random(7);
    Buffer values(value_bytes), sum(value_bytes);
    fill(random, Pattern::gauss, DataType::float32, values.data(), count);
    for (const char *const spec :
         {"int4", "minmax", "mxfp8e4m3", "fp8e4m3:block=128", "topk:ratio=0.01", "fp16"}) {
        const Chunk chunk{*parse_codec(spec), DataType::float32, count};
        Buffer payload(chunk.layout.bytes), scratch(1 << 20);
        Gpu gpu;
        KernelLauncher launcher = gpu.begin();
        launcher.use_scratch({reinterpret_cast<std::byte *>(scratch.data()), 1 << 20});
        uint64_t before = 0;
        const auto moved = [&] {
            const uint64_t now = launcher.moved_bytes(), since = now - before;
            before = now;
            return since;
        };
        CHECK_OK(
            launcher.encode(chunk.range(), {}, DataType::float32, values.data(), payload.data()));
        CHECK(moved() >= value_bytes + chunk.layout.bytes - chunk.layout.bytes / 50);
        CHECK_OK(launcher.decode(chunk.range(), payload.data(), DataType::float32, sum.data()));
        const uint64_t decoded = moved();
        CHECK(decoded <= value_bytes + chunk.layout.bytes);
        CHECK(decoded >= value_bytes + chunk.layout.bytes - chunk.layout.bytes / 50);
        CHECK_OK(launcher.decode_add(chunk.range(), RedOp::sum, payload.data(), sum.data()));
        CHECK_EQ(moved(), decoded + value_bytes);
        CHECK_OK(launcher.flush());
    }
}

static void what_is_gathered_keeps_its_order() {
    Values random(2);
    constexpr size_t count = 1000;
    Buffer sums(count * sizeof(float)), terms(count * sizeof(float));
    fill(random, Pattern::gauss, DataType::float32, sums.data(), count);
    fill(random, Pattern::gauss, DataType::float32, terms.data(), count);
    Buffer want = sums;
    Gpu gpu;
    KernelLauncher launcher = gpu.begin();
    const DataType type = DataType::float32;
    // Each operation needs another launch than the one before.
    CHECK_OK(launcher.reduce(RedOp::sum, type, sums.data(), type, terms.data(), count));
    CHECK_OK(launcher.reduce(RedOp::max, type, sums.data(), type, terms.data(), count));
    CHECK_OK(launcher.divide(type, sums.data(), count, 3));
    CHECK_OK(launcher.reduce(RedOp::prod, type, sums.data(), type, terms.data(), count));
    CHECK_OK(launcher.flush());
    CHECK_OK(launcher.flush()); // nothing is left to launch
    CHECK_EQ(gpu.launcher, 4U);
    const Kernels &scalar = scalar_kernels();
    scalar.reduce(RedOp::sum, type, want.data(), type, terms.data(), count);
    scalar.reduce(RedOp::max, type, want.data(), type, terms.data(), count);
    scalar.divide(type, want.data(), count, 3);
    scalar.reduce(RedOp::prod, type, want.data(), type, terms.data(), count);
    CHECK(same(sums, want));
}

static void a_hop_is_its_three_steps() {
    Values random(3);
    for (const char *spec :
         {"none", "bf16", "fp8e4m3", "int8", "int5:round=stochastic", "minmax:bits=3,bucket=64",
          "minmax:bits=8,skip_incomplete=1", "mxfp8e4m3", "mxfp4:round=stochastic",
          "int4:round=dither", "minmax:bits=6,bucket=64,round=dither", "int4:rotate=128",
          "minmax:bits=5,bucket=64,rotate=512,round=dither"})
        for (const DataType type : {DataType::float32, DataType::bfloat16})
            for (const size_t count : std::initializer_list<size_t>{1, 33, 512, 1441})
                for (const RedOp op : {RedOp::sum, RedOp::avg}) {
                    const Chunk chunk{*parse_codec(spec), type, count};
                    const Noise noise{.key = 5, .call = 6, .first_index = 77};
                    ChunkRange range = chunk.range();
                    range.noise = noise;
                    const uint32_t divisor = op == RedOp::avg ? 5 : 1;
                    Buffer own(count * type_bytes(type)), sum(count * sizeof(float)),
                        received(chunk.layout.bytes), want(chunk.layout.bytes),
                        got(chunk.layout.bytes);
                    fill(random, Pattern::special, type, own.data(), count);
                    fill(random, Pattern::special, DataType::float32, sum.data(), count);
                    const Kernels &scalar = scalar_kernels();
                    scalar.encode(range, noise, DataType::float32, sum.data(), received.data());
                    scalar.decode(range, received.data(), DataType::float32, sum.data(), false);
                    scalar.reduce(op, DataType::float32, sum.data(), type, own.data(), count);
                    scalar.divide(DataType::float32, sum.data(), count, divisor);
                    scalar.encode(range, noise, DataType::float32, sum.data(), want.data());

                    CHECK(KernelLauncher::can_fuse(chunk.codec, type));
                    Gpu gpu;
                    KernelLauncher launcher = gpu.begin();
                    CHECK_OK(launcher.decode_add_encode(range, op, divisor, received.data(), type,
                                                        own.data(), noise, got.data()));
                    CHECK_OK(launcher.flush());
                    CHECK(same(got, want));
                }
}

// The launch may be replayed, so the call number comes from device memory.
static void the_call_may_come_from_memory() {
    Values random(4);
    const Chunk chunk{*parse_codec("int4:round=stochastic"), DataType::float32, 1000};
    const ChunkRange range = chunk.range();
    Buffer input(1000 * sizeof(float)), got(chunk.layout.bytes), want(chunk.layout.bytes);
    fill(random, Pattern::gauss, DataType::float32, input.data(), 1000);
    const uint64_t call = 40;
    Gpu gpu;
    KernelLauncher launcher(Gpu::launch, &gpu, MostBlocks{2, 2}, &call);
    CHECK_OK(launcher.encode(range, {.key = 1, .call = 2, .first_index = 3}, DataType::float32,
                             input.data(), got.data()));
    CHECK_OK(launcher.flush());
    scalar_kernels().encode(range, {.key = 1, .call = 42, .first_index = 3}, DataType::float32,
                            input.data(), want.data());
    CHECK(same(got, want));
}

// The steps of topk are launches of their own, between the operations gathered before and those
// that follow. The chunks use the same scratch memory one after the other.
static void topk_keeps_its_place() {
    Values random(5);
    const Chunk chunk{*parse_codec("topk:ratio=0.1"), DataType::float32, 3000};
    const ChunkRange range = chunk.range();
    const DataType type = chunk.type;
    const size_t bytes = chunk.count * sizeof(float);
    const size_t scratch_bytes = KernelLauncher::scratch_bytes(chunk.codec, type, chunk.count);
    Buffer scratch(scratch_bytes), terms(bytes);
    std::vector<Buffer> sums, want_sums, got(2, Buffer(chunk.layout.bytes)), want = got;
    fill(random, Pattern::gauss, type, terms.data(), chunk.count);
    Gpu gpu;
    KernelLauncher launcher = gpu.begin();
    launcher.use_scratch({scratch.data(), scratch_bytes});
    for (size_t i = 0; i < 2; i++) {
        sums.emplace_back(bytes);
        fill(random, Pattern::gauss, type, sums[i].data(), chunk.count);
    }
    want_sums = sums;
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(launcher.reduce(RedOp::sum, type, sums[i].data(), type, terms.data(), 3000));
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(launcher.encode(range, {}, type, sums[i].data(), got[i].data()));
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(launcher.decode(range, got[i].data(), type, sums[i].data()));
    CHECK_OK(launcher.flush());
    const Kernels &scalar = scalar_kernels();
    for (size_t i = 0; i < 2; i++) {
        scalar.reduce(RedOp::sum, type, want_sums[i].data(), type, terms.data(), chunk.count);
        scalar.encode(range, {}, type, want_sums[i].data(), want[i].data());
        scalar.decode(range, want[i].data(), type, want_sums[i].data(), false);
        CHECK(same(got[i], want[i]));
        CHECK(same(sums[i], want_sums[i]));
    }
    // Each encode is eight launches: clear the sums, take a sample, two for the first digit, two
    // more digits, count, write. The reductions before and the decodes after take one launch each.
    CHECK_EQ(gpu.launcher, 1U + 2 * 8 + 1);
}

static void topk_wants_a_whole_chunk_and_scratch_memory() {
    const Chunk chunk{*parse_codec("topk"), DataType::float32, 10000};
    const size_t bytes = KernelLauncher::scratch_bytes(chunk.codec, chunk.type, chunk.count);
    CHECK(bytes > 0);
    CHECK_EQ(KernelLauncher::scratch_bytes(*parse_codec("int4"), chunk.type, chunk.count), 0U);
    Buffer scratch(bytes), values(chunk.count * sizeof(float)), payload(chunk.layout.bytes);
    Gpu gpu;
    const auto outcome = [&](const ChunkRange &range, std::span<std::byte> lent) {
        KernelLauncher launcher = gpu.begin();
        launcher.use_scratch(lent);
        const Done done = launcher.encode(range, {}, chunk.type, values.data(), payload.data());
        return done ? Code::success : done.error().code;
    };
    CHECK(outcome(chunk.range(), {}) == Code::internal_error);
    CHECK(outcome(chunk.range(), {scratch.data(), bytes - 1}) == Code::internal_error);
    CHECK(outcome(chunk.range(), {scratch.data() + 8, bytes}) == Code::internal_error);
    ChunkRange part = chunk.range();
    part.count = 9984;
    CHECK(outcome(part, {scratch.data(), bytes}) == Code::internal_error);
    part = chunk.range();
    part.begin = 64;
    part.count -= 64;
    CHECK(outcome(part, {scratch.data(), bytes}) == Code::internal_error);
    CHECK_EQ(gpu.launcher, 0U);
    CHECK(outcome(chunk.range(), {scratch.data(), bytes}) == Code::success);
}

static void what_no_kernel_does_at_once_is_said() {
    for (const char *spec : {"minmax:bucket=1024", "minmax:bucket=100", "topk"})
        CHECK(!KernelLauncher::can_fuse(*parse_codec(spec), DataType::float32));
    CHECK(!KernelLauncher::can_fuse(*parse_codec("int8"), DataType::float64));
    CHECK(KernelLauncher::can_fuse(*parse_codec("int8"), DataType::float32, true));
    CHECK(!KernelLauncher::can_fuse(*parse_codec("mxfp8e4m3"), DataType::float32, true));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(many_tensors_share_launches),
        QTEST(what_moves_is_counted),
        QTEST(what_is_gathered_keeps_its_order),
        QTEST(a_hop_is_its_three_steps),
        QTEST(the_call_may_come_from_memory),
        QTEST(topk_keeps_its_place),
        QTEST(topk_wants_a_whole_chunk_and_scratch_memory),
        QTEST(what_no_kernel_does_at_once_is_said),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
