// What each rank keeps of its calls in a file that others may read at any time, also after the rank
// has died: the bytes of a record, the record as a reader uses it, and sentences about what ranks
// do at the moment. Pure; any thread may call.
//
// One rank's record is a head, a state and a ring of calls, and then the processes of its host's
// ranks; a file holds one record or more. The flight recorder writes records. The tools that look
// at running or dead ranks read the bytes and have them copied and checked here (`parse_records`),
// whatever bytes they are. RankState serves these tools and the ranks' own errors, which describe
// ranks in the same words; the caller collects the states.
#pragma once

#include "base/call_descriptor.hpp"
#include "base/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- Bytes of a record

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

// ---- States of ranks, in sentences

struct RankState {
    enum class Process : uint8_t { runs, stopped, ended, unknown };

    uint32_t rank = 0;
    uint64_t begun = 0, ended = 0;                     // latest calls
    std::optional<CallDescriptor> call = std::nullopt; // the one that has begun
    std::optional<Wait> wait = std::nullopt;           // only if the wait is long
    int64_t waited_ns = 0;
    int64_t silent_ns = 0; // since the rank's last sign of life, which a waiting rank gives all the
                           // time
    bool is_remote = false; // a remote rank: its last report
    bool has_left = false, has_failed = false;
    Process process = Process::runs;

    bool is_in_call() const { return begun > ended; }
    // Whether the rank is in a message and in none of the communicator's calls.
    bool is_in_message() const {
        return wait && (wait->phase == WaitPhase::send || wait->phase == WaitPhase::receive);
    }
    bool has_stalled() const { return wait && silent_ns >= 1'000'000'000; }
    // Whether the rank waits and would continue if the event that it waits for came.
    bool is_waiting() const {
        return wait && (is_in_call() || is_in_message()) && !has_left && process == Process::runs &&
               !has_stalled();
    }
};

std::string collective_text(Collective collective);
// "0-3, 7"; `ranks` is ascending.
std::string rank_list(std::span<const uint32_t> ranks);
// Returns what the rank does and which rank it waits for: "waits for a chunk of rank 2, step 3 of
// 8, for 12.3 s".
std::string describe(const RankState &state);
// Returns which rank the ranks wait for in the end, and what the others do: one sentence for all
// ranks of which the same can be said, in the order of their lowest ranks. Before them stands a
// sentence about ranks that wait for each other in messages, if there are such ranks. `states` is
// in the order of ranks.
std::vector<std::string> summarize(std::span<const RankState> states);
// Joins the sentences into one of at most `most` characters.
std::string one_sentence(std::span<const std::string> sentences, size_t most);
// Appends to an error what the ranks do, as far as its sentence has space.
Error explained(const Error &error, std::span<const RankState> states);

// ---- Reading records

struct RankRecord {
    RecordHead head; // its texts are terminated
    RecordedState state;
    std::vector<CallDescriptor> calls; // the complete ones, by number
    std::vector<RecordedProcess> processes;

    const CallDescriptor *find(uint64_t call) const;
    // Returns what the rank did when it was last seen. `now_ns` is the machine's clock since its
    // boot; empty: the record is from another machine's clock, or the rank no longer runs.
    RankState rank_state(std::optional<int64_t> now_ns) const;
};

// Returns the records of a file up to the first invalid one; `file` may be any bytes. Returns
// damaged_data if the first record is invalid.
Result<std::vector<RankRecord>> parse_records(std::span<const std::byte> file);

// Returns a sentence about the first call on which ranks differ, as far as their records reach;
// empty if there is none.
std::string first_difference(std::span<const RankRecord> records);
// Describes a call in one line of a list.
std::string describe(const CallDescriptor &call);

} // namespace qccl
