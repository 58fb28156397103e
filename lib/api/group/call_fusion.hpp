// Fuses small calls of a group: calls that follow one another run as one call over a vector that
// holds the values of all of them, so that they take the messages of one call. Every result has the
// bits that its call has by itself, because every value is in the chunk and in the block in which
// it is there, and the fused call has the same algorithm and codec. The ranks of a communicator
// fuse the same calls if their groups hold the same calls, with the same ones on each stream, and
// if the calls use one another's buffers alike. Tags and timeouts do not matter. Used by the thread
// that ends the group, inside the communicator.
//
// These calls are fused, on memory of the host: all-reduces, all-gathers and reduce-scatters of up
// to 64 KiB, lossless or with a codec whose blocks have nothing to do with one another. Calls by
// themselves are those
// - with stochastic rounding, whose noise is drawn by the position in the vector;
// - of topk and of buckets as long as a chunk;
// - of codecs that rotate, if the last rotated block is incomplete;
// - of onebit and norm, and of minmax with skip_incomplete, if the last bucket is incomplete;
// - with exact sums;
// - with a guard, which watches the calls of one tag;
// - with an operation that the program has made;
// - with a state;
// - v-forms.
#pragma once

#include "api/call/collective_call.hpp"
#include "comm/comm.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace qccl {

// How calls of one program are fused.
struct FusedForm {
    // Which algorithms the fused call may have.
    enum class By : uint8_t { any, same_order, same };

    By by = By::same;
    std::string_view algorithm; // the call's, or one that adds in the same order
    // Every value keeps its chunk. False: nothing depends on it, and values lie one behind the
    // other.
    bool by_chunk = true;
    uint32_t chunks = 1;
    uint64_t chunk_count = 0; // elements of a chunk of the call
    uint64_t step = 1;        // elements at whose multiples calls begin in each chunk

    uint64_t room() const { return round_up(chunk_count, step); }
};

// Calls that run as one; or one call.
class FusedCall {
public:
    // `number`: of the call in the group. A call without a form is by itself.
    FusedCall(const ReadyCall &first, size_t number, const std::optional<FusedForm> &form);

    const Program *latest_program() const { return calls_.back()->program.get(); }
    const FusedForm &latest_form() const { return form_; }
    // Lets the next call join if it can run with the others, in at most so many bytes together.
    bool join(const ReadyCall &next, size_t number, const FusedForm &form, uint64_t most_bytes);
    // Runs the calls, or enqueues them, as Comm::run does. `calls_before`: as in Request.
    Done run(Comm &comm, const CallStream &stream, uint64_t calls_before) const;

    size_t size() const { return calls_.size(); }
    size_t first() const { return first_; }
    size_t last() const { return last_; }

private:
    bool is_alike(const Program &next, const FusedForm &form) const;
    const Work &work() const { return calls_.front()->program->work; }
    uint64_t chunk_count() const;
    Result<ProgramRef> program(Comm &comm) const;
    Done run_on_parts(Comm &comm, const ProgramRef &program, Request request,
                      const CallStream &stream) const;
    Done run_on_vector(Comm &comm, const ProgramRef &program, Request request,
                       const CallStream &stream) const;

    std::vector<const ReadyCall *> calls_;
    bool takes_others_;
    FusedForm form_; // of the latest call
    uint64_t used_;  // elements of each chunk of the shared vector
    size_t first_, last_;
};

// Ranges of memory, of which one may be asked whether it touches the others.
class MemoryRanges {
public:
    bool is_free(const void *start, size_t bytes) const;
    void add(const void *start, size_t bytes);

private:
    std::map<uintptr_t, uintptr_t> ends_; // by start; no two ranges touch
};

// Calls of one communicator and one stream that may run in any order, because none writes what
// another one reads or writes.
class FusionBatch {
public:
    enum class Calls : uint8_t {
        keep_order, // those that are not fused stay where they are among the others
        are_apart,  // the caller knows that they are; they may all run in any order
    };
    FusionBatch(const Comm &comm, Calls calls);

    // Returns false, and changes nothing, if the call has to run after the others. The first call
    // always joins, and so do all calls that are apart. The calls have to stay until the batch has
    // run.
    bool join(const ReadyCall &call, size_t number);
    // Returns the calls to make, in this order.
    std::span<const FusedCall> calls() const { return calls_; }

private:
    bool is_apart_from_others(const ReadyCall &call) const;
    void begin_kind(const ReadyCall &call, size_t number, const std::optional<FusedForm> &form);
    // Lets the call join those of its kind, or begin a kind. Returns false if there are too many.
    bool join_kind(const ReadyCall &call, size_t number, const FusedForm &form);
    void note_buffers(const ReadyCall &call);
    std::optional<FusedForm> form_of(const ReadyCall &call) const;

    const uint64_t most_bytes_;
    const Calls given_;
    bool takes_others_;
    std::vector<FusedCall> calls_;
    size_t latest_ = 0; // of calls_: which one the latest call has joined; size(): none has
    size_t kinds_ = 0;  // of calls_ that others may join
    MemoryRanges read_, written_;
};

} // namespace qccl
