// Implements the exchange of each rank's status with each all-gather.
#include "comm/creation/status_all_gather.hpp"

#include "transport/peer_info.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace qccl {

namespace {

// What a rank sends at each step. A rank that has failed takes part in the others' next step
// without knowing what that step is, so all steps send equally many bytes.
struct StatusNote {
    uint64_t bytes = 0; // of the all-gather; 0: none
    Error error{.code = Code::success};
    std::byte data[StatusAllGather::most_in_one] = {};
};
static_assert(std::has_unique_object_representations_v<StatusNote>, "sent as bytes");
static_assert(sizeof(StatusNote) == 2568,
              "another size changes the bytes that ranks exchange: raise newest_protocol, too");

StatusNote note_of(const Done &mine, const void *data, uint64_t bytes) {
    StatusNote note{.bytes = bytes};
    if (mine) {
        if (bytes <= sizeof note.data && bytes != 0) std::memcpy(note.data, data, bytes);
        return note;
    }
    note.error = mine.error();
    return note;
}

// The error that `rank` has reported. The rank at fault is the one that the note names, or else
// `rank` itself.
Error error_of(const StatusNote &note, uint32_t rank) {
    Error received = note.error;
    const std::string_view text = received.make_printable().text;
    char who[24];
    snprintf(who, sizeof who, "rank %" PRIu32 ": ", rank);
    // Some sentences already begin with the rank.
    const bool says_who = text.starts_with(who);
    return Error::make(Code::remote_error, "%s%s", says_who ? "" : who, received.text)
        .at_rank(received.rank == Error::no_rank ? int64_t{rank} : received.rank)
        .compared(received.expected, received.got);
}

} // namespace

Done StatusAllGather::agree(const Done &mine, const void *data, void *all, uint64_t bytes) {
    const StatusNote note = note_of(mine, data, bytes);
    std::vector<StatusNote> notes(bootstrap_.size());
    if (const Done done = bootstrap_.all_gather(&note, notes.data(), sizeof note); !done) {
        is_over_ = true;
        return mine || may_explain(done.error(), mine.error()) ? done : mine;
    }
    if (!mine) {
        is_over_ = true;
        // The reason for which another rank has left says more than that it has.
        const Error &own = mine.error();
        const auto lost = static_cast<size_t>(own.rank);
        const bool has_reason = own.code == Code::peer_lost && lost < notes.size() &&
                                notes[lost].error.code != Code::success;
        return has_reason ? error_of(notes[lost], static_cast<uint32_t>(own.rank)) : mine;
    }
    for (uint32_t rank = 0; rank < notes.size(); rank++) {
        if (notes[rank].error.code != Code::success) {
            is_over_ = true;
            return error_of(notes[rank], rank);
        }
        if (notes[rank].bytes == bytes) continue;
        is_over_ = true;
        return Error::make(Code::mismatch,
                           "creation: rank %" PRIu32 " offers %" PRIu64 " bytes where rank %" PRIu32
                           " offers %" PRIu64,
                           rank, notes[rank].bytes, bootstrap_.rank(), bytes)
            .at_rank(rank);
    }
    if (bytes == 0 || bytes > most_in_one) return {};
    for (size_t rank = 0; rank < notes.size(); rank++)
        std::memcpy(static_cast<std::byte *>(all) + rank * bytes, notes[rank].data, bytes);
    return {};
}

Done StatusAllGather::all_gather(const void *mine, void *all, size_t bytes) {
    QCCL_TRY(agree({}, mine, all, bytes));
    if (bytes <= most_in_one) return {};
    const Done done = bootstrap_.all_gather(mine, all, bytes);
    if (!done) is_over_ = true;
    return done;
}

Done StatusAllGather::conclude(const Done &mine) {
    if (is_over_) return mine;
    return agree(mine, nullptr, nullptr, 0);
}

} // namespace qccl
