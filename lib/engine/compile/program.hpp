// A program is a schedule bound to one collective on a given number of values of one type with one
// codec; everything that does not depend on the bytes is worked out. It never changes and serves
// every call of the same shape. Communicators compile and cache programs, and the engine runs them.
// compile() is a pure function; any thread may read a program.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "device/exact_sum.hpp"
#include "device/shared_vector.hpp"
#include "engine/compile/fast_path.hpp"
#include "engine/compile/ops.hpp"
#include "engine/compile/translate.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

// The work of a call. Everything but `team.rank`, `spacing` and where parts lie must be equal on
// all ranks.
struct Work {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum; // collectives that do not reduce ignore it
    // The caller's type where `type` is another: of a custom operation, whose function expects it,
    // and of complex numbers that are encoded, of which each is two values of `type`.
    std::optional<DataType> caller_type{};
    Codec codec;       // must have passed check_codec
    Codec inner_codec; // of unfinished values below the outermost tier; likewise checked
    // As in the C API: per rank for reduce-scatter and all-gather. Of a v-form: of all parts, or 0
    // if not every rank knows it.
    uint64_t count = 0;
    std::shared_ptr<const VFormParts> parts{}; // of a v-form of the collective; null: it is none
    Feedback feedback = Feedback::none;        // only of sums and averages of floating point
    uint32_t momentum = 0; // of the state, in thousandths; only compared between ranks
    uint64_t spacing = 0;  // of the parts of all ranks, as Layout has it; 0: they have no gaps
    Team team;
    std::string algorithm; // its spec; shown, and compared between ranks

    // Returns the codec that encodes the step's bytes.
    const Codec &codec_of(const Step &step) const {
        return step.has(Step::inner) ? inner_codec : codec;
    }
    // Returns the type of the inputs: with feedback, that of the residual, which they contain.
    DataType input_type() const { return feedback == Feedback::none ? type : accumulator_of(type); }
    // Whether accumulators are ExactBlocks. A sum of two values that has its accumulator's type is
    // rounded once in any case.
    bool sums_exactly() const {
        const bool is_once = team.size <= 2 && accumulator_of(type) == type && op != RedOp::avg;
        return codec.sums_exactly && reduces(collective) && !is_once;
    }
    // Returns the call that the caller made: the v-form if it is one.
    Collective called() const { return parts ? parts->v_form : collective; }
    // Returns the count in the caller's type.
    uint64_t caller_count() const {
        return caller_type && real_type(*caller_type) == type ? count / reals_of(*caller_type)
                                                              : count;
    }
};

// What the engine issues at once: a send, a receive, or operations on one chunk that run together
// tile by tile.
struct Task {
    enum class Kind : uint8_t { send, recv, work };

    Kind kind = Kind::work;
    // work: Program::ops [first, last); send and recv: `first` is the step.
    uint32_t first = 0, last = 0;
    // Program::next [next_first, next_last): the tasks that wait for this one.
    uint32_t next_first = 0, next_last = 0;
    // Program::uses [uses_first, uses_last): the wire slots that the task reads.
    uint32_t uses_first = 0, uses_last = 0;
    uint32_t readers = 0;        // recv: how many tasks read the message
    bool goes_with_next = false; // send: another send to that peer follows, and both are small
    uint32_t awaited = 0; // for waits: the peer, or this rank if it needs one of its own slots
};

struct CallGuard;
struct Program;

// What calls of a state run during a codec's warm-up.
struct WarmUpStage {
    uint64_t last_call = 0; // the number of the last such call of the state
    std::shared_ptr<const Program> program;
};

// Of a program that sums integers under shared scales (the codec shared). The communicator makes
// them of the caller's values, and values of their sums.
struct SharedSums {
    SharedLayout layout;
    RedOp op = RedOp::sum;                      // of the caller's values
    std::shared_ptr<const Program> agreement{}; // the maximum of all scales
};

struct Program {
    Work work;
    Chunking cut;
    CallShape shape;
    // What the caller asked the planner for. Only traces show it.
    std::string asked_codec = "none", asked_algorithm = "auto";
    uint64_t asked_hash = 0; // hash of both
    void set_asked(std::string codec, std::string algorithm);
    // Set if the program is that of a call of the library's own: what traces call it.
    std::optional<Collective> own_call{};
    Schedule schedule{}; // placed, fused and lowered
    Layout layout;
    Geometry geometry;

    std::vector<Task> tasks{};     // in the schedule's order
    std::vector<uint32_t> waits{}; // by task: how many tasks must be done before
    std::vector<uint32_t> next{}, uses{};
    std::vector<Op> ops{};
    uint64_t segment_values = 0; // most elements in a segment; a multiple of the smallest grain
    uint64_t tile = 0;           // elements in a tile
    // Payload bytes of a tile that is encoded by itself; 0: it would not fit the caches, so tiles
    // are not encoded by themselves.
    size_t tile_payload_bytes = 0;
    uint32_t decoded_tile = 0;    // which of tile_buffers OperandRef::Kind::decoded is
    uint32_t tile_buffers = 0;    // accumulators as long as a tile, for the rank
    uint32_t segment_buffers = 0; // accumulators as long as a segment, for each lane
    std::optional<FastPathProgram> fast_path{}; // set if the call takes the fast path
    // Ranks exchange small parts over eager slots before the tasks, which leave those parts out.
    bool exchanges_parts = false;
    std::vector<uint32_t> wire_peers{}; // if exchanges_parts: by received wire slot, the sender
    // Peers may read the caller's buffers in place.
    bool allows_zero_copy = false;
    std::vector<ZeroCopySource>
        zero_copy_sources{}; // if allows_zero_copy: by Op::ordinal of encodes

    // Returns the number of receive buffers that a lane needs: one for each message that it may
    // hold, if ranks are on several hosts, else 0.
    uint32_t recv_buffers() const {
        return cut.inbox_bytes == 0 ? 0 : schedule.wires - schedule.outbox;
    }

    // Returns the bytes of an accumulator for `values` values. A GPU keeps exact sums in registers.
    size_t sum_bytes(uint64_t values) const {
        return work.sums_exactly() && !cut.whole_tiles
                   ? exact_bytes(values)
                   : values * type_bytes(accumulator_of(work.type));
    }

    // Whether chunks of the codec are packed. Within one host that would cost more time than it
    // saves, so there they travel as the kernels write them.
    bool packs(const Codec &codec) const { return codec.packs && cut.inbox_bytes != 0; }

    // The wire slots do not fit the transport's outbox or inbox. The program then has one lane, and
    // the call gets memory of its own.
    bool overflows = false;

    // Of the caller's buffers; 0: the rank gives or gets nothing, and the buffer is not touched.
    uint64_t send_bytes = 0, recv_bytes = 0;
    uint64_t raw_bytes = 0; // of the call's vector, unencoded
    // Sent by this rank in a call, headers included, once per receiver. If chunks are packed: at
    // most.
    uint64_t wire_bytes = 0;

    // If chunks are packed: where a lane keeps the unpacked chunk of each wire slot, from the start
    // of its part of the memory. Slots whose chunks are not packed get no bytes.
    std::vector<ByteRange> unpacked_places{};

    // What the communicator does about the call's error; the engine ignores it. Null: nothing.
    std::shared_ptr<const CallGuard> guard{};

    // Null: the program's values are the caller's.
    std::shared_ptr<const SharedSums> shared{};
    // The codec that traces show, where it is not that of `work`: of the agreement of such a
    // program, whose shape is that of the caller's call. Else empty.
    std::string traced_codec{};

    // The program is that of calls behind the last stage. Empty: every call runs it.
    std::vector<WarmUpStage> warm_up{};
    // Returns the program of a state's call of this number.
    const Program &at_call(uint64_t number) const {
        for (const WarmUpStage &stage : warm_up)
            if (number <= stage.last_call) return *stage.program;
        return *this;
    }

    std::string notice{}; // told to the caller once, on how the call runs; mostly empty
};

// Returns what ranks compare of the state of a call's program; nothing if it has none.
std::string state_text(const Work &work);

// Returns where a call that overflows puts its wire slots, one behind the other, each as large as
// its messages can get. Messages from ranks of the same host get no bytes.
std::vector<ByteRange> overflow_places(const Program &program);

// Returns the bytes that each lane needs for its unpacked chunks.
size_t unpacked_bytes(const Program &program);

// Compiles the schedule that an algorithm has written: places the codec, joins steps, cuts the
// call, derives dependencies, and places the accumulators. The error (invalid_argument) says what
// does not fit.
Result<Program> compile(const Schedule &author, const Work &work, const Chunking &cut);

} // namespace qccl
