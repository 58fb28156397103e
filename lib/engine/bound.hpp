// Small messages: a schedule with one exchange (every rank shows what it has, and reads what the
// others show), or with a second one of what has come of the first, bound to lines, so that a call
// is a few kernels and no interpreter. Knows no mailboxes and no segments.
#pragma once

#include "base/result.hpp"
#include "engine/op.hpp"
#include "engine/tiles.hpp"
#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

struct Program;

// An operand of a bound operation: `offset` bytes from the start of a buffer or line.
struct LinePlace {
    enum class Base : uint8_t { none, send, recv, sum, line };

    Base base = Base::none;
    uint32_t rank = 0; // whose line
    uint64_t offset = 0;
};

struct LineOp {
    Op::What what = Op::What::copy;
    DataType dst_type = DataType::float32, src_type = DataType::float32;
    LinePlace dst, src;
    uint32_t chunk = 0;
    uint32_t ordinal = 0, noise_rank = 0; // as of the Op
};

// A chunk of the tensor, as a line holds it.
struct LineChunk {
    uint64_t count = 0;
    uint64_t index = 0;  // of the first element in the caller's tensor
    uint64_t offset = 0; // in the line
    uint64_t bytes = 0;  // header included, where there is one
    PayloadLayout layout;
};

// Values that travel as they are have no header here: a line holds what the call's descriptor,
// whose hash its readers have compared, says and nothing else. Encoded chunks keep theirs: scales
// from outside have to be looked at anyway.
struct BoundProgram {
    std::vector<LineChunk> chunks;
    // Before the first exchange, between each two, and after the last: at least two. What is done
    // before an exchange writes this rank's line in it, what is done after it reads the lines.
    std::vector<std::vector<LineOp>> stages;
    uint64_t line_bytes = 0; // to publish
    uint64_t sum_bytes = 0;  // of the accumulator, where it has memory of its own

    size_t exchanges() const { return stages.size() - 1; }

    // What a rank that reads the chunk gets.
    uint64_t message_bytes(uint32_t chunk) const { return chunks[chunk].bytes; }
};

// Nothing where the call does not fit the lines, which all ranks see alike. An error where it fits
// and the schedule has more exchanges than the cut allows after all.
Result<std::optional<BoundProgram>> bind(const Program &program);

// Addresses and numbers of one call.
struct BoundCall {
    const std::byte *send = nullptr;
    std::byte *recv = nullptr;
    std::byte *sum = nullptr; // sum_bytes
    uint64_t number = 0;
    uint64_t noise_seed = 0;
    std::span<const std::byte *> lines; // scratch, one for each rank
};

// With one exchange, over the transport's lines. `Trace` is NoTrace or StepTrace.
template <class Trace>
Done run_bound(Transport &transport, const Kernels &kernels, const Program &program,
               const BoundCall &call, Trace &trace);

} // namespace qccl
