// Implements group_comm.hpp with the public C API.
#include "perf/group_comm.hpp"

namespace qccl::perf {

qcclConfig_t lossless_config() {
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.codec = "none";
    return config;
}

Result<CommHandle> create_comm(RankGroup &rank_group, const qcclConfig_t &config) {
    struct Invitation {
        qcclUniqueId id{};
        bool is_valid = true;
        Error error; // rank 0's error if it has no id
    };
    Invitation mine;
    if (rank_group.rank() == 0)
        if (const Done made = explained(qcclGetUniqueId(&mine.id), "qcclGetUniqueId"); !made) {
            mine.is_valid = false;
            mine.error = made.error();
        }
    QCCL_TRY(const auto all, gather(rank_group, mine));
    if (!all[0].is_valid) return all[0].error;
    qcclComm_t comm = nullptr;
    QCCL_TRY(
        explained(qcclCommInitRankConfig(&comm, static_cast<int>(rank_group.size()), &all[0].id,
                                         static_cast<int>(rank_group.rank()), &config),
                  "qcclCommInitRankConfig"));
    return CommHandle(comm);
}

Result<CommHandle> create_comm(RankGroup &rank_group, const MpiModule &mpi,
                               const qcclConfig_t &config) {
    const qcclOob_t oob{mpi.allgather, nullptr};
    qcclComm_t comm = nullptr;
    QCCL_TRY(explained(qcclCommInitOob(&comm, static_cast<int>(rank_group.size()),
                                       static_cast<int>(rank_group.rank()), &oob, &config),
                       "qcclCommInitOob"));
    return CommHandle(comm);
}

Result<std::vector<CommHandle>> create_comms(const std::vector<const char *> &devices) {
    std::vector<qcclComm_t> raw(devices.size());
    QCCL_TRY(explained(qcclCommInitAll(raw.data(), static_cast<int>(raw.size()), devices.data()),
                       "qcclCommInitAll"));
    std::vector<CommHandle> comms;
    for (const qcclComm_t comm : raw) comms.emplace_back(comm);
    return comms;
}

} // namespace qccl::perf
