// What a rank tells others about itself: the description of its call, on which all ranks have to
// agree, and what it waits for. The transport publishes and compares descriptors; records, traces
// and errors show both. Pure; any thread may call.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace qccl {

// ---- Calls

// The numbers that differ between the calls of one program. They are kept apart from the
// descriptor, which is written once for each program and read in every call: numbers stored into a
// copy of the descriptor would have to reach memory before the copy could be read.
struct CallNumbers {
    uint64_t call = 0;     // number of the call on the communicator, from 1 and without gaps
    uint64_t tag = 0;      // the caller's; shown, not compared
    uint64_t captured = 0; // see CallDescriptor, also for `earlier`
    uint64_t earlier = 0;
};

// The two ranks of a message, in the communicator of which they are ranks. The message is a call on
// a communicator of these two alone, in which the lower one is rank 0.
struct MessageEnds {
    uint32_t sender = 0, receiver = 0;

    uint32_t rank_of(uint32_t of_two) const {
        return of_two == 0 ? std::min(sender, receiver) : std::max(sender, receiver);
    }
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
    // Of v-forms whose counts all ranks know, of calls that run as one and of layers, all of which
    // have no root: a hash of the counts.
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

    // Returns word `i`. Who copies all words at once copies in longer pieces, and the processor
    // waits until numbers that were stored a moment ago have left for the cache.
    uint64_t word_at(size_t i) const {
        uint64_t value;
        std::memcpy(&value, reinterpret_cast<const std::byte *>(this) + i * sizeof value,
                    sizeof value);
        return value;
    }
    uint64_t hash() const; // of everything that must agree
    // Returns the first field in which `theirs` (of rank `rank`) differs from this descriptor (of
    // rank `reference`), as a mismatch whose sentence has both values. The last difference checked
    // is that calls before this one differed. Empty if there is none. `ends`: the call is a message
    // of these ranks, and the sentence says so; null: it is none.
    std::optional<Error> difference(uint32_t reference, const CallDescriptor &theirs, uint32_t rank,
                                    const MessageEnds *ends = nullptr) const;
};
static_assert(sizeof(CallDescriptor) == 112, "hashed and published word by word: no padding");

// What the descriptors of a program's calls share: a descriptor whose numbers are 0. Every call
// takes a hash, and most look something up by the shape, so what does not depend on numbers is
// computed once.
class CallShape {
public:
    CallShape(const CallDescriptor &descriptor = {});

    const CallDescriptor &descriptor() const { return descriptor_; }
    // Returns the hash of the descriptor that has these numbers.
    uint64_t hash(const CallNumbers &numbers) const;
    uint64_t fingerprint() const { return fingerprint_; } // the hash without numbers

private:
    CallDescriptor descriptor_;
    uint64_t digest_, fingerprint_;
};

// ---- Waits

// The numbers stand in records that other versions read.
enum class WaitPhase : uint32_t {
    unknown = 0,
    meeting = 1,       // a peer to begin the call
    eager = 2,         // a peer to post its eager slot
    message = 3,       // a peer's chunk
    mailbox_space = 4, // a peer to take a chunk
    readers = 5,       // peers to read a chunk of this rank
    network = 6,       // sent messages to leave for other hosts
    device = 7,        // this rank's device to compute
    // Of a rank in a message: the other end to make the matching call.
    send = 8,
    receive = 9,
};

struct Wait {
    Wait(uint32_t awaited = 0, WaitPhase what = WaitPhase::unknown) : on(awaited), phase(what) {}

    uint32_t on; // the rank; itself if it waits for others to read
    WaitPhase phase;
    // Step of the schedule and run over segments: which of how many, from 1; 0 if there is none.
    uint32_t step = 0, steps = 0;
    uint64_t segment = 0, segments = 0;
    // The rank also waits for something that does not wake it up, so the wait may last no longer
    // than one sleep between two checks.
    bool is_brief = false;
};

} // namespace qccl
