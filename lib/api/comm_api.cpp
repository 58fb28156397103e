// C functions that create a communicator, that finalize, destroy, abort or revoke it, and that ask
// for its state, size and rank. Those that create communicators block until all ranks have come,
// unless the config is nonblocking; qcclGetUniqueId does not.

#include "api/assemble.hpp"
#include "api/call/entry.hpp"
#include "api/group/call_group.hpp"
#include "base/system.hpp"
#include "comm/creation/creation.hpp"
#include "device/device.hpp"

#include <cstring>
#include <latch>
#include <string_view>

#include <unistd.h>

namespace qccl {

// ---- Creation

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
    if (nranks < 1) return invalid_argument("nranks is %d, not 1 or more", nranks);
    if (rank >= 0) return {};
    return invalid_argument("rank is %d; possible are 0 to %d", rank, nranks - 1);
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

// A copy of the environment, which the program may change while a task reads it.
class EnvironmentCopy {
public:
    explicit EnvironmentCopy(const char *const *environment) {
        for (; *environment; environment++) texts_.emplace_back(*environment);
        for (const std::string &text : texts_) pointers_.push_back(text.c_str());
        pointers_.push_back(nullptr);
    }
    EnvironmentCopy(const EnvironmentCopy &) = delete;
    const char *const *get() const { return pointers_.data(); }

private:
    std::vector<std::string> texts_;
    std::vector<const char *> pointers_;
};

Result<std::shared_ptr<Comm>> join_launched(const char *const *environment,
                                            const CommConfig &comm_config,
                                            const EnvSettings &env_settings, const CommTask *task) {
    EnvironmentOptions options = environment_options(comm_config, env_settings.settings);
    options.rendezvous.cancel_check = cancel_check_of(task);
    QCCL_TRY(const auto bootstrap, join_environment(environment, options));
    return create_comm(implementations(), *bootstrap, Reach::processes, comm_config, env_settings,
                       nullptr);
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
        QCCL_TRY(comms_[rank], create_comm(implementations(), *bootstrap, Reach::threads,
                                           comm_config, env_settings_, siblings_));
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
    return invalid_argument("nranks is %d; one process can have at most %d ranks of a communicator",
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

Result<std::shared_ptr<Comm>> join(const JoinOrder &order, const CommTask *task,
                                   const CancelCheck &while_meeting) {
    const CommConfig &comm_config = order.comm_config;
    const Settings &settings = order.env_settings.settings;
    const auto size = static_cast<uint32_t>(order.nranks);
    const auto rank = static_cast<uint32_t>(order.rank);
    RendezvousOptions options =
        rendezvous_options(settings, comm_config.timeout.value_or(settings.timeout));
    // If the log cannot be created, the ranks learn of that when they have met.
    if (const auto log = create_log(comm_config, settings, rank))
        options.warn = [log = *log](const char *sentence) { log->warn("%s", sentence); };
    bool has_met = false;
    const CancelCheck own = cancel_check_of(task);
    if (own || while_meeting)
        options.cancel_check = [&]() -> Done {
            if (own) QCCL_TRY(own());
            return has_met || !while_meeting ? Done() : while_meeting();
        };
    UniqueId bytes;
    std::memcpy(bytes.data(), order.id.internal, bytes.size());
    // A rank beyond the size is refused by the rendezvous, where all waiting ranks can learn of it.
    QCCL_TRY(const std::unique_ptr<Bootstrap> bootstrap,
             join_unique_id(bytes, size, rank, options));
    has_met = true;
    return create_comm(implementations(), *bootstrap, Reach::processes, comm_config,
                       order.env_settings, nullptr, order.origin);
}

// ---- End

// Called by functions that end a communicator: waits until the tasks of it are over, or asks them
// to give up first if `is_urgent`. A task cannot wait for itself.
static Done await_creation(const CommRef &comm, bool is_urgent) {
    CommTask *const creation = comm.record().creation.get();
    if (!creation) return {};
    if (creation->is_this_thread() && !creation->is_done())
        return Error::make(Code::invalid_usage, "comm: a communicator cannot be ended by the log "
                                                "function of its own creation");
    if (is_urgent) creation->cancel();
    creation->await();
    return {};
}

// Of a communicator that is made, or whose creation has failed.
static qcclResult_t async_result(CommRecord &record) {
    record.join_finished_tasks();
    const Done made = record.is_made();
    if (!made) return to_c(made.error().code);
    Comm &comm = *record.object;
    if (const auto failure = comm.failure()) {
        comm.note_told();
        return to_c(failure->error.code);
    }
    return comm.is_busy() || record.has_work() ? qcclInProgress : qcclSuccess;
}

// For a communicator whose creation has failed.
static Done end_unmade(CommRef &comm) {
    QCCL_TRY(comm.end());
    comm.await_others();
    return {};
}

// Requires that the entry guard is closed. The communicator is freed with the caller's reference.
static Done end(CommRef &comm) {
    QCCL_TRY(comm.end());
    comm.await_others();
    comm->tell_unused_rules();
    // This does not wait for the destructor: enqueued work may keep the communicator a little
    // longer.
    comm->deregister_all();
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclGetUniqueId(qcclUniqueId *id_out) {
    return guarded([=]() -> Done {
        if (!id_out) return invalid_argument("id_out is NULL");
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
        if (!comm_out) return invalid_argument("comm_out is NULL");
        if (!id) return invalid_argument("id is NULL");
        QCCL_TRY(check_rank(nranks, rank));
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        const JoinOrder order{nranks, rank, *id, comm_config, read_env_settings(), {}};
        return make_comm(comm_config, comm_out,
                         [order](CommTask *task) { return join(order, task); });
    });
}
QCCL_TWIN(qcclCommInitRankConfig);

qcclResult_t qcclCommInitRank(qcclComm_t *comm_out, int nranks, const qcclUniqueId *id, int rank) {
    return pqcclCommInitRankConfig(comm_out, nranks, id, rank, nullptr);
}
QCCL_TWIN(qcclCommInitRank);

qcclResult_t qcclCommInitAll(qcclComm_t *comms_out, int nranks, const char *const devices[]) {
    return guarded([=]() -> Done {
        if (!comms_out) return invalid_argument("comms_out is NULL");
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
        if (!comm_out) return invalid_argument("comm_out is NULL");
        if (nranks == 0)
            return invalid_argument("nranks is 0, not 1 or more (qcclCommInitMpi passes 0 if MPI "
                                    "is not running, and for a null or an inter-communicator)");
        QCCL_TRY(check_rank(nranks, rank));
        if (rank >= nranks)
            return invalid_argument("rank is %d; possible are 0 to %d", rank, nranks - 1);
        if (!oob || !oob->allgather)
            return invalid_argument("%s is NULL", oob ? "oob->allgather" : "oob");
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        if (comm_config.nonblocking)
            return invalid_argument("config: nonblocking is 1, but oob->allgather belongs to the "
                                    "calling thread, which has to wait");
        const EnvSettings env_settings = read_env_settings();
        const auto bootstrap =
            create_oob_bootstrap(static_cast<uint32_t>(nranks), static_cast<uint32_t>(rank),
                                 oob->allgather, oob->context);
        QCCL_TRY(auto comm, create_comm(implementations(), *bootstrap, Reach::processes,
                                        comm_config, env_settings, nullptr));
        return make_handle(std::move(comm), comm_out);
    });
}
QCCL_TWIN(qcclCommInitOob);

qcclResult_t qcclCommInitEnv(qcclComm_t *comm_out, const qcclConfig_t *config) {
    return guarded([=]() -> Done {
        if (!comm_out) return invalid_argument("comm_out is NULL");
        QCCL_TRY(const CommConfig comm_config, parse_config(config));
        const EnvSettings env_settings = read_env_settings();
        QCCL_TRY(env_settings.readable);
        const auto environment = std::make_shared<const EnvironmentCopy>(environ);
        return make_comm(
            comm_config, comm_out, [environment, comm_config, env_settings](CommTask *task) {
                return join_launched(environment->get(), comm_config, env_settings, task);
            });
    });
}
QCCL_TWIN(qcclCommInitEnv);

qcclResult_t qcclCommFinalize(qcclComm_t comm) {
    return inside_or_later(comm, [](Comm &entered, LaterWork &later) -> Done {
        if (!entered.parts().comm_config.nonblocking) return entered.finalize();
        later.task = std::make_shared<CommTask>();
        later.rest = [&entered](CommTask &) { return entered.finalize(); };
        return {};
    });
}
QCCL_TWIN(qcclCommFinalize);

qcclResult_t qcclCommDestroy(qcclComm_t comm) {
    if (!comm) return qcclSuccess;
    return guarded([comm]() -> Done {
        QCCL_TRY(CommRef found, take_unmade_comm(comm));
        QCCL_TRY(await_creation(found, false));
        if (!found.record().is_made()) return end_unmade(found);
        QCCL_TRY(check_outside(found));
        if (const auto work = found.record().work()) work->await();
        const auto answer = found.record().entry_guard.try_close(found.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(found.record(), answer);
        if (const size_t calls = CallGroup::calls_of(comm))
            found->parts().log->warn(
                "qcclCommDestroy: a group has %zu of the communicator's calls, "
                "which are lost; qcclGroupEnd would have made them",
                calls);
        const Done finalized = found->conclude();
        QCCL_TRY(end(found));
        return finalized;
    });
}
QCCL_TWIN(qcclCommDestroy);

qcclResult_t qcclCommAbort(qcclComm_t comm) {
    return guarded([comm]() -> Done {
        QCCL_TRY(CommRef found, take_unmade_comm(comm));
        if (found.record().is_being_made()) QCCL_TRY(await_creation(found, true));
        if (!found.record().is_made()) return end_unmade(found);
        QCCL_TRY(check_outside(found));
        found->fail(Error::make(Code::revoked, "rank %u aborted the communicator", found->rank())
                        .at_rank(found->rank()));
        // The sequencer is closed first: a thread inside may be waiting for a call that is far back
        // in its stream.
        found->close();
        const auto answer = found.record().entry_guard.close(found.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(found.record(), answer);
        return end(found);
    });
}
QCCL_TWIN(qcclCommAbort);

qcclResult_t qcclCommRevoke(qcclComm_t comm) {
    return at_any_time(comm, [](Comm &found) -> Done {
        found.fail(Error::make(Code::revoked, "rank %u revoked the communicator", found.rank())
                       .at_rank(found.rank()));
        return {};
    });
}
QCCL_TWIN(qcclCommRevoke);

qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *result_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const CommRef found, take_unmade_comm(comm));
        CommRecord &record = found.record();
        const auto answer = [&]() -> Done {
            if (!result_out) return invalid_argument("result_out is NULL");
            *result_out = record.is_being_made() ? qcclInProgress : async_result(record);
            return {};
        };
        if (!record.is_made()) return answer();
        return noted(*found, [&](Comm &) { return answer(); });
    });
}
QCCL_TWIN(qcclCommGetAsyncError);

qcclResult_t qcclCommCount(qcclComm_t comm, int *count_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!count_out) return invalid_argument("count_out is NULL");
        *count_out = static_cast<int>(found.size());
        return {};
    });
}
QCCL_TWIN(qcclCommCount);

qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!rank_out) return invalid_argument("rank_out is NULL");
        *rank_out = static_cast<int>(found.rank());
        return {};
    });
}
QCCL_TWIN(qcclCommUserRank);
