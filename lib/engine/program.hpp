// A program: a schedule bound to one collective on so many values of one type with one codec, with
// everything worked out that can be before bytes move. Never changes, and serves every call of the
// same shape. Knows no algorithm but as a name to show, no transport in use and no clock.
#pragma once

#include "base/byte_range.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "engine/bound.hpp"
#include "engine/cut.hpp"
#include "engine/lendable.hpp"
#include "engine/op.hpp"
#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

// What is to be done. All but `team.rank` must be equal on all ranks.
struct Work {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum; // collectives that do not reduce ignore it
    Codec codec;           // already checked with check_codec
    Codec inner_codec;     // of unfinished values below the outermost tier; likewise
    uint64_t count = 0;    // as the C API means it: per rank for reduce-scatter and all-gather
    Team team;
    std::string algorithm; // its spec: shown, and compared between ranks

    // With which the step's bytes are encoded.
    const Codec &codec_of(const Step &step) const {
        return step.has(Step::inner) ? inner_codec : codec;
    }
};

// What the engine issues at once: a send, a receive, or operations on one chunk that run tile by
// tile together.
struct Task {
    enum class Kind : uint8_t { send, recv, work };

    Kind kind = Kind::work;
    // work: Program::ops [first, last); send and recv: `first` is the step.
    uint32_t first = 0, last = 0;
    // Program::next [next_first, next_last): the tasks that wait for this one.
    uint32_t next_first = 0, next_last = 0;
    // Program::uses [uses_first, uses_last): the wires that it reads.
    uint32_t uses_first = 0, uses_last = 0;
    uint32_t readers = 0;        // recv: how many tasks read what comes
    bool goes_with_next = false; // send: another to that peer follows, and both are small
    uint32_t awaited = 0; // while nothing can go on: a peer, or this rank for one of its own slots
};

struct CallGuard;

struct Program {
    Work work;
    Cut cut;
    CallDescriptor descriptor; // all but the call's number and tag
    uint64_t fingerprint = 0;  // its hash
    // What the planner was asked for: for traces; it decides nothing here.
    std::string asked_codec = "none", asked_algorithm = "auto";
    uint64_t asked_hash = 0; // of both
    Schedule schedule{};     // placed, fused, lowered
    Layout layout;
    Geometry geometry;

    std::vector<Task> tasks{};     // in the schedule's order
    std::vector<uint32_t> waits{}; // of each task: how many must be done before
    std::vector<uint32_t> next{}, uses{};
    std::vector<Op> ops{};
    uint64_t segment_values = 0; // most elements of a segment, a multiple of the smallest grain
    uint64_t tile = 0;           // elements
    // Of a tile that is encoded by itself; 0: tiles are not, for a cache does not hold them.
    size_t tile_payload_bytes = 0;
    uint32_t tile_buffers = 0;           // accumulators of a tile, for the rank
    uint32_t segment_buffers = 0;        // accumulators of a segment, for each lane
    std::optional<BoundProgram> bound{}; // if the call runs over the lines
    bool may_lend = false;
    std::vector<Lendable> lendable{}; // by Op::ordinal of labels, if the call may lend

    // Messages that a lane may hold, if ranks are on several hosts: of each there is a room.
    uint32_t rooms() const { return cut.inbox_bytes == 0 ? 0 : schedule.wires - schedule.outbox; }

    // Whether the wires find no room in the transport's outbox or inbox. Then there is one lane.
    bool overflows = false;

    uint64_t send_bytes = 0, recv_bytes = 0; // of the caller's buffers
    uint64_t raw_bytes = 0;                  // of the call's vector, unencoded
    uint64_t wire_bytes = 0; // that this rank sends in a call, headers included, once per receiver

    // What the communicator does about the call's error; it decides nothing here. Null: nothing.
    std::shared_ptr<const CallGuard> guard{};

    std::string notice{}; // what the caller is told once of how the call runs; mostly nothing
};

// Where a call that overflows puts its wires, one behind the other: of each what it takes at most;
// no bytes for what comes from a rank of this host.
std::vector<ByteRange> overflow_places(const Program &program);

// Places the codec in an author's schedule, joins and cuts it, derives its dependencies, and says
// where its values live. An error (invalid_argument) says what does not fit.
Result<Program> compile(const Schedule &author, const Work &work, const Cut &cut);

} // namespace qccl
