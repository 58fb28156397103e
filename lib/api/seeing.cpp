// What a communicator would do and what it has done, for C.
#include "api/config.hpp"
#include "api/entry.hpp"

using namespace qccl;

qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclCommStats_t *stats_out) {
    return at_any_time(comm, [=](Comm &found) -> Done {
        if (!stats_out) return Error::make(Code::invalid_argument, "stats_out is NULL");
        const Counts counts = found.counts();
        qcclCommStats_t stats{};
        stats.calls = counts.calls;
        stats.raw_bytes = counts.raw_bytes;
        stats.wire_bytes = counts.wire_bytes;
        stats.encode_ns = counts.encode_ns;
        stats.copy_ns = counts.copy_ns;
        stats.wait_ns = counts.wait_ns;
        stats.wire_ns = counts.wire_ns;
        constexpr size_t first_bytes = 128; // release 0.1
        return give_struct("qcclCommStats_t", &stats, sizeof stats, first_bytes, stats_out);
    });
}
QCCL_TWIN(qcclCommGetStats);
