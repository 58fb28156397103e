// A trace event of fixed size: a call's beginning, each thing that the rank does or waits for in
// the call, and the call's end. The thread that runs the call writes events, and the trace's thread
// reads them.
#pragma once

#include <cstdint>

namespace qccl {

struct TraceEvent {
    enum class Kind : uint8_t {
        call_begin,
        call_end,
        wait,   // for `peer`; `detail` is the WaitPhase
        send,   // handing a message to `peer`
        recv,   // taking a message of `peer`
        work,   // computing; `detail` says what, see TraceWork
        launch, // on a GPU: starting the work
        device, // on a GPU: doing the work
    };
    static constexpr uint32_t all_peers = ~uint32_t{0};
    static constexpr uint32_t no_step = ~uint32_t{0};

    uint64_t begin = 0, end = 0; // ticks_now(); call_begin and call_end: both are the call's
    uint64_t call = 0;           // its number on the communicator
    // send and recv: a number that is equal on both sides of the message; other messages hardly
    // have the same. call_begin and call_end: ticks when the call was given to a stream; 0: not in
    // a stream.
    uint64_t link = 0;
    uint64_t value = 0;      // send, recv and work: bytes; call_begin and call_end: the tag
    uint32_t shape = 0;      // the call's, as CallTracer numbers them
    uint32_t peer = 0;       // a rank; call_end: number of events without room
    uint32_t step = no_step; // send, recv and wait: of the schedule, from 0
    uint32_t segment = 0;    // which segment's run of the schedule, from 0
    uint32_t chunk = 0;      // work and launch
    uint16_t lane = 0;       // device: whose GPU stream
    Kind kind = Kind::wait;
    uint8_t detail = 0; // also of call_end, see TraceEnd
};
static_assert(sizeof(TraceEvent) == 64, "a cache line each");

// The bits of a work event's detail.
struct TraceWork {
    static constexpr uint8_t decode = 1, reduce = 2, divide = 4, copy = 8, encode = 16;
};

// The bits of a call_end event's detail.
struct TraceEnd {
    static constexpr uint8_t failed = 1;
    static constexpr uint8_t began = 2; // the trace has the call_begin and the call's steps
};

} // namespace qccl
