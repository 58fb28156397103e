// Implements the exchange of each rank's status before an all-gather.
#include "api/status_all_gather.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace qccl {

namespace {

struct StatusNote {
    uint64_t bytes = 0; // of the all-gather that follows; 0: none
    int32_t code = 0;
    int32_t rank = Error::no_rank; // at fault, if the sender knows the rank
    int64_t expected = 0, got = 0;
    char text[sizeof(Error::text)] = {};
};
static_assert(std::has_unique_object_representations_v<StatusNote>, "sent as bytes");

StatusNote note_of(const Done &mine, uint64_t bytes) {
    StatusNote note{.bytes = bytes};
    if (mine) return note;
    const Error &error = mine.error();
    note.code = static_cast<int32_t>(error.code);
    note.rank = error.rank;
    note.expected = error.expected;
    note.got = error.got;
    std::memcpy(note.text, error.text, sizeof note.text);
    return note;
}

// The error that `rank` has reported. The rank at fault is the one that the note names, or else
// `rank` itself.
Error heard(StatusNote note, uint32_t rank) {
    note.text[sizeof note.text - 1] = 0;
    char who[24];
    snprintf(who, sizeof who, "rank %" PRIu32 ": ", rank);
    // Some sentences already begin with the rank.
    const bool says_who = std::string_view(note.text).starts_with(who);
    Error error = Error::make(Code::remote_error, "%s%.200s", says_who ? "" : who, note.text);
    return error.at_rank(note.rank == Error::no_rank ? int64_t{rank} : note.rank)
        .compared(note.expected, note.got);
}

} // namespace

Done StatusAllGather::agree(const Done &mine, uint64_t bytes) {
    const StatusNote note = note_of(mine, bytes);
    std::vector<StatusNote> notes(bootstrap_.size());
    if (const Done done = bootstrap_.all_gather(&note, notes.data(), sizeof note); !done) {
        is_over_ = true;
        return mine ? done : mine;
    }
    if (!mine) is_over_ = true;
    QCCL_TRY(mine);
    for (uint32_t rank = 0; rank < notes.size(); rank++) {
        if (notes[rank].code != 0) {
            is_over_ = true;
            return heard(notes[rank], rank);
        }
        if (notes[rank].bytes == bytes) continue;
        is_over_ = true;
        return Error::make(Code::mismatch,
                           "creation: rank %" PRIu32 " offers %" PRIu64 " bytes where rank %" PRIu32
                           " offers %" PRIu64,
                           rank, notes[rank].bytes, bootstrap_.rank(), bytes)
            .at_rank(rank);
    }
    return {};
}

Done StatusAllGather::all_gather(const void *mine, void *all, size_t bytes) {
    QCCL_TRY(agree({}, bytes));
    const Done done = bootstrap_.all_gather(mine, all, bytes);
    if (!done) is_over_ = true;
    return done;
}

Done StatusAllGather::conclude(const Done &mine) {
    if (is_over_) return mine;
    return agree(mine, 0);
}

} // namespace qccl
