#include "engine/bound.hpp"

#include "base/round_up.hpp"
#include "codec/chunk.hpp"
#include "codec/noise.hpp"
#include "engine/inspect.hpp"
#include "engine/step_trace.hpp"
#include "engine/program.hpp"

#include <algorithm>

namespace qccl {
namespace {

using Base = LinePlace::Base;

// Chunks start at a cache line of their own.
constexpr uint64_t chunk_alignment = 64;

// Every line holds all chunks, in order; an all-gather's holds its rank's own alone.
std::vector<LineChunk> place_chunks(const Program &program, uint64_t &end) {
    const Work &work = program.work;
    std::vector<LineChunk> chunks(program.layout.chunks());
    for (uint32_t c = 0; c < chunks.size(); c++) {
        const ElementRange range = program.layout.range({}, c);
        const uint64_t bytes = work.codec.is_lossless()
                                   ? range.count * type_bytes(work.type)
                                   : encoded_bytes(work.codec, work.type, range.count);
        const uint64_t offset = work.collective == Collective::all_gather ? 0 : end;
        chunks[c] = {.count = range.count,
                     .index = range.index,
                     .offset = offset,
                     .bytes = bytes,
                     .layout = payload_layout(work.codec, work.type, range.count)};
        end = offset + round_up(bytes, chunk_alignment);
    }
    return chunks;
}

class Binder {
public:
    // Ranks do alike: what this one receives after it has made something of what it had received is
    // what others have made so.
    explicit Binder(const Program &program)
        : program_(program), wires_(program.schedule.wires, {.peer = program.work.team.rank}) {
        uint32_t exchange = 0;
        for (const Step &step : program.schedule.steps) {
            if (step.verb == Verb::recv)
                wires_[step.dst.index] = {.peer = step.peer, .exchange = exchange};
            if (step.verb != Verb::encode || step.src.is(SlotKind::input)) continue;
            exchange = 1;
            wires_[step.dst.index].exchange = exchange;
        }
        bound_.stages.resize(exchange + 2);
    }

    Result<std::optional<BoundProgram>> bind() {
        const Cut &cut = program_.cut;
        if (cut.line_bytes == 0 || cut.seals) return {std::nullopt};
        uint64_t end = 0;
        bound_.chunks = place_chunks(program_, end);
        if (end > cut.line_bytes) return {std::nullopt};
        if (bound_.exchanges() > cut.line_exchanges)
            return Error::make(Code::internal_error,
                               "%s sends what it does not have from the start, which lines cannot",
                               program_.work.algorithm.c_str());
        for (const Op &op : program_.ops) QCCL_TRY(add(op));
        if (bound_.exchanges() == 1) sum_in_output(bound_.stages.back());
        return {std::move(bound_)};
    }

private:
    Done add(const Op &op) {
        const bool writes_line = op.dst.is(Place::Kind::payload);
        // Headers of plain values are left out; see BoundProgram.
        if (op.what == Op::What::label && program_.work.codec.is_lossless()) return {};
        QCCL_TRY(const LinePlace dst, place(op.dst, op));
        QCCL_TRY(const LinePlace src, place(op.src, op));
        bound_.stages[stage_of(op)].push_back({.what = op.what,
                                               .dst_type = op.dst_type,
                                               .src_type = op.src_type,
                                               .dst = dst,
                                               .src = src,
                                               .chunk = op.chunk,
                                               .ordinal = op.ordinal,
                                               .noise_rank = op.noise_rank});
        const LineChunk &chunk = bound_.chunks[op.chunk];
        if (writes_line)
            bound_.line_bytes = std::max(bound_.line_bytes, chunk.offset + chunk.bytes);
        return {};
    }

    // What neither writes a line nor reads one belongs to the sum.
    uint32_t stage_of(const Op &op) const {
        if (op.dst.is(Place::Kind::payload)) return wires_[op.dst.index].exchange;
        return op.src.is(Place::Kind::payload) ? wires_[op.src.index].exchange + 1 : 1;
    }

    Result<LinePlace> place(const Place &at, const Op &op) {
        const uint64_t bytes = type_bytes(program_.work.type);
        const auto offset = [&](Slot slot) {
            return program_.layout.range(slot, op.chunk).offset * bytes;
        };
        switch (at.kind) {
        case Place::Kind::input:
            return LinePlace{.base = Base::send, .offset = offset(input(at.index))};
        case Place::Kind::output:
            return LinePlace{.base = Base::recv, .offset = offset(output(at.index))};
        case Place::Kind::payload:
            return LinePlace{.base = Base::line,
                             .rank = wires_[at.index].peer,
                             .offset = bound_.chunks[op.chunk].offset};
        case Place::Kind::tile:
        case Place::Kind::segment: return sum(op.chunk);
        case Place::Kind::none: break;
        }
        return LinePlace{};
    }

    Result<LinePlace> sum(uint32_t chunk) {
        if (sum_chunk_ && *sum_chunk_ != chunk)
            return Error::make(Code::internal_error, "%s has several sums, lines serve one",
                               program_.work.algorithm.c_str());
        sum_chunk_ = chunk;
        bound_.sum_bytes =
            bound_.chunks[chunk].count * type_bytes(accumulator_of(program_.work.type));
        return LinePlace{.base = Base::sum};
    }

    // A sum in the output's own type may grow in the output, unless an input that may lie there too
    // is still to be read.
    void sum_in_output(std::vector<LineOp> &reads) {
        if (reads.empty()) return;
        const LineOp last = reads.back();
        const bool stores_sum = last.what == Op::What::copy && last.src.base == Base::sum &&
                                last.dst.base == Base::recv && last.dst_type == last.src_type;
        const auto needs_care = [&](const LineOp &op) {
            const bool is_first = &op == &reads.front();
            return (op.src.base == Base::send && !is_first) || op.chunk != last.chunk;
        };
        if (!stores_sum || std::any_of(reads.begin(), reads.end(), needs_care)) return;
        reads.pop_back();
        for (LineOp &op : reads)
            if (op.dst.base == Base::sum) op.dst = last.dst;
        bound_.sum_bytes = 0;
    }

    const Program &program_;
    struct WirePlace {
        uint32_t peer = 0;     // in whose line it lies
        uint32_t exchange = 0; // and in which exchange
    };
    std::vector<WirePlace> wires_;
    std::optional<uint32_t> sum_chunk_;
    BoundProgram bound_;
};

template <class Trace> class BoundRun {
public:
    BoundRun(Transport &transport, const Kernels &kernels, const Program &program,
             const BoundCall &call, Trace &trace)
        : transport_(transport), program_(program), bound_(*program.bound), call_(call),
          trace_(trace), header_(program.work.codec.is_lossless() ? 0 : header_bytes),
          context_{.kernels = &kernels,
                   .codec = &program.work.codec,
                   .type = program.work.type,
                   .op = program.work.op,
                   .ranks = program.work.team.size} {}

    Done run() {
        std::fill(call_.lines.begin(), call_.lines.end(), nullptr);
        const uint32_t rank = program_.work.team.rank;
        trace_.begin_lines();
        QCCL_TRY(line_, transport_.line());
        call_.lines[rank] = line_;
        for (const LineOp &op : bound_.stages.front()) run(op);
        trace_.end_work();
        transport_.publish(bound_.line_bytes);
        trace_.publish();
        for (const LineOp &op : bound_.stages.back()) {
            if (op.src.base == Base::line && op.src.rank != rank) QCCL_TRY(await(op));
            run(op);
        }
        trace_.end_work();
        return {};
    }

private:
    Done await(const LineOp &op) {
        const LineChunk &chunk = bound_.chunks[op.chunk];
        const std::byte *&line = call_.lines[op.src.rank];
        if (!line) {
            trace_.end_work();
            QCCL_TRY(const auto bytes, transport_.await_line(op.src.rank));
            trace_.line(op.src.rank, bytes.size());
            if (bytes.size() < chunk.offset + chunk.bytes)
                return Error::make(Code::damaged_data,
                                   "the line of rank %u has %zu bytes instead of %zu", op.src.rank,
                                   bytes.size(), size_t{chunk.offset + chunk.bytes})
                    .at_rank(op.src.rank);
            line = bytes.data();
        }
        if (header_ == 0) return {};
        return inspect({line + chunk.offset, chunk.bytes}, {.codec = &program_.work.codec,
                                                            .type = program_.work.type,
                                                            .count = chunk.count,
                                                            .index = chunk.index,
                                                            .from = op.src.rank});
    }

    void run(const LineOp &op) {
        const LineChunk &chunk = bound_.chunks[op.chunk];
        trace_.line_op(op, chunk.count);
        if (chunk.count == 0 && op.what != Op::What::label) return;
        // Plain values of a few bytes are moved in less time than a step is described.
        if (op.what == Op::What::copy)
            copy_plain(*context_.kernels, op.dst_type, address(op.dst), op.src_type, source(op.src),
                       chunk.count, false);
        else if (op.what == Op::What::reduce)
            reduce_plain(context_, address(op.dst), op.src_type, source(op.src), chunk.count);
        else
            run_described(op, chunk);
    }

    void run_described(const LineOp &op, const LineChunk &chunk) {
        const bool encodes = op.what == Op::What::label || op.what == Op::What::encode;
        const Noise noise = encodes ? noise_of(op, chunk) : Noise{};
        if (op.what == Op::What::label)
            return write_header(program_.work.codec,
                                {.type = program_.work.type,
                                 .count = chunk.count,
                                 .first_index = chunk.index,
                                 .noise_key = noise.key,
                                 .call = noise.call},
                                line_ + op.dst.offset);
        context_.layout = &chunk.layout;
        context_.count = chunk.count;
        run_whole(context_, {.what = op.what,
                             .dst_type = op.dst_type,
                             .src_type = op.src_type,
                             .dst = address(op.dst),
                             .src = source(op.src),
                             .noise = noise});
    }

    Noise noise_of(const LineOp &op, const LineChunk &chunk) const {
        return {.key = noise_key(call_.noise_seed, op.noise_rank, op.ordinal),
                .call = call_.number,
                .first_index = chunk.index};
    }

    // Where a step writes: never another rank's line.
    std::byte *address(const LinePlace &place) const {
        switch (place.base) {
        case Base::recv: return call_.recv + place.offset;
        case Base::sum: return call_.sum;
        case Base::line: return line_ + place.offset + header_;
        case Base::send:
        case Base::none: break;
        }
        return nullptr;
    }

    const std::byte *source(const LinePlace &place) const {
        if (place.base == Base::send) return call_.send + place.offset;
        if (place.base == Base::line) return call_.lines[place.rank] + place.offset + header_;
        return address(place);
    }

    Transport &transport_;
    const Program &program_;
    const BoundProgram &bound_;
    const BoundCall &call_;
    Trace &trace_;
    const uint64_t header_;
    TileContext context_;
    std::byte *line_ = nullptr;
};

} // namespace

Result<std::optional<BoundProgram>> bind(const Program &program) { return Binder(program).bind(); }

template <class Trace>
Done run_bound(Transport &transport, const Kernels &kernels, const Program &program,
               const BoundCall &call, Trace &trace) {
    return BoundRun(transport, kernels, program, call, trace).run();
}
template Done run_bound(Transport &transport, const Kernels &kernels, const Program &program,
                        const BoundCall &call, NoTrace &trace);
template Done run_bound(Transport &transport, const Kernels &kernels, const Program &program,
                        const BoundCall &call, StepTrace &trace);

} // namespace qccl
