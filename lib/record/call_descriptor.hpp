// The description of a call that all ranks have to agree about. Published and compared by the
// transport; shown by records and errors. Pure; any thread may call.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <optional>

namespace qccl {

// The numbers that differ between the calls of one program. They are kept apart from the
// descriptor, which is written once for each program and read in every call: numbers stored into a
// copy of the descriptor would have to reach memory before the copy could be read.
struct CallNumbers {
    uint64_t call = 0;     // number of the call on the communicator, from 1 and without gaps
    uint64_t tag = 0;      // the caller's; shown, not compared
    uint64_t captured = 0; // see CallDescriptor, also for `earlier`
    uint64_t earlier = 0;
};

// Everything that the ranks must agree on about one call. Each rank publishes its descriptor before
// its first message or right behind its eager slot, and always before it waits for a peer. Every
// message carries the descriptor's hash; the descriptors themselves are compared only if hashes
// differ. A field without meaning for the collective (the root of an all-gather) keeps its default.
struct CallDescriptor {
    uint64_t call = 0;
    uint64_t count = 0;
    uint64_t tag = 0;
    // For a call that a graph makes: its number among the communicator's captured calls, from 1; 0:
    // the program makes the call.
    uint64_t captured = 0;
    // Hash of the call before, which covers all calls before that one: ranks that once made
    // different calls differ in every later call.
    uint64_t earlier = 0;
    Collective collective = Collective::barrier;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    char codec[32] = {};     // spec as compared; zeros after its end
    char algorithm[24] = {}; // spec as compared; zeros after its end

    CallNumbers numbers() const { return {call, tag, captured, earlier}; }
    void set(const CallNumbers &numbers) {
        call = numbers.call;
        tag = numbers.tag;
        captured = numbers.captured;
        earlier = numbers.earlier;
    }

    uint64_t hash() const { return hash(numbers()); } // of everything that must agree
    uint64_t hash(const CallNumbers &numbers) const;  // with `numbers` instead of its own
    // Returns the first field in which `theirs` (of rank `rank`) differs from this descriptor (of
    // rank `reference`), as a mismatch whose sentence has both values. The last difference checked
    // is that calls before this one differed. Empty if there is none.
    std::optional<Error> difference(uint32_t reference, const CallDescriptor &theirs,
                                    uint32_t rank) const;
};
static_assert(sizeof(CallDescriptor) == 112, "hashed and published word by word: no padding");

} // namespace qccl
