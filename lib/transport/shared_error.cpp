// Records and reads the shared failure. A record is complete before it is published, so a rank that
// dies while it records an error leaves either no error or a whole one.
#include "transport/shared_error.hpp"

#include <cctype>
#include <cstring>

namespace qccl {

static bool is_failure(Code code) {
    switch (code) {
#define QCCL_CODE(number, name, text) case Code::name:
        QCCL_RESULTS(QCCL_CODE)
#undef QCCL_CODE
        return code != Code::success && code != Code::in_progress;
    }
    return false;
}

Error sanitize_remote(Error told, uint32_t from, uint32_t size) {
    const bool is_whole = std::memchr(told.text, '\0', sizeof told.text) != nullptr;
    const bool names_a_rank =
        told.rank == Error::no_rank || (told.rank >= 0 && static_cast<uint32_t>(told.rank) < size);
    if (!is_whole || !names_a_rank || !is_failure(told.code))
        return Error::make(Code::remote_error,
                           "rank %u says that the communicator has failed, but not why", from)
            .at_rank(from);
    // The text is shown on terminals.
    for (char &each : told.text)
        if (each != '\0' && !std::isprint(static_cast<unsigned char>(each))) each = '?';
    return told;
}

std::optional<Error> SharedError::failure() const {
    const uint32_t recorded_by = line().recorded_by.load(std::memory_order_acquire);
    if (recorded_by == 0) return std::nullopt;
    // A rank that knows of the failure returns from its call, and its caller may then write where
    // peers still read. The fence makes a peer that sees those writes see the failure, too.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (recorded_by > peer_table_.size())
        return Error::make(Code::internal_error, "the shared failure record is damaged");
    Error error = peer_table_.segments[recorded_by - 1].failure().error;
    error.text[sizeof error.text - 1] = '\0';
    return error;
}

Error SharedError::set_once(const Error &error) {
    const std::lock_guard guard(one_writer_);
    if (!is_set()) {
        peer_table_.mine().failure().error = error;
        uint32_t unset = 0;
        line().recorded_by.compare_exchange_strong(
            unset, peer_table_.rank + 1, std::memory_order_acq_rel, std::memory_order_acquire);
        peer_table_.wake_all();
    }
    return *failure();
}

} // namespace qccl
