// C functions that create communicators. All but qcclGetUniqueId block until all ranks have come.
#include "api/creation.hpp"
#include "api/entry.hpp"
#include "base/service_thread.hpp"
#include "device/loader.hpp"

#include <cstring>
#include <latch>
#include <string_view>

#include <unistd.h>

namespace qccl {

static_assert(sizeof(qcclUniqueId) == sizeof(UniqueId));

namespace {

RendezvousOptions rendezvous_options(const Settings &settings, std::chrono::nanoseconds timeout) {
    RendezvousOptions options;
    options.timeout = timeout;
    options.linger = settings.peer_timeout;
    if (settings.socket_interface) options.interface = *settings.socket_interface;
    return options;
}

Done check_rank(int nranks, int rank) {
    if (nranks < 1)
        return Error::make(Code::invalid_argument, "nranks is %d, not 1 or more", nranks);
    if (rank >= 0) return {};
    return Error::make(Code::invalid_argument, "rank is %d; possible are 0 to %d", rank,
                       nranks - 1);
}

Result<std::shared_ptr<Comm>> join(int nranks, const qcclUniqueId &id, int rank,
                                   const CommConfig &comm_config) {
    const EnvSettings env_settings = read_env_settings();
    const Settings &settings = env_settings.settings;
    RendezvousOptions options =
        rendezvous_options(settings, comm_config.timeout.value_or(settings.timeout));
    // If the log cannot be created, the ranks learn of that when they have met.
    if (const auto log = create_log(comm_config, settings, static_cast<uint32_t>(rank)))
        options.warn = [log = *log](const char *sentence) { log->warn("%s", sentence); };
    UniqueId bytes;
    std::memcpy(bytes.data(), id.internal, bytes.size());
    // A rank beyond the size is refused by the rendezvous, where all waiting ranks can learn of it.
    QCCL_TRY(
        const std::unique_ptr<Bootstrap> bootstrap,
        join_unique_id(bytes, static_cast<uint32_t>(nranks), static_cast<uint32_t>(rank), options));
    return create_comm(*bootstrap, Reach::host, comm_config, env_settings, nullptr);
}

EnvironmentOptions environment_options(const CommConfig &comm_config, const Settings &settings) {
    EnvironmentOptions options;
    options.rendezvous =
        rendezvous_options(settings, comm_config.timeout.value_or(settings.timeout));
    if (comm_config.peer_timeout) options.rendezvous.linger = *comm_config.peer_timeout;
    if (settings.port) options.port = static_cast<uint16_t>(*settings.port);
    options.secret_file = settings.secret_file;
    // This process does not know its rank yet.
    if (const auto log = create_log(comm_config, settings, static_cast<uint32_t>(Error::no_rank)))
        options.rendezvous.warn = [log = *log](const char *sentence) { log->warn("%s", sentence); };
    return options;
}

// Creates all ranks at once, each on a thread of its own, as creation needs it. No rank starts
// before all threads exist, because a rank without a thread would keep the others waiting.
class SiblingCreation {
public:
    // `devices`: a name for each rank; null: all ranks are on the host.
    SiblingCreation(uint32_t size, const char *const *devices)
        : size_(size), devices_(devices), env_settings_(read_env_settings()),
          bootstraps_(create_local_bootstraps(size, env_settings_.settings.timeout)),
          siblings_(std::make_shared<SiblingComms>(size)), comms_(size), dones_(size) {}

    Result<std::vector<std::shared_ptr<Comm>>> run() {
        std::latch start_latch(1);
        const Done started = exception_boundary([&] { return start(start_latch); });
        runs_ = started.is_ok();
        start_latch.count_down();
        for (ServiceThread &thread : threads_) thread.join();
        QCCL_TRY(started);
        // The error of the rank at fault is preferred: that rank does not report a remote_error.
        const Done *first = nullptr;
        for (const Done &done : dones_) {
            if (done) continue;
            if (!first || done.error().code != Code::remote_error) first = &done;
        }
        if (first) return first->error();
        return std::move(comms_);
    }

private:
    Done start(std::latch &start_latch) {
        threads_.reserve(size_);
        for (uint32_t rank = 0; rank < size_; rank++) {
            QCCL_TRY(ServiceThread thread,
                     ServiceThread::start(rank_thread_name, [this, &start_latch, rank] {
                         start_latch.wait();
                         if (runs_) dones_[rank] = exception_boundary([&] { return create(rank); });
                     }));
            threads_.push_back(std::move(thread));
        }
        return {};
    }
    Done create(uint32_t rank) {
        CommConfig comm_config;
        if (devices_) comm_config.device = devices_[rank];
        const std::unique_ptr<Bootstrap> bootstrap = std::move(bootstraps_[rank]);
        QCCL_TRY(comms_[rank],
                 create_comm(*bootstrap, Reach::process, comm_config, env_settings_, siblings_));
        return {};
    }

    const uint32_t size_;
    const char *const *const devices_;
    const EnvSettings env_settings_;
    std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
    std::shared_ptr<SiblingComms> siblings_;
    std::vector<std::shared_ptr<Comm>> comms_;
    std::vector<Done> dones_;
    bool runs_ = false; // written before the latch opens
    std::vector<ServiceThread> threads_;
};

// Each rank has an arena and, while it is created, a thread.
constexpr int most_local_ranks = 4096;

Done check_local_ranks(int nranks) {
    QCCL_TRY(check_rank(nranks, 0));
    if (nranks <= most_local_ranks) return {};
    return Error::make(Code::invalid_argument,
                       "nranks is %d; one process can have at most %d ranks of a communicator",
                       nranks, most_local_ranks)
        .compared(most_local_ranks, nranks);
}

Done check_devices(const char *const *devices, int nranks) {
    for (int rank = 0; devices && rank < nranks; rank++)
        QCCL_TRY(check_device("devices[" + std::to_string(rank) + "]",
                              devices[rank] ? devices[rank] : "(NULL)"));
    return {};
}

} // namespace
} // namespace qccl

using namespace qccl;

qcclResult_t qcclGetUniqueId(qcclUniqueId *id_out) {
    return guarded([=]() -> Done {
        if (!id_out) return Error::make(Code::invalid_argument, "id_out is NULL");
        const EnvSettings env_settings = read_env_settings();
        QCCL_TRY(env_settings.readable);
        QCCL_TRY(env_settings.rules_readable);
        const Settings &settings = env_settings.settings;
        QCCL_TRY(const UniqueId id,
                 create_unique_id(rendezvous_options(settings, settings.timeout)));
        std::memcpy(id_out->internal, id.data(), id.size());
        return {};
    });
}
QCCL_TWIN(qcclGetUniqueId);

qcclResult_t qcclCommInitRankConfig(qcclComm_t *comm_out, int nranks, const qcclUniqueId *id,
                                    int rank, const qcclConfig_t *config) {
    return guarded([=]() -> Done {
        if (!comm_out) return Error::make(Code::invalid_argument, "comm_out is NULL");
        if (!id) return Error::make(Code::invalid_argument, "id is NULL");
        QCCL_TRY(check_rank(nranks, rank));
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        QCCL_TRY(auto comm, join(nranks, *id, rank, comm_config));
        return make_handle(std::move(comm), comm_out);
    });
}
QCCL_TWIN(qcclCommInitRankConfig);

qcclResult_t qcclCommInitRank(qcclComm_t *comm_out, int nranks, const qcclUniqueId *id, int rank) {
    return pqcclCommInitRankConfig(comm_out, nranks, id, rank, nullptr);
}
QCCL_TWIN(qcclCommInitRank);

qcclResult_t qcclCommInitAll(qcclComm_t *comms_out, int nranks, const char *const devices[]) {
    return guarded([=]() -> Done {
        if (!comms_out) return Error::make(Code::invalid_argument, "comms_out is NULL");
        QCCL_TRY(check_local_ranks(nranks));
        QCCL_TRY(check_devices(devices, nranks));
        QCCL_TRY(auto comms, SiblingCreation(static_cast<uint32_t>(nranks), devices).run());
        return make_handles(std::move(comms), comms_out);
    });
}
QCCL_TWIN(qcclCommInitAll);

qcclResult_t qcclCommInitOob(qcclComm_t *comm_out, int nranks, int rank, const qcclOob_t *oob,
                             const qcclConfig_t *config) {
    return guarded([=]() -> Done {
        if (!comm_out) return Error::make(Code::invalid_argument, "comm_out is NULL");
        QCCL_TRY(check_rank(nranks, rank));
        if (rank >= nranks)
            return Error::make(Code::invalid_argument, "rank is %d; possible are 0 to %d", rank,
                               nranks - 1);
        if (!oob || !oob->allgather)
            return Error::make(Code::invalid_argument, "%s is NULL",
                               oob ? "oob->allgather" : "oob");
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        const EnvSettings env_settings = read_env_settings();
        const auto bootstrap =
            create_oob_bootstrap(static_cast<uint32_t>(nranks), static_cast<uint32_t>(rank),
                                 oob->allgather, oob->context);
        QCCL_TRY(auto comm,
                 create_comm(*bootstrap, Reach::host, comm_config, env_settings, nullptr));
        return make_handle(std::move(comm), comm_out);
    });
}
QCCL_TWIN(qcclCommInitOob);

qcclResult_t qcclCommInitEnv(qcclComm_t *comm_out, const qcclConfig_t *config) {
    return guarded([=]() -> Done {
        if (!comm_out) return Error::make(Code::invalid_argument, "comm_out is NULL");
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        const EnvSettings env_settings = read_env_settings();
        QCCL_TRY(env_settings.readable);
        QCCL_TRY(
            const auto bootstrap,
            join_environment(environ, environment_options(comm_config, env_settings.settings)));
        QCCL_TRY(auto comm,
                 create_comm(*bootstrap, Reach::host, comm_config, env_settings, nullptr));
        return make_handle(std::move(comm), comm_out);
    });
}
QCCL_TWIN(qcclCommInitEnv);
