// The bytes of a record: what each rank keeps of its calls in a file that others may read at any
// time, also when it is dead. One rank's record is a head, a state and a ring of calls, and then
// the processes of its host's ranks; a file holds one or more of them. Knows neither files nor
// time.
#pragma once

#include "base/round_up.hpp"
#include "record/call_descriptor.hpp"
#include "record/wait.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl {

// How its file is called: in the list of a process's files where it has no name, else in a folder.
inline constexpr const char *record_memory_name = "qccl_record";
inline constexpr const char *record_name_beginning = "qccl-", *record_name_end = ".record";

// Of calls, on ranks that have a process each. A process with very many keeps fewer of each.
inline constexpr uint32_t calls_recorded = 256;

// Written once. Whoever changes what the bytes mean changes the version.
struct RecordHead {
    static constexpr uint64_t our_magic =
        0x4443455252434351; // "QCCRRECD"; not another endianness's
    static constexpr uint32_t our_version = 2;

    uint64_t magic = 0; // last
    uint32_t version = our_version;
    uint32_t calls = 0;   // that the ring holds
    uint64_t bytes = 0;   // of this rank's record; the next one's begins there
    uint64_t session = 0; // of the communicator, equal on all ranks
    uint32_t rank = 0;
    uint32_t ranks = 0;      // of the communicator
    uint32_t near_ranks = 0; // how many processes are listed
    uint32_t zero = 0;
    int64_t pid = 0;
    uint64_t process_start = 0; // in ticks since the boot: a later process may have the pid
    char boot[40] = {};         // which boot of which machine
    char host[64] = {};
    char name[64] = {}; // the communicator's, as its creator called it
};
static_assert(sizeof(RecordHead) == 232);

// Written in every call, each number by itself.
struct RecordedState {
    uint64_t begun = 0; // latest call
    uint64_t ended = 0; // likewise
    uint64_t has_left = 0;
    uint64_t has_failed = 0;
    // In a long wait, else `waits` is 0. Times are the machine's since its boot.
    uint64_t waits = 0;
    uint64_t on = 0;
    uint64_t phase = 0;
    uint64_t step = 0, steps = 0;
    uint64_t segment = 0, segments = 0;
    int64_t since_ns = 0;
    int64_t awake_ns = 0; // when it last looked around
    uint64_t zero[3] = {};
};
static_assert(sizeof(RecordedState) == 128);

// Written in every call, without any order among its words: who reads it meanwhile, or after a
// death half-way, finds that `check` is another.
struct RecordedCall {
    uint64_t check = 0;
    uint64_t zero = 0;
    CallDescriptor call;

    static uint64_t check_of(const CallDescriptor &call, uint64_t hash) {
        return hash + call.tag * 0x9E3779B97F4A7C15;
    }
};
static_assert(sizeof(RecordedCall) == 128);

struct RecordedProcess {
    uint32_t rank = 0;
    int32_t pid = 0;
};
static_assert(sizeof(RecordedProcess) == 8);

// Where a record's parts lie.
struct RecordShape {
    static constexpr size_t page = 4096;
    static constexpr size_t state_offset = 256;
    static constexpr size_t calls_offset = 512;

    uint32_t calls = calls_recorded;
    uint32_t near_ranks = 0;

    size_t processes_offset() const { return calls_offset + size_t{calls} * sizeof(RecordedCall); }
    size_t bytes() const {
        const size_t end = processes_offset() + size_t{near_ranks} * sizeof(RecordedProcess);
        return round_up(end, page);
    }
    // What a process with so many ranks affords for each.
    static uint32_t calls_of(uint32_t ranks_of_process);
};

} // namespace qccl
