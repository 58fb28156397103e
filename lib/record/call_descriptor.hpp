// What a call is, as far as ranks have to agree about it. Knows not how they compare it.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <optional>

namespace qccl {

// What differs between the calls of one program. Apart from the descriptor, which is written once
// for each program and read in every call: numbers stored into a copy of it would have to reach
// memory before the copy could be read.
struct CallNumbers {
    uint64_t call = 0;     // number of the call on the communicator, from 1 and without gaps
    uint64_t tag = 0;      // the caller's; shown, not compared
    uint64_t captured = 0; // as the descriptor has them
    uint64_t earlier = 0;
};

// What every rank must agree on about one call. Each rank publishes it before its first message, or
// behind its line, and before it waits for anybody; its hash rides on every message, and the
// descriptors are compared only where hashes differ. A field without meaning for the collective
// (the root of an all-gather) keeps its default.
struct CallDescriptor {
    uint64_t call = 0;
    uint64_t count = 0;
    uint64_t tag = 0;
    // Of a call that a graph makes: which of the communicator's captured calls it is, from 1; 0:
    // the program makes it.
    uint64_t captured = 0;
    // Hash of the call before, which covers all calls before that one: ranks that once made
    // different calls differ in every later one.
    uint64_t earlier = 0;
    Collective collective = Collective::barrier;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    char codec[32] = {};     // spec as compared; zeros after its end
    char algorithm[24] = {}; // likewise

    CallNumbers numbers() const { return {call, tag, captured, earlier}; }
    void set(const CallNumbers &numbers) {
        call = numbers.call;
        tag = numbers.tag;
        captured = numbers.captured;
        earlier = numbers.earlier;
    }

    uint64_t hash() const { return hash(numbers()); } // of everything that must agree
    uint64_t hash(const CallNumbers &numbers) const;  // with these instead of its own
    // The first field in which `theirs` (of rank `rank`) differs from this one (of rank
    // `reference`), in a sentence with both values; last, that calls before this one differed.
    std::optional<Error> difference(uint32_t reference, const CallDescriptor &theirs,
                                    uint32_t rank) const;
};
static_assert(sizeof(CallDescriptor) == 112, "hashed and published word by word: no padding");

} // namespace qccl
