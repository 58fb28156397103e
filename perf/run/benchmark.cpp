// Implements benchmark.hpp: allocates a rank's buffers for each type and runs one Point for each
// operation, root and size. A Point prepares the cases, times them in turns, checks their results
// and reads the library's counters.
#include "perf/run/benchmark.hpp"

#include "coll/algorithm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace qccl::perf {

// ---- One point

static constexpr uint32_t fewest_pairs = 11; // turns, and minimum of iterations with a baseline

struct Pace {
    uint32_t iterations;
    uint32_t aggregated;
};

// Returns a number of calls that gives a usable median. Small calls are many and are timed ten at a
// time, because reading the clock takes 20 to 50 ns. Large calls are few. -n and -m override this.
static Pace pace_of(const PerfArguments &arguments, uint64_t bytes) {
    struct Rule {
        uint64_t most_bytes;
        Pace pace;
    };
    static constexpr Rule rules[] = {{4096, {.iterations = 200, .aggregated = 10}},
                                     {65536, {.iterations = 400, .aggregated = 1}},
                                     {uint64_t{1} << 20, {.iterations = 100, .aggregated = 1}}};
    Pace pace{.iterations = PerfArguments::default_iterations, .aggregated = 1};
    if (!arguments.iterations && !arguments.aggregated)
        for (const Rule &rule : rules)
            if (bytes <= rule.most_bytes) {
                pace = rule.pace;
                break;
            }
    return {.iterations = arguments.iterations.value_or(pace.iterations),
            .aggregated = arguments.aggregated.value_or(pace.aggregated)};
}

Done Point::add_case(const Codec &codec, const std::string &asked, bool is_shown) {
    auto one = std::make_unique<Case>();
    one->codec = codec;
    one->asked = asked;
    one->is_shown = is_shown;
    QCCL_TRY(one->handle, create_codec(codec));
    one->config.codec = one->handle.get();
    const std::string algorithm = asked == "auto" ? "" : asked;
    one->config.algorithm = algorithm.empty() ? nullptr : one->asked.c_str();
    // Scaled values are planned as others. Of the messages of a hypercube the last ones are the
    // largest.
    Operation planned = operation_;
    if (planned.op == RedOp::pre_mul_sum) planned.op = RedOp::sum;
    if (planned.pattern == Pattern::hypercube) planned.count *= std::max(planned.ranks / 2, 1U);
    QCCL_TRY(one->plan, plan_of(context_.comm, planned, codec, algorithm));
    cases_.push_back(std::move(one));
    return {};
}

// Says why rows have no baseline although the user asked for one.
std::string Point::no_baseline_note() const {
    Operation small = operation_;
    small.count = 1;
    std::string note = context_.mpi->library();
    if (context_.mpi->has(small)) {
        note += " counts no more than 2147483647 values";
    } else {
        note += std::string(" has no ") + name(operation_.kind()) + " of " + name(operation_.type);
        if (reduces(operation_.collective)) note += std::string(" with ") + name(operation_.op);
    }
    return note + ": rows without a baseline";
}

Done Point::prepare(const ProgressListener &listener) {
    if (context_.mpi && !has_baseline()) listener.note(no_baseline_note());
    QCCL_TRY(RankOp op, RankOp::create(operation_, context_.comm, context_.rank_group.rank()));
    op_.emplace(std::move(op));
    for (const std::string &asked : context_.arguments.algorithms) {
        const auto algorithm = parse_algorithm(asked);
        if (algorithm && !algorithm->has(operation_.kind().called())) {
            listener.note(asked + " has no " + name(operation_.kind().called()));
            continue;
        }
        bool has_lossless = false, has_any = false;
        for (const Codec &codec : context_.arguments.codecs) {
            const Done possible =
                check_call_codec(codec, operation_.kind(), operation_.type, operation_.op);
            if (!possible) {
                listener.note(spec(codec) + " is left out: " + possible.error().text);
                continue;
            }
            QCCL_TRY(add_case(codec, asked, true));
            if (is_unpaid(codec, cases_.back()->plan.codec)) listener.note(unpaid_note(codec));
            has_any = true;
            has_lossless |= codec.is_lossless();
        }
        const bool is_compared = context_.arguments.has_lossless_beside;
        if (has_any && !has_lossless && is_compared) QCCL_TRY(add_case(Codec{}, asked, false));
    }
    return {};
}

// In place, the smaller buffer is inside the larger one, at this rank's part.
std::function<Done()> Point::call_of(const qcclCollConfig_t *config, bool in_place) {
    const CallingRank caller{context_.comm, context_.rank_group.rank(), context_.device, counts_,
                             op_->get()};
    const std::byte *const send = in_place ? nullptr : send_;
    return [=, this] { return make_calls(caller, operation_, send, recv_, config); };
}

// No call writes to `send_`, so it always holds the input.
Done Point::refill(bool in_place) {
    if (!in_place) return {};
    const uint32_t rank = context_.rank_group.rank();
    const size_t bytes = operation_.send_count(rank) * element_bytes();
    const std::byte *from = send_;
    std::byte *to = recv_ + operation_.send_in_place_start(rank) * element_bytes();
    for (uint32_t call = 0; call < operation_.calls(); call++) {
        QCCL_TRY(context_.device.copy(to, from, bytes));
        from += operation_.send_part() * element_bytes();
        to += operation_.recv_part() * element_bytes();
    }
    return {};
}

// Fills the receive buffer with a pattern, so that elements that a call leaves unwritten are found.
Done Point::poison() {
    static constexpr int poison = 0xA5;
    const size_t bytes = operation_.bytes();
    std::memset(host_ ? host_ : recv_, poison, bytes);
    return host_ ? context_.device.copy(recv_, host_, bytes) : Done();
}

Done Point::take_input() {
    std::byte *const input = host_ ? host_ : send_;
    const uint64_t count = operation_.send_part() * operation_.calls();
    context_.source.read(context_.rank_group.rank(), operation_.type, 0, count, input);
    return host_ ? context_.device.copy(send_, host_, count * element_bytes()) : Done();
}

Result<const std::byte *> Point::result_on_host(uint32_t call, bool in_place) {
    const uint32_t rank = context_.rank_group.rank();
    const uint64_t start = in_place ? operation_.recv_in_place_start(rank) : 0;
    const uint64_t first = call * operation_.recv_part() + start;
    const std::byte *const result = recv_ + first * element_bytes();
    if (!host_) return result;
    QCCL_TRY(context_.device.copy(host_, result, operation_.recv_count(rank) * element_bytes()));
    return host_;
}

// An in-place sum grows by a factor of the number of ranks with every call.
uint64_t Point::calls_per_refill(bool in_place) const {
    if (!in_place || !reduces(operation_.collective) || !has_reals(operation_.type)) return 0;
    if (operation_.op == RedOp::prod) return 1;
    const bool is_scaled = operation_.op == RedOp::pre_mul_sum;
    if ((operation_.op != RedOp::sum && !is_scaled) || operation_.ranks < 2) return 0;
    const double growth = operation_.ranks * (is_scaled ? most_scalar : 1U);
    static constexpr double input_exponent = 4;
    const double largest_exponent = info(real_type(operation_.type)).format.highest;
    const double calls = (largest_exponent - input_exponent) / std::log2(growth);
    return static_cast<uint64_t>(std::max(calls, 1.0));
}

TimedCall Point::timed_call(const Case &one, bool in_place) {
    // The communicator defaults to codec none and algorithm auto, so this case is the plain call
    // that most programs make.
    const bool is_plain = one.codec.is_lossless() && one.asked == "auto";
    std::function<Done()> finish;
    if (context_.device.enqueues())
        finish = [this] { return finish_calls(context_.device, context_.comm); };
    return {.call = call_of(is_plain ? nullptr : &one.config, in_place),
            .finish = finish,
            .refill = [this, in_place] { return refill(in_place); },
            .calls_per_refill = calls_per_refill(in_place)};
}

TimedCall Point::baseline(bool in_place) {
    // MPI's in-place reduce-scatter takes the whole buffer and leaves the result at its beginning;
    // MPI's broadcast always has one buffer.
    const std::byte *const send = in_place ? nullptr : send_;
    const auto call = [this, send]() -> Done {
        if (context_.mpi->call(operation_, send, recv_) == 0) return {};
        return Error::make(Code::remote_error, "%s: %s failed", context_.mpi->library(),
                           name(operation_.kind()));
    };
    return {.call = call,
            .refill = [this, in_place] { return refill(in_place); },
            .calls_per_refill = calls_per_refill(in_place)};
}

TurnOptions Point::turn_options(size_t timed_calls, bool in_place) const {
    const PerfArguments &arguments = context_.arguments;
    const Pace pace = pace_of(arguments, operation_.bytes());
    TurnOptions options{.iterations = pace.iterations,
                        .warmup_iterations = arguments.warmup_iterations,
                        .aggregated = pace.aggregated,
                        .turns = timed_calls > 1 ? fewest_pairs : 1,
                        .lead_in = 1,
                        .barrier_between = arguments.blocking == Blocking::with_barrier};
    if (has_baseline()) options.iterations = std::max(options.iterations, fewest_pairs);
    const uint64_t refill = calls_per_refill(in_place);
    if (!arguments.aggregated && refill > 0)
        options.aggregated = static_cast<uint32_t>(std::min<uint64_t>(options.aggregated, refill));
    return options;
}

// Returns the largest of the ranks' medians, or nothing if no rank enqueues calls.
static Result<std::optional<double>> slowest_enqueue(RankGroup &rank_group, const Times &times) {
    const double none = -1;
    QCCL_TRY(
        const auto all,
        gather(rank_group, times.enqueue_us.empty() ? none : statistics(times.enqueue_us).median));
    const double most = *std::ranges::max_element(all);
    return most == none ? std::nullopt : std::optional(most);
}

// Uses for each iteration the time of the rank that -a selects.
Result<Measurement> Point::summarize(const Times &times) {
    RankGroup &rank_group = context_.rank_group;
    const size_t iterations = times.us.size();
    std::vector<double> all(iterations * rank_group.size()), cpu(all.size());
    QCCL_TRY(rank_group.allgather(times.us.data(), all.data(), iterations * sizeof(double)));
    QCCL_TRY(rank_group.allgather(times.cpu_us.data(), cpu.data(), iterations * sizeof(double)));
    const auto pick = [&](const std::vector<double> &from, size_t iteration) {
        std::vector<double> of_ranks(rank_group.size());
        for (uint32_t rank = 0; rank < rank_group.size(); rank++)
            of_ranks[rank] = from[rank * iterations + iteration];
        const Statistics ranks = statistics(of_ranks);
        switch (context_.arguments.average) {
        case Average::rank_0: return of_ranks[0];
        case Average::mean: return ranks.mean;
        case Average::fastest: return ranks.min;
        case Average::slowest: break;
        }
        return ranks.max;
    };
    Measurement measurement;
    for (uint32_t rank = 0; rank < rank_group.size(); rank++) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(rank * iterations);
        measurement.ranks_us.emplace_back(first, first + static_cast<std::ptrdiff_t>(iterations));
    }
    for (const auto &rank : measurement.ranks_us)
        measurement.sustained_us = std::max(measurement.sustained_us, statistics(rank).mean);
    std::vector<double> picked_us, cpu_us;
    for (size_t i = 0; i < iterations; i++) {
        picked_us.push_back(pick(all, i));
        cpu_us.push_back(pick(cpu, i));
        double longest = 0;
        for (const auto &rank : measurement.ranks_us) longest = std::max(longest, rank[i]);
        measurement.iterations_us.push_back(longest);
    }
    measurement.time_us = statistics(picked_us);
    QCCL_TRY(measurement.enqueue_us, slowest_enqueue(rank_group, times));
    measurement.shown_us =
        context_.arguments.reports_cpu_time ? statistics(cpu_us).mean : measurement.time_us.mean;
    return measurement;
}

// Each counter in `all` holds its increase during the call.
static std::optional<TimeShares> time_shares(std::span<const qcclCommStats_t> all) {
    TimeShares sum;
    for (const qcclCommStats_t &rank : all) {
        const uint64_t others = rank.wait_ns + rank.wire_ns;
        const uint64_t network = std::min(rank.network_ns, others);
        sum.encode += static_cast<double>(rank.encode_ns);
        sum.copy += static_cast<double>(rank.copy_ns);
        sum.network += static_cast<double>(network);
        sum.wait += static_cast<double>(others - network);
    }
    const double ns = sum.encode + sum.copy + sum.network + sum.wait;
    if (ns == 0) return std::nullopt;
    return TimeShares{sum.encode / ns, sum.copy / ns, sum.network / ns, sum.wait / ns};
}

Result<Point::CallWork> Point::work_of(const std::function<Done()> &call) {
    qcclCommStats_t before{}, after{};
    before.size = after.size = sizeof before;
    QCCL_TRY(
        explained(qcclCommGetStats(context_.comm, &before), "qcclCommGetStats", context_.comm));
    QCCL_TRY(call());
    QCCL_TRY(finish_calls(context_.device, context_.comm));
    QCCL_TRY(explained(qcclCommGetStats(context_.comm, &after), "qcclCommGetStats", context_.comm));
    for (const auto field :
         {&qcclCommStats_t::wire_bytes, &qcclCommStats_t::encode_ns, &qcclCommStats_t::copy_ns,
          &qcclCommStats_t::wait_ns, &qcclCommStats_t::wire_ns, &qcclCommStats_t::network_ns})
        after.*field -= before.*field;
    QCCL_TRY(const auto all, gather(context_.rank_group, after));
    CallWork work{.shares = time_shares(all)};
    for (const qcclCommStats_t &rank : all)
        work.wire_bytes = std::max(work.wire_bytes, rank.wire_bytes);
    return work;
}

Result<uint64_t> Point::lossless_wire_bytes(const std::string &algorithm) {
    if (const auto known = lossless_wires_.find(algorithm); known != lossless_wires_.end())
        return known->second;
    QCCL_TRY(const CodecHandle none, create_codec(Codec{}));
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = none.get();
    config.algorithm = algorithm.c_str();
    QCCL_TRY(const CallWork work, work_of(call_of(&config, false)));
    lossless_wires_[algorithm] = work.wire_bytes;
    return work.wire_bytes;
}

namespace {

// The inputs from an element on, for the calls of a group.
class ShiftedSource final : public Source {
public:
    ShiftedSource(const Source &all, uint64_t first) : all_(all), first_(first) {}
    void read(uint32_t rank, DataType type, uint64_t first, size_t count,
              std::byte *dst) const override {
        all_.read(rank, type, first_ + first, count, dst);
    }
    uint32_t exact_ranks(DataType type) const override { return all_.exact_ranks(type); }

private:
    const Source &all_;
    uint64_t first_;
};

} // namespace

// Checks each call of a group by itself. The error of all is the mean, because their inputs are
// alike.
Result<CheckResult> Point::check_calls(const Codec &codec, bool in_place) {
    CheckResult all;
    for (uint32_t call = 0; call < operation_.calls(); call++) {
        const ShiftedSource source(context_.source, call * operation_.send_part());
        QCCL_TRY(const std::byte *const result, result_on_host(call, in_place));
        QCCL_TRY(const CheckResult one,
                 check_result(context_.rank_group, operation_, codec, source, result));
        if (call == 0) {
            all = one;
            continue;
        }
        all.wrong += one.wrong;
        all.overflowed += one.overflowed;
        if (all.nmse && one.nmse) *all.nmse += *one.nmse;
        if (all.max_abs_err && one.max_abs_err)
            all.max_abs_err = std::max(*all.max_abs_err, *one.max_abs_err);
        if (one.ranks_agree == false) all.ranks_agree = false;
    }
    if (all.nmse) *all.nmse /= operation_.calls();
    return all;
}

Done Point::inspect(const Case &one, bool in_place, Measurement &measurement) {
    const auto call = call_of(&one.config, in_place);
    for (uint32_t check = 0; check < std::max<uint32_t>(context_.arguments.checks, 1); check++) {
        QCCL_TRY(poison());
        QCCL_TRY(refill(in_place));
        QCCL_TRY(const CallWork work, work_of(call));
        measurement.wire_bytes = work.wire_bytes;
        measurement.shares = work.shares;
        if (context_.arguments.checks == 0) break;
        QCCL_TRY(const CheckResult found, check_calls(one.plan.codec, in_place));
        measurement.wrong = found.wrong;
        measurement.overflowed = found.overflowed;
        measurement.nmse = found.nmse;
        measurement.max_abs_err = found.max_abs_err;
        measurement.ranks_agree = found.ranks_agree;
        if (found.wrong > 0) break;
    }
    QCCL_TRY(const uint64_t lossless, lossless_wire_bytes(one.plan.algorithm));
    if (measurement.wire_bytes > 0)
        measurement.ratio =
            static_cast<double>(lossless) / static_cast<double>(measurement.wire_bytes);
    return {};
}

Result<std::vector<Measurement>> Point::measure(bool in_place) {
    std::vector<TimedCall> timed_calls;
    for (const auto &one : cases_) timed_calls.push_back(timed_call(*one, in_place));
    if (has_baseline()) timed_calls.push_back(baseline(in_place));
    QCCL_TRY(const std::vector<Times> times,
             time_in_turns(context_.rank_group, timed_calls,
                           turn_options(timed_calls.size(), in_place)));

    std::vector<Measurement> measurements;
    for (const Times &one : times) {
        QCCL_TRY(Measurement measurement, summarize(one));
        measurements.push_back(std::move(measurement));
    }
    for (size_t i = 0; i < cases_.size(); i++) {
        QCCL_TRY(inspect(*cases_[i], in_place, measurements[i]));
        if (has_baseline()) {
            measurements[i].baseline_us = measurements.back().time_us.median;
            measurements[i].baseline_sustained_us = measurements.back().sustained_us;
        }
        for (size_t other = 0; other < cases_.size(); other++)
            if (cases_[other]->codec.is_lossless() && cases_[other]->asked == cases_[i]->asked)
                measurements[i].speedup =
                    measurements[other].time_us.median / measurements[i].time_us.median;
    }
    return measurements;
}

Row Point::row_of(const Case &one, const Measurement &out_of_place,
                  const Measurement &in_place) const {
    return {.operation = operation_,
            .codec = one.codec,
            .used_codec = one.plan.codec,
            .algorithm = one.plan.algorithm,
            .transport = one.plan.transport,
            .devices = context_.arguments.devices_of_ranks(),
            .baseline = has_baseline() ? context_.mpi->library() : "",
            .nmse_predicted = one.plan.nmse_predicted,
            .out_of_place = out_of_place,
            .in_place = in_place};
}

Result<std::vector<Row>> Point::run() {
    QCCL_TRY(take_input());
    QCCL_TRY(const std::vector<Measurement> out_of_place, measure(false));
    std::vector<Measurement> in_place(cases_.size());
    if (operation_.has_in_place()) {
        QCCL_TRY(in_place, measure(true));
    } else {
        for (Measurement &each : in_place) each.is_known = false;
    }
    std::vector<Row> rows;
    for (size_t i = 0; i < cases_.size(); i++)
        if (cases_[i]->is_shown) rows.push_back(row_of(*cases_[i], out_of_place[i], in_place[i]));
    return rows;
}

// ---- The sweep

// The buffers of one rank for the largest call of one type. The input of a gather is one part of
// its result. For the other operations both buffers have the larger size, which receiving in place
// needs anyway.
struct BufferSizes {
    size_t send, recv;
};

static BufferSizes buffer_sizes(const PerfArguments &arguments, DataType type, uint32_t ranks) {
    const size_t offset = arguments.unaligned_elements * type_bytes(type);
    const uint64_t calls = std::max(arguments.group, 1U);
    // A rank's part of a v-form may be everything.
    const bool is_part = gathers(arguments.kind()) && arguments.pattern != Pattern::v_form;
    const uint64_t sent = arguments.max_bytes / (is_part ? ranks : 1);
    return {.send = sent * calls + offset, .recv = arguments.max_bytes * calls + offset};
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
    return std::string(name(operation.kind())) + " of " + std::to_string(operation.bytes()) +
           " bytes, " + name(operation.type) + " " +
           (reduces(operation.collective) ? name(operation.op) : "");
}

// Like nccl-tests, a size below the minimum is still measured, as a call of 0 elements.
static std::string empty_note(const Operation &operation, uint64_t size) {
    const std::string least =
        has_part_per_rank(operation.kind())
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

    static Result<RankBuffers> create(const RankContext &context, DataType type);
};

// The barrier at the end keeps host memory from being allocated or freed while one rank's stream
// waits for another's, because a GPU may postpone such work until the wait is over.
Result<RankBuffers> RankBuffers::create(const RankContext &context, DataType type) {
    const PerfArguments &arguments = context.arguments;
    const size_t offset = arguments.unaligned_elements * type_bytes(type);
    const BufferSizes sizes = buffer_sizes(arguments, type, context.rank_group.size());
    QCCL_TRY(Buffer send, Buffer::create(context.device, arguments.buffers, sizes.send, offset));
    QCCL_TRY(Buffer recv, Buffer::create(context.device, arguments.buffers, sizes.recv, offset));
    RankBuffers buffers{
        .send = std::move(send), .recv = std::move(recv), .host = {}, .registered = {}};
    if (const auto &gpu = context.device.gpu()) {
        QCCL_TRY(buffers.host, PinnedMemory::create(gpu, sizes.recv + 1));
    } else if (arguments.registers()) {
        for (const Buffer *buffer : {&buffers.send, &buffers.recv}) {
            QCCL_TRY(Registered one, Registered::create(context.comm, *buffer));
            buffers.registered.push_back(std::move(one));
        }
    }
    QCCL_TRY(context.rank_group.barrier());
    return Result<RankBuffers>(std::move(buffers));
}

// Measures all sizes of one type, operation and root.
static Done sweep(const RankContext &context, const ProgressListener &listener,
                  const Operation &what, RankBuffers &buffers, uint64_t &step) {
    for (const uint64_t size : sweep_sizes(context.arguments)) {
        const Operation operation =
            operation_of(context.arguments, what.type, what.op, what.root, what.ranks, size);
        listener.progress(step++, words(operation));
        if (size > 0 && operation.count == 0) listener.note(empty_note(operation, size));
        Point point(context, operation, buffers.send.data(), buffers.recv.data(),
                    buffers.host.data());
        QCCL_TRY(point.prepare(listener));
        QCCL_TRY(const std::vector<Row> found, point.run());
        for (const Row &row : found) listener.row(row);
    }
    return {};
}

// Measures all operations and roots of one type.
static Done sweep_all(const RankContext &context, const ProgressListener &listener, DataType type,
                      RankBuffers &buffers, uint64_t &step) {
    const PerfArguments &arguments = context.arguments;
    const uint32_t ranks = context.rank_group.size();
    for (const RedOp op : arguments.ops) {
        // Of several types and operations, those that go together are measured.
        if (const Done possible = check_op(arguments.collective, type, op); !possible) {
            if (arguments.ops.size() == 1)
                listener.note(std::string(name(type)) + " is left out: " + possible.error().text);
            continue;
        }
        for (const uint32_t root : sweep_roots(arguments, ranks))
            QCCL_TRY(sweep(context, listener,
                           {.collective = arguments.collective,
                            .type = type,
                            .op = op,
                            .root = root,
                            .ranks = ranks},
                           buffers, step));
    }
    return {};
}

static Done run_cycle(const RankContext &context, const ProgressListener &listener) {
    uint64_t step = 0;
    for (const DataType type : sweep_types(context.arguments)) {
        QCCL_TRY(RankBuffers buffers, RankBuffers::create(context, type));
        const Done swept = sweep_all(context, listener, type, buffers, step);
        // Work of the failed call may still be in the stream.
        if (!swept) (void)context.device.wait();
        QCCL_TRY(swept);
    }
    return {};
}

// Checks whether an algorithm and a codec can perform at least one of the calls.
static Done check_combination(const PerfArguments &arguments, const std::string &asked,
                              const Codec &codec) {
    const auto algorithm = parse_algorithm(asked);
    if (const Collective called = arguments.kind().called(); algorithm && !algorithm->has(called))
        return invalid_argument("%s has no %s", asked.c_str(), name(called));
    Done refused;
    for (const DataType type : sweep_types(arguments))
        for (const RedOp op : arguments.ops) {
            const Done possible = check_call_codec(codec, arguments.kind(), type, op);
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

Done run_benchmark(const RankContext &context, const ProgressListener &listener) {
    for (uint32_t cycle = 0; context.arguments.cycles == 0 || cycle < context.arguments.cycles;
         cycle++)
        QCCL_TRY(run_cycle(context, listener));
    return {};
}

} // namespace qccl::perf
