// The fast path for small messages. A schedule in which every rank posts its values once and
// reads those of the others (one eager exchange), or does so twice (the second time with what it
// computed from the first), is bound to eager slots: a call is then a few kernels without the
// interpreter. The engine uses it. bind is a pure function.
#pragma once

#include "base/result.hpp"
#include "engine/compile/ops.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

struct Program;

// An operand of a fast-path operation: `offset` bytes from the start of a buffer or an eager slot.
struct EagerOperand {
    // own_slot: what this rank has just encoded; decoded and residual: as in OperandRef.
    enum class Base : uint8_t { none, send, recv, sum, eager_slot, own_slot, decoded, residual };

    Base base = Base::none;
    uint32_t rank = 0; // the rank whose eager slot it is
    uint64_t offset = 0;
};

struct EagerOp {
    Op::What what = Op::What::copy;
    DataType dst_type = DataType::float32, src_type = DataType::float32;
    EagerOperand dst, src;
    uint32_t chunk = 0;
    uint32_t ordinal = 0, noise_rank = 0; // as in Op
    uint64_t plain_bytes = 0;             // of a copy that changes nothing; 0: it is none
    bool is_divided = false;              // as in Op
};

// A chunk of the tensor, as an eager slot holds it.
struct EagerChunk {
    uint64_t count = 0;
    uint64_t index = 0;  // of the first element, in the caller's tensor
    uint64_t offset = 0; // in the eager slot
    uint64_t bytes = 0;  // header included, if there is one
    PayloadLayout layout;
};

// A program's fast-path form. Plain values have no header here: the call's descriptor, whose hash
// the readers have compared, says all that a header would say. Encoded chunks keep their headers,
// because scales from other ranks have to be checked anyway.
struct FastPathProgram {
    std::vector<EagerChunk> chunks;
    // Operations before the first exchange, between exchanges, and after the last exchange: at
    // least two stages. The stage before an exchange writes this rank's eager slot, and the stage
    // after the exchange reads the slots.
    std::vector<std::vector<EagerOp>> stages;
    // Of a program with one exchange: the ranks whose slots the last stage reads, in its order, and
    // for each of them its operations and the bytes that they read. This rank itself
    // stands for operations that read no other slot. `spare`: how many bytes the slot may have
    // behind those bytes, for chunks that only other ranks read.
    struct Reads {
        size_t first = 0, end = 0;
        uint64_t bytes = 0;
        uint64_t spare = 0;
    };
    std::vector<uint32_t> read_ranks;
    std::vector<Reads> reads;
    uint64_t eager_slot_bytes = 0; // bytes that this rank posts
    uint64_t header = 0;           // bytes of each chunk's header; 0: there are none
    uint64_t sum_bytes = 0;        // of the accumulator; 0 if the sum grows in the output
    uint64_t decoded_bytes = 0;    // of what an encode's bytes decode to; 0 without feedback

    bool needs_memory() const { return (sum_bytes | decoded_bytes) != 0; }
    size_t exchanges() const { return stages.size() - 1; }

    // Returns the bytes that a rank gets when it reads the chunk.
    uint64_t message_bytes(uint32_t chunk) const { return chunks[chunk].bytes; }
};

// Returns the fast-path form of the program. Nothing if the call does not fit the eager slots; all
// ranks decide this alike. An error (internal_error) if the call fits but the schedule needs more
// exchanges than the program's chunking allows, or more than one sum.
Result<std::optional<FastPathProgram>> bind(const Program &program);

} // namespace qccl
