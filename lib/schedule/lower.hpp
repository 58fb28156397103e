// Converts an author's schedule to what an engine can issue. place_codec places the codec: a value
// is encoded once before it is sent, a received value is decoded where it is first needed, and a
// value that is passed on travels as it came; the result does not depend on the codec. lower
// derives which steps each step must wait for, from the slots that the steps read and write; the
// author of a schedule writes no waits. places_in_series finds series of messages: a rank sends
// them to one peer, or receives them from one peer, and only computes between two of them when it
// does its steps in order; the small messages of one series may go as one. A task is what an engine
// issues at once: a send, a receive or a run of joined steps.
//
// The compiler of programs, the planner and the verifiers use these functions. The engine adds
// dependencies of its own to the tasks; the proof for synchronous sends and the simulator run all
// ranks of a schedule by its tasks, without bytes. Pure functions of one rank's schedule; any
// thread.
//
// place_codec.cpp defines place_codec, the largest pass; lower.cpp defines the others.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// ---- The codec's place

// Returns the placed schedule. Once a value has been encoded, every later step of this rank reads
// what its bytes decode to, so that no rank keeps a better copy than it gave away. For the same
// reason, copying a value that is sent later encodes it at once. The first write of an accumulator
// becomes a copy or a decode. The error (invalid_argument) refuses a schedule that needs more own
// wire slots at a time than `outbox`, reads a slot that was never written, finishes a value that
// has already been sent, passes on a value in another tier than it came in, or is already placed.
// `owner`: of a collective with owners, whether copies of inputs to outputs stay exact.
Result<Schedule> place_codec(const Schedule &author, OwnerKeeps owner = OwnerKeeps::decoded);

// ---- Dependencies of steps

// The steps that each step waits for: indices of earlier steps, ascending, in one array for all.
struct Dependencies {
    std::vector<uint32_t> first{0}; // of step i: earlier[first[i]] .. earlier[first[i + 1] - 1]
    std::vector<uint32_t> earlier;

    size_t steps() const { return first.size() - 1; }
    std::span<const uint32_t> of(size_t step) const {
        return std::span(earlier).subspan(first[step], first[step + 1] - first[step]);
    }
    bool operator==(const Dependencies &) const = default;
};

// Returns the dependencies: read after write, write after read and write after write of every slot.
// Input c and output c count as one slot. A wait that another one implies is left out where that is
// cheap to see. Also numbers the messages of each pair of ranks in each direction, and marks the
// last reader of every value that a wire slot holds (Step::releases).
Dependencies lower(Schedule &schedule);

// ---- Series of messages

// Returns for each step how many messages of its series come before it; 0 for a step that moves
// nothing.
std::vector<uint32_t> places_in_series(const Schedule &schedule);

// ---- Tasks

// Consecutive steps that the engine issues at once: [first, last) of the schedule.
struct StepRun {
    uint32_t first = 0, last = 0;
};

// Returns joined steps as one run, and every other step as a run of its own. If `joins` is false,
// every step is a run of its own.
std::vector<StepRun> find_runs(const Schedule &schedule, bool joins = true);

// Tasks, and the order between them.
struct TaskGraph {
    // A send, a receive, or a run of joined steps.
    struct GraphTask {
        uint32_t first = 0, last = 0;           // the schedule's steps [first, last)
        uint32_t next_first = 0, next_last = 0; // `next`: the tasks that wait for this one
    };

    std::vector<GraphTask> tasks; // in the schedule's order
    std::vector<uint32_t> waits;  // by task: how many tasks must be done before it
    std::vector<uint32_t> next;

    std::span<const uint32_t> after(uint32_t task) const {
        return std::span(next).subspan(tasks[task].next_first,
                                       tasks[task].next_last - tasks[task].next_first);
    }
};

// Returns the tasks of the schedule. `dependencies` is what lower() returned for it.
TaskGraph make_tasks(const Schedule &schedule, const Dependencies &dependencies);

} // namespace qccl
