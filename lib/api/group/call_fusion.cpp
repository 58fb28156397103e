// Decides which calls are fused, and runs them as one: FusedCalls copies their inputs into a
// buffer, runs an all-reduce of the buffer, and copies the results to the callers.
#include "api/group/call_fusion.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>

namespace qccl {

// Copying a larger vector takes longer than sending it by itself.
static constexpr size_t most_bytes_of_a_call = size_t{64} << 10;

namespace {

// An algorithm whose fused calls `large` can run: both add the ranks' values in the same order,
// wherever in the vector the values are, and `large` is the one of that order for large vectors.
struct AdditionOrder {
    std::string_view algorithm, large;
};

constexpr AdditionOrder addition_orders[] = {
    {.algorithm = "oneshot", .large = "direct"},
    {.algorithm = "direct", .large = "direct"},
    {.algorithm = "doubling", .large = "doubling"},
};

} // namespace

// Returns the algorithm that can run fused calls of this one, or an empty name. Algorithms with the
// same answer add in the same order.
static std::string_view large_of(const Program &program) {
    const auto *const order =
        std::ranges::find(addition_orders, program.work.algorithm, &AdditionOrder::algorithm);
    return order == std::end(addition_orders) ? std::string_view() : order->large;
}

// Ranks that have cores of their own and share memory pass small vectors to each other as fast as
// they would copy them.
static bool pays(const Comm &comm) {
    const CommParts &parts = comm.parts();
    return parts.policy.hosts > 1 || parts.inputs.speeds.shares_cores();
}

static size_t bytes_of(const ReadyCall &call) {
    const Work &work = call.program->work;
    return work.count * type_bytes(work.type);
}

static bool can_be_fused(const ReadyCall &call) {
    const Program &program = *call.program;
    return program.work.collective == Collective::all_reduce && program.work.codec.is_lossless() &&
           program.work.inner_codec.is_lossless() && !is_made(program.work.op) && !program.guard &&
           !large_of(program).empty() && bytes_of(call) <= most_bytes_of_a_call;
}

FusedCalls::FusedCalls(const Comm &comm, const ReadyCall &first)
    : most_bytes_(comm.parts().fusion_bytes), calls_{&first}, count_(first.program->work.count) {
    takes_others_ = !comm.parts().device.gpu && comm.size() > 1 && pays(comm) &&
                    can_be_fused(first) && is_apart_from_others(first);
}

bool FusedCalls::is_apart_from_others(const ReadyCall &call) {
    const size_t bytes = bytes_of(call);
    if (bytes == 0) return true;
    const auto send = reinterpret_cast<uintptr_t>(call.request.send);
    const auto recv = reinterpret_cast<uintptr_t>(call.request.recv);
    const auto is_free = [&](uintptr_t start) {
        const auto after = buffers_.lower_bound(start);
        if (after != buffers_.end() && after->first - start < bytes) return false;
        return after == buffers_.begin() || std::prev(after)->second <= start;
    };
    if (!is_free(send) || !is_free(recv)) return false;
    buffers_.emplace(send, send + bytes);
    buffers_.emplace(recv, recv + bytes);
    return true;
}

// Whether calls of two programs may become one call.
static bool are_alike(const Program &first, const Program &next) {
    return next.work.type == first.work.type && next.work.op == first.work.op &&
           large_of(next) == large_of(first);
}

bool FusedCalls::join(const ReadyCall &next) {
    if (!takes_others_) return false;
    const ReadyCall &first = *calls_.front();
    if (next.request.tag != first.request.tag || next.request.timeout != first.request.timeout)
        return false;
    // Most groups have many calls of one shape.
    if (next.program != calls_.back()->program &&
        !(can_be_fused(next) && are_alike(*first.program, *next.program)))
        return false;
    const Work &work = next.program->work;
    const uint64_t count = count_ + work.count;
    if (count * type_bytes(work.type) > most_bytes_) return false;
    if (!is_apart_from_others(next)) return false;
    calls_.push_back(&next);
    count_ = count;
    return true;
}

// ---- The fused call

static Result<ProgramRef> fused_program(Comm &comm, const ReadyCall &first, uint64_t count) {
    const std::string_view large = large_of(*first.program);
    const CallPolicy &policy = comm.parts().policy;
    const Work &work = first.program->work;
    ProgramKey key;
    key.collective = work.collective;
    key.type = work.type;
    key.op = work.op;
    key.count = count;
    key.pieces = policy.choose_pieces(policy.traits(key.collective, key.type, key.op, count));
    QCCL_TRY(ProgramRef planned, comm.program(key));
    if (large_of(*planned) == large) return planned;
    QCCL_TRY(key.algorithm, parse_algorithm(large));
    return comm.program(key);
}

namespace {

// Where a call's values are in the buffer of the fused call, and in the caller's memory.
struct FusedPart {
    size_t offset, bytes;
    const void *send;
    void *recv;
};

struct FusionBuffer {
    explicit FusionBuffer(size_t bytes)
        : values(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}

    void copy_in() const {
        for (const FusedPart &each : parts)
            std::memcpy(values.get() + each.offset, each.send, each.bytes);
    }
    void copy_out() const {
        for (const FusedPart &each : parts)
            std::memcpy(each.recv, values.get() + each.offset, each.bytes);
    }

    std::unique_ptr<std::byte[]> values;
    std::vector<FusedPart> parts;
};

} // namespace

Done FusedCalls::run(Comm &comm, const CallStream &stream) const {
    const ReadyCall &first = *calls_.front();
    if (calls_.size() == 1) return comm.run(first.program, first.request, stream);
    QCCL_TRY(const ProgramRef program, fused_program(comm, first, count_));
    const auto buffer =
        std::make_shared<FusionBuffer>(count_ * type_bytes(first.program->work.type));
    size_t offset = 0;
    for (const ReadyCall *const each : calls_) {
        const size_t bytes = bytes_of(*each);
        // A call of no values may have no buffers.
        if (bytes > 0)
            buffer->parts.push_back({offset, bytes, each->request.send, each->request.recv});
        offset += bytes;
    }
    Request request = first.request;
    request.send = request.recv = buffer->values.get();
    if (!stream.host) {
        buffer->copy_in();
        QCCL_TRY(comm.run(program, request, stream));
        buffer->copy_out();
        return {};
    }
    stream.host->enqueue({.run = [buffer]() -> Done {
        buffer->copy_in();
        return {};
    }});
    QCCL_TRY(comm.run(program, request, stream));
    stream.host->enqueue({.run = [buffer]() -> Done {
        buffer->copy_out();
        return {};
    }});
    return {};
}

} // namespace qccl
