// Compiles an algorithm's schedule: places the codec, fuses and lowers the steps, cuts the call
// into segments, and derives tasks, operations, dependencies and buffer sizes.
#include "engine/compile/program.hpp"

#include "base/text.hpp"
#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "engine/compile/translate.hpp"
#include "schedule/lower.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

namespace qccl {

std::string state_text(const Work &work) {
    if (work.feedback == Feedback::none) return {};
    if (work.momentum == work.codec.momentum) return " with a state"; // the spec has it
    return " with momentum " + write_decimal(work.momentum, 3);
}

void Program::set_asked(std::string codec, std::string algorithm) {
    asked_hash = hash_text(codec + " " + algorithm);
    asked_codec = std::move(codec);
    asked_algorithm = std::move(algorithm);
}

namespace {

// Bytes of accumulator in a tile. With its sources and destinations a tile leaves space in an L1
// cache of 32 KiB.
constexpr size_t tile_bytes = size_t{8} << 10;

CallDescriptor describe(const Work &work) {
    CallDescriptor descriptor;
    descriptor.count = work.caller_count();
    descriptor.collective = work.called();
    descriptor.type = work.caller_type.value_or(work.type);
    if (reduces(work.collective)) descriptor.op = work.op;
    if (row_of(work.collective).has_root) descriptor.root = work.team.root;
    if (work.parts && work.parts->are_common()) descriptor.root = work.parts->common_hash();
    const std::string codec =
        shortened(spec(work.codec) + state_text(work), sizeof descriptor.codec - 1);
    std::snprintf(descriptor.codec, sizeof descriptor.codec, "%s", codec.c_str());
    const std::string algorithm = shortened(work.algorithm, sizeof descriptor.algorithm - 1);
    std::snprintf(descriptor.algorithm, sizeof descriptor.algorithm, "%s", algorithm.c_str());
    return descriptor;
}

// Returns true if the peer is known to be on this rank's host.
bool is_local(const Work &work, uint32_t peer) {
    if (!work.team.places) return false;
    const Partition &hosts = work.team.places->hosts();
    return hosts.group_of(peer) == hosts.group_of(work.team.rank);
}

// Returns the most bytes that the step's chunk takes in one instance, encoded. `place` is the slot
// that the step has it in.
size_t most_bytes(const Program &program, const Step &step, Slot place) {
    const Work &work = program.work;
    const uint64_t count =
        std::min(program.layout.range(place, step.chunk).count, program.segment_values);
    return most_encoded_bytes(work.codec_of(step), work.type, count);
}

// Fills in tasks, operations and dependencies.
class Compiler {
public:
    // With `multiplies` the operations multiply inputs by the call's factor.
    Compiler(Program &program, const Fused &fused, bool multiplies)
        : program_(program), schedule_(program.schedule),
          runs_(find_runs(schedule_, program.cut.joins)),
          accumulators_(place_accumulators(fused, runs_, program.cut.joins)),
          outputs_read_(read_outputs(schedule_)) {
        if (multiplies) product_ = {OperandRef::Kind::tile, accumulators_.tile_buffers};
        program_.decoded_tile = accumulators_.tile_buffers + (product_ ? 1 : 0);
    }

    Done run(const Dependencies &dependencies) {
        const bool decodes = program_.work.feedback != Feedback::none;
        program_.tile_buffers = program_.decoded_tile + (decodes ? 1 : 0);
        program_.segment_buffers = accumulators_.segment_buffers;
        for (const StepRun &run : runs_) QCCL_TRY(add_task(run));
        find_readers();
        // A part that has ended sends nothing more, and a batch would wait for it.
        if (program_.cut.inbox_bytes != 0 && !program_.layout.is_pairwise()) find_batches();
        order(dependencies);
        const Chunking &cut = program_.cut;
        program_.allows_zero_copy = program_.work.feedback == Feedback::none &&
                                    program_.work.codec.is_lossless() &&
                                    program_.work.inner_codec.is_lossless() && !cut.has_checksums &&
                                    program_.raw_bytes >= cut.zero_copy_bytes;
        if (program_.allows_zero_copy)
            program_.zero_copy_sources = find_zero_copy_sources(schedule_, runs_);
        // Peers need the products.
        if (product_)
            for (ZeroCopySource &each : program_.zero_copy_sources) each.input.reset();
        // In place, two ranks that exchange parts would each wait for the other to read first.
        if (row_of(program_.work.collective).exchanges)
            for (ZeroCopySource &each : program_.zero_copy_sources) each.also_in_place = false;
        return {};
    }

private:
    const Step &step(const Task &task) const { return schedule_.steps[task.first]; }

    Done add_task(StepRun run) {
        const Step &head = schedule_.steps[run.first];
        Task task{.first = run.first, .last = run.last, .awaited = program_.work.team.rank};
        if (computes(head.verb)) {
            const Translation translation{.schedule = &schedule_,
                                          .accumulators = accumulators_.of,
                                          .type = program_.work.type,
                                          .is_lossless = program_.work.codec.is_lossless(),
                                          .is_inner_lossless =
                                              program_.work.inner_codec.is_lossless(),
                                          .rank = program_.work.team.rank,
                                          .divides = divides(),
                                          .sums_exactly = program_.work.sums_exactly(),
                                          .feedback = program_.work.feedback,
                                          .product = product_};
            task.first = static_cast<uint32_t>(program_.ops.size());
            QCCL_TRY(translate(translation, run, outputs_read_, program_.ops));
            task.last = static_cast<uint32_t>(program_.ops.size());
        } else {
            task.kind = head.verb == Verb::send ? Task::Kind::send : Task::Kind::recv;
            task.awaited = head.peer;
        }
        add_uses(run, task);
        program_.tasks.push_back(task);
        return {};
    }

    bool divides() const {
        const Work &work = program_.work;
        return reduces(work.collective) && work.op == RedOp::avg && work.team.size > 1;
    }

    // Appends the wire slots that the run reads, each once.
    void add_uses(StepRun run, Task &task) {
        std::vector<uint32_t> &uses = program_.uses;
        task.uses_first = static_cast<uint32_t>(uses.size());
        for (uint32_t i = run.first; i < run.last; i++)
            for (uint32_t k = 0; k < schedule_.steps[i].sources; k++) {
                const Step &reader = schedule_.steps[i];
                if (!reader.src.is(SlotKind::wire)) continue;
                const uint32_t wire = reader.src.index + k;
                if (std::find(uses.begin() + task.uses_first, uses.end(), wire) == uses.end())
                    uses.push_back(wire);
            }
        task.uses_last = static_cast<uint32_t>(uses.size());
    }

    void find_readers() {
        std::vector<Task *> filler(schedule_.wires); // last receive into each; null: own
        for (Task &task : program_.tasks) {
            for (uint32_t i = task.uses_first; i < task.uses_last; i++)
                if (Task *const recv = filler[program_.uses[i]]) recv->readers++;
            if (task.kind == Task::Kind::recv) filler[step(task).dst.index] = &task;
        }
    }

    void find_batches() {
        const std::vector<uint32_t> place_in_series = places_in_series(schedule_);
        uint64_t batch_bytes = 0; // of the last batch
        for (uint32_t i = 0; i < program_.tasks.size(); i++) {
            const Task &task = program_.tasks[i];
            if (task.kind != Task::Kind::send) continue;
            const Step &send = step(task);
            const uint64_t entry = batch_entry_bytes + most_bytes(program_, send, send.src);
            if (place_in_series[task.first] != 0 && !is_local(program_.work, send.peer) &&
                batch_bytes + entry <= most_batch_bytes) {
                program_.tasks[batches_.back().back()].goes_with_next = true;
                batches_.back().push_back(i);
                batch_bytes += entry;
            } else {
                batches_.push_back({i});
                batch_bytes = entry;
            }
        }
    }

    // Makes each send of a batch wait for every task before the batch that any of its sends waits
    // for.
    void join_batches(std::vector<Order> &orders) const {
        std::vector<Order> more;
        std::vector<const std::vector<uint32_t> *> batch_of(program_.tasks.size());
        for (const std::vector<uint32_t> &batch : batches_)
            for (const uint32_t task : batch)
                if (batch.size() > 1) batch_of[task] = &batch;
        for (const Order &order : orders)
            if (const auto *const batch = batch_of[order.later])
                if (order.earlier < batch->front())
                    for (const uint32_t task : *batch) more.push_back({order.earlier, task});
        orders.insert(orders.end(), more.begin(), more.end());
    }

    // The errors of an element are added in the schedule's order, so that the residual does not
    // depend on the time at which messages come.
    void order_feedback(std::vector<Order> &orders) const {
        std::vector<uint32_t> latest(program_.layout.chunks(), no_index);
        for (uint32_t i = 0; i < program_.tasks.size(); i++) {
            const Task &task = program_.tasks[i];
            if (task.kind != Task::Kind::work) continue;
            for (uint32_t k = task.first; k < task.last; k++) {
                const Op &op = program_.ops[k];
                if (op.what != Op::What::keep_error || latest[op.chunk] == i) continue;
                if (latest[op.chunk] != no_index) orders.push_back({latest[op.chunk], i});
                latest[op.chunk] = i;
            }
        }
    }

    // Derives the dependencies between tasks from those between steps and those from shared
    // buffers.
    void order(const Dependencies &dependencies) {
        std::vector<uint32_t> task_of(schedule_.steps.size());
        for (uint32_t task = 0; task < runs_.size(); task++)
            for (uint32_t i = runs_[task].first; i < runs_[task].last; i++) task_of[i] = task;

        std::vector<Order> orders = accumulators_.orders;
        order_feedback(orders);
        for (uint32_t i = 0; i < schedule_.steps.size(); i++)
            for (const uint32_t earlier : dependencies.of(i))
                if (task_of[earlier] != task_of[i])
                    orders.push_back({task_of[earlier], task_of[i]});
        join_batches(orders);
        std::sort(orders.begin(), orders.end());
        orders.erase(std::unique(orders.begin(), orders.end()), orders.end());

        program_.waits.assign(program_.tasks.size(), 0);
        auto order = orders.begin();
        for (uint32_t i = 0; i < program_.tasks.size(); i++) {
            program_.tasks[i].next_first = static_cast<uint32_t>(program_.next.size());
            for (; order != orders.end() && order->earlier == i; ++order) {
                program_.next.push_back(order->later);
                program_.waits[order->later]++;
            }
            program_.tasks[i].next_last = static_cast<uint32_t>(program_.next.size());
        }
    }

    Program &program_;
    const Schedule &schedule_;
    const std::vector<StepRun> runs_;
    const AccumulatorPlacement accumulators_;
    std::optional<OperandRef> product_; // see Translation
    const std::vector<bool> outputs_read_;
    // Sends whose messages go as one; each send is in one batch.
    std::vector<std::vector<uint32_t>> batches_;
};

// A codec's blocks may be far larger than the values that there are.
uint64_t most_segment_values(const Layout &layout, const Geometry &geometry) {
    const uint64_t least = grain(Codec());
    return std::min(geometry.segment, std::max(least, round_up(layout.largest(), least)));
}

uint64_t find_tile(const Work &work, const Chunking &cut, uint64_t segment, uint64_t grain) {
    if (work.codec.has_whole_buckets() || work.inner_codec.has_whole_buckets() || !cut.joins ||
        cut.whole_tiles)
        return segment;
    // Of an exact sum mostly two doubles are used.
    const size_t sum_bytes =
        work.sums_exactly() ? 2 * sizeof(double) : type_bytes(accumulator_of(work.type));
    const uint64_t target = tile_bytes / sum_bytes;
    return std::min(segment, std::max(grain, target / grain * grain));
}

size_t find_tile_payload(const Work &work, uint64_t tile) {
    constexpr size_t most_bytes = size_t{1} << 20;
    const size_t bytes = most_encoded_bytes(work.codec, work.type, tile);
    return bytes <= most_bytes ? bytes : 0;
}

// Returns the bytes of one send in all instances.
uint64_t message_bytes(const Program &program, const Step &send) {
    const Work &work = program.work;
    if (program.fast_path) return program.fast_path->message_bytes(send.chunk);
    const uint64_t count = program.layout.range(send.src, send.chunk).count;
    const uint64_t segment = program.geometry.segment;
    const uint64_t full = count / segment, rest = count % segment;
    uint64_t segments = program.geometry.instances;
    if (program.layout.is_pairwise()) segments = std::min(segments, full + 1);
    const uint64_t empty = segments - full - (rest != 0 ? 1 : 0);
    const Codec &codec = work.codec_of(send);
    return full * encoded_bytes(codec, work.type, segment) +
           (rest != 0 ? encoded_bytes(codec, work.type, rest) : 0) + empty * header_bytes;
}

void measure_parts(Program &program) {
    const Work &work = program.work;
    const uint64_t bytes = type_bytes(work.type);
    const auto bytes_of = [=](const std::vector<VFormParts::PartRange> &parts) {
        uint64_t total = 0;
        for (const VFormParts::PartRange &part : parts) total += part.count * bytes;
        return total;
    };
    program.raw_bytes = std::max(bytes_of(work.parts->sent), bytes_of(work.parts->received));
    program.send_bytes = sent_end(*work.parts, work.team) * bytes;
    program.recv_bytes = received_end(*work.parts, work.team) * bytes;
}

void measure_buffers(Program &program) {
    const Work &work = program.work;
    const uint64_t block = work.count * type_bytes(work.type);
    if (work.parts) return measure_parts(program);
    const CollectiveRow &row = row_of(work.collective);
    program.raw_bytes = block * parts_of(work.collective, work.team.size);
    const uint64_t whole =
        work.spacing == 0 ? program.raw_bytes
                          : block + (work.team.size - 1) * work.spacing * type_bytes(work.type);
    if (has_input(work.collective, work.team)) program.send_bytes = row.gathers ? block : whole;
    if (has_output(work.collective, work.team)) program.recv_bytes = row.scatters ? block : whole;
}

void count_wire_bytes(Program &program) {
    for (const Step &step : program.schedule.steps)
        if (step.verb == Verb::send) program.wire_bytes += message_bytes(program, step);
}

// Makes sure that messages from other hosts have receive buffers, if necessary with fewer lanes. A
// rank chooses its own number of instances in flight, so ranks that hold different numbers of
// messages may have different numbers of lanes.
Done fit_inbox(Program &program) {
    Geometry &geometry = program.geometry;
    const Chunking &cut = program.cut;
    const uint64_t recv_buffers = program.recv_buffers();
    if (recv_buffers > cut.slots)
        return invalid_argument(
            "%llu messages come from other hosts, and there are %u slots for them",
            static_cast<unsigned long long>(recv_buffers), cut.slots);
    program.overflows = geometry.arena_bytes > cut.outbox_bytes;
    if (recv_buffers == 0) return {};
    const uint64_t fitting = std::min<uint64_t>(
        cut.inbox_bytes / (recv_buffers * geometry.wire_bytes), cut.slots / recv_buffers);
    program.overflows |= fitting == 0;
    geometry.lanes = static_cast<uint32_t>(
        std::clamp<uint64_t>(fitting, 1, std::max<uint64_t>(geometry.lanes, 1)));
    return {};
}

} // namespace

// Returns ranges, one behind the other, for that many wire slots. A slot's range is as long as the
// longest chunk of the steps that fill the slot and are `counted`, and empty if none is.
template <class Counted>
static std::vector<ByteRange> slot_places(const Program &program, uint32_t slots,
                                          const Counted &counted) {
    std::vector<ByteRange> places(slots);
    for (const Step &step : program.schedule.steps) {
        const bool fills = step.verb == Verb::recv || step.verb == Verb::encode;
        if (!fills || step.dst.index >= slots || !counted(step)) continue;
        size_t &bytes = places[step.dst.index].bytes;
        bytes = std::max(bytes, most_bytes(program, step, step.dst));
    }
    size_t end = 0;
    for (ByteRange &place : places) {
        place.offset = end;
        end += round_up(place.bytes, wire_alignment);
    }
    return places;
}

std::vector<ByteRange> overflow_places(const Program &program) {
    return slot_places(program, program.schedule.outbox + program.recv_buffers(),
                       [&](const Step &step) {
                           return step.verb == Verb::encode || !is_local(program.work, step.peer);
                       });
}

// Every chunk that this rank encodes or receives may be read by its kernels.
static std::vector<ByteRange> find_unpacked_places(const Program &program) {
    return slot_places(program, program.schedule.wires, [&](const Step &step) {
        return program.packs(program.work.codec_of(step));
    });
}

size_t unpacked_bytes(const Program &program) {
    if (program.unpacked_places.empty()) return 0;
    const ByteRange &last = program.unpacked_places.back();
    return round_up(last.offset + last.bytes, wire_alignment);
}

// Ranks that do not know each other's counts cannot agree on whether all of them fit the eager
// slots, so each rank tells for its own. All ranks answer this alike. Ranks of other hosts would
// get parts that are not for them.
static bool can_exchange_parts(const Program &program) {
    const Chunking &cut = program.cut;
    const bool is_on_one_host = cut.inbox_bytes == 0 && cut.eager_exchanges == 1;
    return program.layout.is_pairwise() && is_on_one_host && cut.eager_slot_bytes != 0 &&
           !cut.has_checksums && program.work.codec.is_lossless();
}

static std::vector<uint32_t> wire_peers(const Schedule &schedule) {
    std::vector<uint32_t> peers(schedule.wires);
    for (const Step &step : schedule.steps)
        if (step.verb == Verb::recv) peers[step.dst.index] = step.peer;
    return peers;
}

static Result<Program> compile_with(const Schedule &author, const Work &work, const Chunking &cut,
                                    bool multiplies) {
    QCCL_TRY(const Schedule placed, place_codec(author, work.codec.owner));
    Fused fused = fuse(placed);
    const Dependencies dependencies = lower(fused.schedule);
    const uint64_t cells = grain(work.codec, work.inner_codec);
    const Layout layout = work.parts ? Layout(work.parts, work.team, placed.outbox, cells)
                                     : Layout(work.collective, work.count, work.team, author.chunks,
                                              cells, work.spacing);
    QCCL_TRY(const Geometry geometry,
             qccl::cut(layout, placed.outbox, encoding_of(work.codec, work.inner_codec, work.type),
                       limits_of(cut)));

    Program program{.work = work,
                    .cut = cut,
                    .shape = describe(work),
                    .schedule = fused.schedule,
                    .layout = layout,
                    .geometry = geometry};
    QCCL_TRY(fit_inbox(program));
    program.segment_values = most_segment_values(layout, geometry);
    program.tile = find_tile(work, cut, program.segment_values, layout.grain());
    program.tile_payload_bytes = find_tile_payload(work, program.tile);
    measure_buffers(program);
    QCCL_TRY(Compiler(program, fused, multiplies).run(dependencies));
    if (program.packs(work.codec) || program.packs(work.inner_codec))
        program.unpacked_places = find_unpacked_places(program);
    program.exchanges_parts = can_exchange_parts(program);
    if (program.exchanges_parts) {
        program.wire_peers = wire_peers(program.schedule);
    } else if (!layout.is_pairwise()) {
        QCCL_TRY(program.fast_path, bind(program));
    }
    count_wire_bytes(program);
    return program;
}

Result<Program> compile(const Schedule &author, const Work &work, const Chunking &cut) {
    QCCL_TRY(Program program, compile_with(author, work, cut, false));
    // Before a call over eager slots the engine multiplies the whole input.
    if (work.op != RedOp::pre_mul_sum || program.fast_path) return program;
    return compile_with(author, work, cut, true);
}

} // namespace qccl
