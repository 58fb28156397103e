// The bytes of a record: what each rank keeps of its calls in a file that others may read at any
// time, also after the rank has died. One rank's record is a head, a state and a ring of calls, and
// then the processes of its host's ranks; a file holds one record or more. Used by the transport,
// which writes records, and by their readers (rank_record.hpp).
#pragma once

#include "base/round_up.hpp"
#include "record/call_descriptor.hpp"
#include "record/wait.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl {

// Names of record files. A file in memory has the first name in the list of its process's files; a
// file in a folder has the other two as the beginning and end of its name.
inline constexpr const char *record_memory_name = "qccl_record";
inline constexpr const char *record_name_beginning = "qccl-", *record_name_end = ".record";

// Number of calls kept on ranks that have a process each. A process with very many ranks keeps
// fewer for each.
inline constexpr uint32_t calls_recorded = 256;

// Written once. Any change of the bytes' meaning needs a new version.
struct RecordHead {
    static constexpr uint64_t our_magic =
        0x4443455252434351; // "QCCRRECD"; differs in another byte order
    static constexpr uint32_t our_version = 2;

    uint64_t magic = 0; // written last
    uint32_t version = our_version;
    uint32_t calls = 0;   // capacity of the ring
    uint64_t bytes = 0;   // of this rank's record; the next record begins there
    uint64_t session = 0; // of the communicator, equal on all ranks
    uint32_t rank = 0;
    uint32_t ranks = 0;       // of the communicator
    uint32_t local_ranks = 0; // number of processes listed
    uint32_t zero = 0;
    int64_t pid = 0;
    uint64_t process_start = 0; // in ticks since the boot: a later process may have the pid
    char boot[40] = {};         // identifies the boot and the machine
    char host[64] = {};
    char name[64] = {}; // the communicator's, as its creator named it
};
static_assert(sizeof(RecordHead) == 232);

// Written in every call, each number by itself.
struct RecordedState {
    uint64_t begun = 0; // latest call
    uint64_t ended = 0; // latest call
    uint64_t has_left = 0;
    uint64_t has_failed = 0;
    // During a long wait, otherwise `waits` is 0. Times are the machine's since its boot.
    uint64_t waits = 0;
    uint64_t on = 0;
    uint64_t phase = 0;
    uint64_t step = 0, steps = 0;
    uint64_t segment = 0, segments = 0;
    int64_t since_ns = 0;
    int64_t awake_ns = 0; // the rank's last sign of life
    uint64_t zero[3] = {};
};
static_assert(sizeof(RecordedState) == 128);

// Written in every call, without any order among its words: if a reader comes meanwhile, or the
// rank dies half-way, `check` does not match.
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

// The offsets of a record's parts.
struct RecordShape {
    static constexpr size_t page = 4096;
    static constexpr size_t state_offset = 256;
    static constexpr size_t calls_offset = 512;

    uint32_t calls = calls_recorded;
    uint32_t local_ranks = 0;

    size_t processes_offset() const { return calls_offset + size_t{calls} * sizeof(RecordedCall); }
    size_t bytes() const {
        const size_t end = processes_offset() + size_t{local_ranks} * sizeof(RecordedProcess);
        return round_up(end, page);
    }
    // Returns how many calls a process with so many ranks keeps for each rank.
    static uint32_t calls_of(uint32_t ranks_of_process);
};

} // namespace qccl
