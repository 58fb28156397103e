#include "perf/crew_comm.hpp"

namespace qccl::perf {

qcclConfig_t lossless_config() {
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.codec = "none";
    return config;
}

Result<CommHandle> create_comm(Crew &crew, const qcclConfig_t &config) {
    struct Invitation {
        qcclUniqueId id{};
        bool is_valid = true;
        Error error; // of rank 0, where it has no id
    };
    Invitation mine;
    if (crew.rank() == 0)
        if (const Done made = explained(qcclGetUniqueId(&mine.id), "qcclGetUniqueId"); !made) {
            mine.is_valid = false;
            mine.error = made.error();
        }
    QCCL_TRY(const auto all, gather(crew, mine));
    if (!all[0].is_valid) return all[0].error;
    qcclComm_t comm = nullptr;
    QCCL_TRY(explained(qcclCommInitRankConfig(&comm, static_cast<int>(crew.size()), &all[0].id,
                                              static_cast<int>(crew.rank()), &config),
                       "qcclCommInitRankConfig"));
    return CommHandle(comm);
}

Result<CommHandle> create_comm(Crew &crew, const MpiModule &mpi, const qcclConfig_t &config) {
    const qcclOob_t oob{mpi.allgather, nullptr};
    qcclComm_t comm = nullptr;
    QCCL_TRY(explained(qcclCommInitOob(&comm, static_cast<int>(crew.size()),
                                       static_cast<int>(crew.rank()), &oob, &config),
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
