// Chooses the path of a call, the fast path over eager slots or the interpreter, and traces the
// call. Converts ticks to nanoseconds by the two clocks' progress since the counters were made.
#include "engine/run/engine.hpp"

#include "base/sizes.hpp"
#include "base/text.hpp"
#include "base/types.hpp"
#include "engine/run/eager_parts.hpp"
#include "engine/run/fast_path_run.hpp"
#include "engine/run/interpreter.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace qccl {

// ---- Counters

namespace {

uint64_t steady_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

} // namespace

Counters::Counters() : first_ticks_(ticks_now()), first_ns_(steady_ns()) {}

Counts Counters::read() const {
    const double ticks = static_cast<double>(ticks_now() - first_ticks_);
    const double ns_per_tick = ticks > 0 ? static_cast<double>(steady_ns() - first_ns_) / ticks : 1;
    return {.calls = calls.get(),
            .raw_bytes = raw_bytes.get(),
            .wire_bytes = wire_bytes.get(),
            .lent_bytes = lent_bytes.get(),
            .encode_ns = encode_ticks.ns(ns_per_tick),
            .copy_ns = copy_ticks.ns(ns_per_tick),
            .wait_ns = wait_ticks.ns(ns_per_tick),
            .wire_ns = wire_ticks.ns(ns_per_tick),
            .network_ns = 0,
            .device_bytes = device_bytes.get()};
}

// ---- Engine

// Fast-path calls refresh the windows only once in so many calls: a refresh reads cache lines that
// peers write, and so small a call feels that.
static constexpr uint64_t calls_between_refreshes = 64;

bool is_in_place(const Program &program, const Call &call) {
    if (program.send_bytes == 0 || program.recv_bytes == 0) return false;
    const auto send = reinterpret_cast<uintptr_t>(call.send);
    const auto recv = reinterpret_cast<uintptr_t>(call.recv);
    return send < recv + program.recv_bytes && recv < send + program.send_bytes;
}

// The accumulators of a large call are not worth keeping, unless it is a call of which the
// transport keeps memory, too. Allocating memory on a GPU is so slow that the engine keeps more of
// it there.
void Engine::give_back(const Program &program) {
    // A call on the fast path leaves little behind.
    if (program.fast_path && !memory_.recent_large.keeps_memory()) return;
    if (program.overflows && program.cut.inbox_bytes != 0) memory_.recent_large.note();
    const bool keeps_large = memory_.recent_large.end_call() || memory_.gpu;
    const size_t most_kept = keeps_large ? most_large_kept : size_t{16} << 20;
    for (DeviceMemory *const each : {&memory_.tiles, &memory_.scratch, &memory_.segments})
        if (each->bytes() > most_kept) *each = {};
    memory_.unpacked.give_back(most_kept);
}

Done prepare_gpu(EngineMemory &memory, const Device &device, const Program &program,
                 uint32_t lanes) {
    const Work &work = program.work;
    QCCL_TRY(memory.gpu->prepare(lanes));
    // Fast-path programs have no segments.
    const uint64_t count = program.fast_path ? program.layout.largest() : program.segment_values;
    const size_t needed = KernelLauncher::scratch_bytes(work.codec, work.type, count);
    const size_t each = round_up(needed, gpu_alignment);
    QCCL_TRY(grow(memory.scratch, device, lanes * each));
    for (uint32_t lane = 0; lane < lanes; lane++)
        memory.gpu->launcher(lane).use_scratch({memory.scratch.data() + lane * each, each});
    return {};
}

Done Engine::open_gpu() {
    QCCL_TRY(memory_.gpu->open());
    if (options_.device_eager_slots.by_rank.empty()) return {};
    QCCL_TRY(memory_.gpu_fast_path, GpuFastPath::create(device_, options_.device_eager_slots));
    return {};
}

Done Engine::run(const Program &program, const Call &call) {
    if (call.feedback) [[unlikely]]
        return run_with_feedback(program, call);
    return run_as_asked(program, call);
}

// The accumulator holds an input exactly, so that each addition has one rounding. Blocks stay in
// the L1 cache.
static void add_owed(const Kernels &kernels, const Work &work, const Call &call, uint64_t count,
                     std::byte *sums) {
    constexpr uint64_t values_at_once = 1024;
    const DataType type = real_type(work.type), sum_type = accumulator_of(type);
    const auto *const inputs = static_cast<const std::byte *>(call.send);
    const size_t bytes = type_bytes(type), sum_bytes = type_bytes(sum_type);
    for (uint64_t i = 0; i < count; i += values_at_once) {
        const uint64_t now = std::min(values_at_once, count - i);
        std::byte *const block = sums + i * sum_bytes;
        const std::byte *const owed = call.feedback->owed + i * sum_bytes;
        kernels.copy(sum_type, block, type, inputs + i * bytes, now, false);
        if (const size_t velocity = call.feedback->velocity)
            kernels.add_velocity(sum_type, block,
                                 call.feedback->residual + velocity + i * sum_bytes,
                                 owed + velocity, now, call.feedback->momentum);
        kernels.reduce(RedOp::sum, sum_type, block, sum_type, owed, now);
    }
}

// The lanes' streams do not wait for each other, so the host waits for this work.
Done Engine::add_owed_on_gpu(const Work &work, const Call &call, uint64_t count) {
    const DataType type = real_type(work.type), sum_type = accumulator_of(type);
    QCCL_TRY(memory_.gpu->prepare(1));
    KernelLauncher &launcher = memory_.gpu->launcher(0);
    std::byte *const sums = memory_.inputs.data();
    QCCL_TRY(launcher.copy(sum_type, sums, type, call.send, count));
    // The residual's last word may have a velocity in it.
    const size_t words = residual_room(count * type_bytes(sum_type)) / sizeof(uint64_t);
    QCCL_TRY(launcher.clear(call.feedback->residual, words));
    if (const size_t velocity = call.feedback->velocity)
        QCCL_TRY(launcher.add_velocity(sum_type, sums, call.feedback->residual + velocity,
                                       call.feedback->owed + velocity, count,
                                       call.feedback->momentum));
    QCCL_TRY(launcher.flush());
    QCCL_TRY(launcher.reduce(RedOp::sum, sum_type, sums, sum_type, call.feedback->owed, count));
    QCCL_TRY(launcher.flush());
    memory_.gpu->drain();
    return {};
}

Done Engine::run_with_feedback(const Program &program, const Call &call) {
    const Work &work = program.work;
    const DataType type = real_type(work.type);
    const uint64_t count = program.send_bytes / type_bytes(type);
    const size_t bytes = count * type_bytes(accumulator_of(type));
    QCCL_TRY(grow(memory_.inputs, device_, bytes));
    if (memory_.gpu) {
        QCCL_TRY(on_gpu([&] { return add_owed_on_gpu(work, call, count); }));
    } else if (bytes != 0) {
        add_owed(*device_.kernels, work, call, count, memory_.inputs.data());
        std::memset(call.feedback->residual, 0, bytes);
    }
    Call with = call;
    with.send = memory_.inputs.data();
    return run_as_asked(program, with);
}

Done Engine::run_as_asked(const Program &program, const Call &call) {
    if (options_.tracer) return run_traced(program, call);
    NoTrace none;
    return run_with(program, call, none);
}

namespace {

// Begins a traced call, and ends it in the trace however the call ends.
class TracedCall {
public:
    TracedCall(CallTracer &tracer, const CallTracer::CallStart &call)
        : tracer_(tracer), has_steps_(tracer.begin(call)) {}
    TracedCall(const TracedCall &) = delete;
    ~TracedCall() { tracer_.end(!is_done_); }

    bool has_steps() const { return has_steps_; }
    void done() { is_done_ = true; }

private:
    CallTracer &tracer_;
    const bool has_steps_;
    bool is_done_ = false;
};

} // namespace

Done Engine::run_traced(const Program &program, const Call &call) {
    CallTracer &tracer = *options_.tracer;
    TracedCall traced(tracer, {.number = call.number,
                               .tag = call.tag,
                               .shape = traced_shape(tracer, program),
                               .queued = call.queued});
    NoTrace none;
    StepTrace steps(tracer, program, call.number);
    QCCL_TRY(traced.has_steps() ? run_with(program, call, steps) : run_with(program, call, none));
    traced.done();
    return {};
}

static bool draws_noise(const Work &work) {
    return work.codec.draws_noise() || work.inner_codec.draws_noise();
}

// Ranks that encode the same sum need the same noise, so the descriptor compares what the states
// draw it from. That comes before the codec's name, which a long text would leave no room for.
static std::string with_state(const std::string &codec, const Program &program, const Call &call) {
    if (!call.feedback) return codec;
    const std::string with = codec + state_text(program.work);
    if (!draws_noise(program.work)) return with;
    return "state call " + std::to_string(call.feedback->call) + ", seed " +
           std::to_string(call.noise_seed) + ", " + with;
}

// All calls of one tag fall back to lossless together, so ranks whose tags differ must find that
// out at once: the descriptor compares the tag.
static std::string codec_text(const Program &program, const Call &call) {
    if (!call.sampled_nmse) return with_state(spec(program.work.codec), program, call);
    return with_state(program.asked_codec + " of tag " + std::to_string(call.tag), program, call);
}

static CallDescriptor descriptor_of(const Program &program, const Call &call) {
    CallDescriptor descriptor = program.shape.descriptor();
    if (call.counts_hash != 0) descriptor.root = call.counts_hash;
    if (!call.sampled_nmse && !call.feedback) return descriptor;
    const std::string text = shortened(codec_text(program, call), sizeof descriptor.codec - 1);
    std::ranges::fill(descriptor.codec, '\0');
    text.copy(descriptor.codec, text.size());
    return descriptor;
}

// Whether the call's descriptor has more than numbers that its program does not know.
static bool has_own_shape(const Program &program, const Call &call) {
    const bool draws = call.feedback && draws_noise(program.work);
    return call.sampled_nmse || call.counts_hash != 0 || draws;
}

static CallNumbers numbers_of(const Call &call) {
    return {.call = call.number, .tag = call.tag, .captured = call.captured};
}

void Engine::refresh_windows(const Program &program, const Call &call) {
    if (!program.fast_path || call.number % calls_between_refreshes == 0)
        transport_.windows().refresh();
}

Done Engine::begin_call(const Program &program, const Call &call) {
    refresh_windows(program, call);
    const CallNumbers numbers = numbers_of(call);
    const bool begins_with_slot = program.fast_path || program.exchanges_parts;
    const auto publishes = begins_with_slot && !memory_.gpu ? Transport::Publishes::after_eager_slot
                                                            : Transport::Publishes::at_once;
    if (has_own_shape(program, call)) [[unlikely]]
        QCCL_TRY(transport_.begin(descriptor_of(program, call), numbers, call.timeout, publishes));
    else
        QCCL_TRY(transport_.begin(program.shape, numbers, call.timeout, publishes));
    memory_.last_call = call.number;
    return {};
}

Done Engine::end_call(const Program &program) {
    give_back(program);
    QCCL_TRY(transport_.end());
    count_call(program);
    return {};
}

void Engine::count_call(const Program &program) {
    counters_.calls.add(1);
    counters_.raw_bytes.add(program.raw_bytes);
    // The interpreter counts packed messages, whose sizes depend on the values.
    if (program.unpacked_places.empty()) counters_.wire_bytes.add(program.wire_bytes);
}

template <class Trace>
Done Engine::run_with(const Program &program, const Call &call, Trace &trace) {
    if (program.fast_path && !memory_.gpu) {
        QCCL_TRY(run_on_fast_path(program, call, trace));
        give_back(program);
        count_call(program);
        return {};
    }
    QCCL_TRY(begin_call(program, call));
    QCCL_TRY(program.fast_path         ? run_on_gpu_fast_path(program, call, trace.for_gpu())
             : program.exchanges_parts ? run_parts(program, call, trace)
                                       : run_tasks(program, call, trace, nullptr));
    return end_call(program);
}

// An in-place sum stores into cache lines that have just been read as operands, so bypassing the
// cache would not pay.
bool Engine::streams_results(const Program &program, const Call &call) const {
    const bool sums_in_place = reduces(program.work.collective) && is_in_place(program, call);
    return program.raw_bytes * program.work.team.size > options_.streaming_bytes && !sums_in_place;
}

template <class Trace>
Done Engine::run_parts(const Program &program, const Call &call, Trace &trace) {
    memory_.eager_slots.resize(program.work.team.size);
    EagerParts parts(transport_, program, call, memory_.eager_slots, trace);
    QCCL_TRY(parts.exchange());
    if (parts.need_messages()) QCCL_TRY(run_tasks(program, call, trace, &parts.exchanged()));
    return parts.store();
}

template <class Trace>
Done Engine::run_tasks(const Program &program, const Call &call, Trace &trace,
                       const ExchangedParts *exchanged) {
    const bool streams = streams_results(program, call);
    if (memory_.gpu && program.work.op == RedOp::pre_mul_sum)
        QCCL_TRY(memory_.factors.fill(device_, *memory_.gpu, *call.op, program.segment_values));
    const auto run = [&] {
        return Interpreter(context(), program, call, streams, trace, exchanged).run();
    };
    return memory_.gpu ? on_gpu(run) : run();
}

template <class Run> Done Engine::on_gpu(Run run) {
    const uint64_t moved_before = memory_.gpu->moved_bytes();
    const Done done = run();
    // After an error the caller may free its buffers, so no kernel may be running.
    if (!done) memory_.gpu->drain();
    counters_.device_bytes.add(memory_.gpu->moved_bytes() - moved_before);
    return done;
}

Done Engine::prepare_sum(const Program &program) {
    if (const uint64_t bytes = program.fast_path->decoded_bytes)
        QCCL_TRY(grow(memory_.decoded, device_, bytes));
    if (const uint64_t bytes = program.fast_path->sum_bytes)
        return grow(memory_.segments, device_, bytes);
    return {};
}

FastPathCall Engine::bind_call(const Call &call) const {
    return {.send = static_cast<const std::byte *>(call.send),
            .recv = static_cast<std::byte *>(call.recv),
            .sum = memory_.segments.data(),
            .decoded = memory_.decoded.data(),
            .residual = call.feedback ? call.feedback->residual : nullptr,
            .velocity = call.feedback ? call.feedback->velocity : 0,
            .noise_call = noise_call(call),
            .noise_seed = call.noise_seed};
}

// Every small call comes here, and rare ones from two other places, for which the compiler would
// not inline it.
template <class Trace>
[[gnu::always_inline]] inline Done Engine::exchange(const Program &program, const CallShape &shape,
                                                    const Call &call, const FastPathCall &bound,
                                                    Trace &trace) {
    FastPathRun run(*device_.kernels, program, shape, numbers_of(call), call.timeout, bound, trace);
    return transport_.exchange(run);
}

template <class Trace>
[[gnu::always_inline]] inline Done Engine::exchange(const Program &program, const Call &call,
                                                    const FastPathCall &bound, Trace &trace) {
    if (has_own_shape(program, call)) [[unlikely]]
        return exchange(program, CallShape(descriptor_of(program, call)), call, bound, trace);
    return exchange(program, program.shape, call, bound, trace);
}

template <class Trace>
Done Engine::run_on_fast_path(const Program &program, const Call &call, Trace &trace) {
    refresh_windows(program, call);
    memory_.last_call = call.number;
    if (program.fast_path->needs_memory()) [[unlikely]]
        QCCL_TRY(prepare_sum(program));
    const FastPathCall bound = bind_call(call);
    if (is_made(program.work.op)) [[unlikely]]
        return run_made_op(program, call, bound, trace);
    return exchange(program, call, bound, trace);
}

Done Engine::multiply_input(const Program &program, const Call &call, FastPathCall &bound) {
    const DataType type = program.work.type;
    const uint64_t count = program.send_bytes / type_bytes(type);
    QCCL_TRY(grow(memory_.products, device_, program.send_bytes));
    std::byte *const products = memory_.products.data();
    const std::byte *const inputs = std::exchange(bound.send, products);
    if (!memory_.gpu) {
        InputScaling(*call.op, *device_.kernels).multiply(products, inputs, count);
        return {};
    }
    QCCL_TRY(memory_.factors.fill(device_, *memory_.gpu, *call.op, count));
    TileStep product{.what = Op::What::multiply,
                     .dst_type = type,
                     .src_type = type,
                     .dst = products,
                     .src = inputs,
                     .noise = {}};
    return launch_steps(memory_.gpu->launcher(0),
                        {.type = type, .count = count, .factors = memory_.factors.data()},
                        {&product, 1});
}

template <class Trace>
Done Engine::run_made_op(const Program &program, const Call &call, FastPathCall bound,
                         Trace &trace) {
    if (program.work.op == RedOp::pre_mul_sum) {
        QCCL_TRY(multiply_input(program, call, bound));
        return exchange(program, call, bound, trace);
    }
    CustomReduction custom(*call.op, *program.work.caller_type);
    bound.custom = &custom;
    QCCL_TRY(exchange(program, call, bound, trace));
    return custom.outcome();
}

Done Engine::run_on_gpu_fast_path(const Program &program, const Call &call, StepTrace *trace) {
    QCCL_TRY(prepare_sum(program));
    FastPathCall bound = bind_call(call);
    return on_gpu([&]() -> Done {
        QCCL_TRY(prepare_gpu(memory_, device_, program, 1));
        if (program.work.op == RedOp::pre_mul_sum) QCCL_TRY(multiply_input(program, call, bound));
        return memory_.gpu_fast_path->run(transport_, *memory_.gpu, program, bound, trace);
    });
}

bool Engine::can_run_at_once(const Program &program) const {
    const Work &work = program.work;
    if (!program.fast_path || memory_.gpu || work.collective != Collective::send) return false;
    return work.team.rank == work.team.root
               ? transport_.is_eager_slot_free(program.fast_path->eager_slot_bytes)
               : transport_.has_next_eager(work.team.root);
}

bool Engine::can_begin(const Program &program) const {
    const bool runs_tasks = !program.fast_path && !program.exchanges_parts && !program.overflows &&
                            !program.guard && program.work.feedback == Feedback::none;
    return runs_tasks && !memory_.gpu && !options_.tracer && transport_.can_begin_next() &&
           begins_without_wait(memory_, transport_, program);
}

Done Engine::await_readers() {
    if (memory_.device_outbox.empty() || memory_.last_call == 0) return {};
    return transport_.await_ended(memory_.last_call);
}

} // namespace qccl
