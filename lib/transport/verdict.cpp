// A record is complete before it is offered, so that a rank that dies while it accuses leaves
// either nothing or everything.
#include "transport/verdict.hpp"

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

Error as_heard(Error told, uint32_t from, uint32_t size) {
    const bool is_whole = std::memchr(told.text, '\0', sizeof told.text) != nullptr;
    const bool names_a_rank =
        told.rank == Error::no_rank || (told.rank >= 0 && static_cast<uint32_t>(told.rank) < size);
    if (!is_whole || !names_a_rank || !is_failure(told.code))
        return Error::make(Code::remote_error,
                           "rank %u says that the communicator has failed, but not why", from)
            .at_rank(from);
    // It is shown on terminals.
    for (char &each : told.text)
        if (each != '\0' && !std::isprint(static_cast<unsigned char>(each))) each = '?';
    return told;
}

std::optional<Error> Verdict::failure() const {
    const uint32_t recorded_by = line().recorded_by.load(std::memory_order_acquire);
    if (recorded_by == 0) return std::nullopt;
    // Who knows of the failure returns, and its caller may write where peers still read: those who
    // see what it writes see the failure too.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (recorded_by > party_.size())
        return Error::make(Code::internal_error, "the shared failure record is damaged");
    Error error = party_.segments[recorded_by - 1].failure().error;
    error.text[sizeof error.text - 1] = '\0';
    return error;
}

Error Verdict::pass(const Error &error) {
    const std::lock_guard guard(one_writer_);
    if (!is_passed()) {
        party_.mine().failure().error = error;
        uint32_t nobody = 0;
        line().recorded_by.compare_exchange_strong(
            nobody, party_.rank + 1, std::memory_order_acq_rel, std::memory_order_acquire);
        party_.wake_all();
    }
    return *failure();
}

} // namespace qccl
