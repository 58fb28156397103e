// Implements benchmark.hpp: allocates a rank's buffers for each type and runs one Point for each
// operation, root and size.
#include "perf/benchmark.hpp"

#include "coll/algorithm.hpp"

#include <algorithm>

namespace qccl::perf {

// The buffers of one rank for the largest call of one type. The input of an all-gather is one part
// of its result. For the other operations both buffers have the larger size, which receiving in
// place needs anyway.
struct BufferSizes {
    size_t send, recv;
};

static BufferSizes buffer_sizes(const PerfArguments &arguments, DataType type, uint32_t ranks) {
    const size_t offset = arguments.unaligned_elements * type_bytes(type);
    const bool gathers = arguments.collective == Collective::all_gather;
    return {.send = arguments.max_bytes / (gathers ? ranks : 1) + offset,
            .recv = arguments.max_bytes + offset};
}

double buffer_bytes(const PerfArguments &arguments) {
    double most = 0;
    for (const DataType type : sweep_types(arguments)) {
        const BufferSizes sizes = buffer_sizes(arguments, type, arguments.ranks);
        most = std::max(most, static_cast<double>(sizes.send) + static_cast<double>(sizes.recv));
    }
    return most;
}

static std::string words(const Operation &operation) {
    return std::string(name(operation.collective)) + " of " + std::to_string(operation.bytes()) +
           " bytes, " + name(operation.type) + " " +
           (reduces(operation.collective) ? name(operation.op) : "");
}

// Like nccl-tests, a size below the minimum is still measured, as a call of 0 elements.
static std::string empty_note(const Operation &operation, uint64_t size) {
    const std::string least =
        has_part_per_rank(operation.collective)
            ? "16 bytes for each of " + std::to_string(operation.ranks) + " ranks"
            : std::string("one ") + name(operation.type);
    return "size " + std::to_string(size) + " is less than " + least +
           ": a row of calls with count 0";
}

// The buffers of one rank for all calls on values of one type.
struct RankBuffers {
    Buffer send, recv;
    PinnedMemory host; // used if the other buffers are on a GPU
    std::vector<Registered> registered;

    static Result<RankBuffers> create(const RankContext &stage, DataType type);
};

// The barrier at the end keeps host memory from being allocated or freed while one rank's stream
// waits for another's, because a GPU may postpone such work until the wait is over.
Result<RankBuffers> RankBuffers::create(const RankContext &stage, DataType type) {
    const PerfArguments &arguments = stage.arguments;
    const size_t offset = arguments.unaligned_elements * type_bytes(type);
    const BufferSizes sizes = buffer_sizes(arguments, type, stage.rank_group.size());
    QCCL_TRY(Buffer send, Buffer::create(stage.device, arguments.buffers, sizes.send, offset));
    QCCL_TRY(Buffer recv, Buffer::create(stage.device, arguments.buffers, sizes.recv, offset));
    RankBuffers buffers{
        .send = std::move(send), .recv = std::move(recv), .host = {}, .registered = {}};
    if (const auto &gpu = stage.device.gpu()) {
        QCCL_TRY(buffers.host, PinnedMemory::create(gpu, sizes.recv + 1));
    } else if (arguments.registers()) {
        for (const Buffer *buffer : {&buffers.send, &buffers.recv}) {
            QCCL_TRY(Registered one, Registered::create(stage.comm, *buffer));
            buffers.registered.push_back(std::move(one));
        }
    }
    QCCL_TRY(stage.rank_group.barrier());
    return Result<RankBuffers>(std::move(buffers));
}

// Measures all sizes of one type, operation and root.
static Done sweep(const RankContext &stage, const ProgressListener &listener, const Operation &what,
                  RankBuffers &buffers, uint64_t &step) {
    for (const uint64_t size : sweep_sizes(stage.arguments)) {
        const Operation operation =
            operation_of(what.collective, what.type, what.op, what.root, what.ranks, size);
        listener.progress(step++, words(operation));
        if (size > 0 && operation.count == 0) listener.note(empty_note(operation, size));
        Point point(stage, operation, buffers.send.data(), buffers.recv.data(),
                    buffers.host.data());
        QCCL_TRY(point.prepare(listener));
        QCCL_TRY(const std::vector<Row> found, point.run());
        for (const Row &row : found) listener.row(row);
    }
    return {};
}

// Measures all operations and roots of one type.
static Done sweep_all(const RankContext &stage, const ProgressListener &listener, DataType type,
                      RankBuffers &buffers, uint64_t &step) {
    const PerfArguments &arguments = stage.arguments;
    const uint32_t ranks = stage.rank_group.size();
    for (const RedOp op : arguments.ops)
        for (const uint32_t root : sweep_roots(arguments, ranks))
            QCCL_TRY(sweep(stage, listener,
                           {.collective = arguments.collective,
                            .type = type,
                            .op = op,
                            .root = root,
                            .ranks = ranks},
                           buffers, step));
    return {};
}

static Done run_cycle(const RankContext &stage, const ProgressListener &listener) {
    uint64_t step = 0;
    for (const DataType type : sweep_types(stage.arguments)) {
        QCCL_TRY(RankBuffers buffers, RankBuffers::create(stage, type));
        const Done swept = sweep_all(stage, listener, type, buffers, step);
        // Work of the failed call may still be in the stream.
        if (!swept) (void)stage.device.wait();
        QCCL_TRY(swept);
    }
    return {};
}

// Checks whether an algorithm and a codec can perform at least one of the calls.
static Done check_combination(const PerfArguments &arguments, const std::string &asked,
                              const Codec &codec) {
    const auto algorithm = parse_algorithm(asked);
    if (algorithm && !algorithm->has(arguments.collective))
        return Error::make(Code::invalid_argument, "%s has no %s", asked.c_str(),
                           name(arguments.collective));
    Done refused;
    for (const DataType type : sweep_types(arguments))
        for (const RedOp op : arguments.ops) {
            const Done possible = check_codec(codec, arguments.collective, type, op);
            if (possible) return {};
            if (refused) refused = possible;
        }
    return refused;
}

Done check_combinations(const PerfArguments &arguments) {
    Done refused;
    for (const std::string &asked : arguments.algorithms)
        for (const Codec &codec : arguments.codecs) {
            const Done possible = check_combination(arguments, asked, codec);
            if (possible) return {};
            if (refused) refused = possible;
        }
    return refused;
}

Done run_benchmark(const RankContext &stage, const ProgressListener &listener) {
    for (uint32_t cycle = 0; stage.arguments.cycles == 0 || cycle < stage.arguments.cycles; cycle++)
        QCCL_TRY(run_cycle(stage, listener));
    return {};
}

} // namespace qccl::perf
