// Implements session.hpp, except plan_of: loads the MPI module and calls MPI through its table,
// joins the rendezvous and splits large exchanges into pieces, recognizes launchers by their
// variables, and has one function for each way in which ranks are started.
#include "perf/run/session.hpp"

#include "base/c_numbers.hpp"
#include "base/settings.hpp"
#include "bootstrap/launcher.hpp"
#include "perf/run/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Ranks under MPI

namespace {

struct Said {
    const char *variable;
    int ranks;
};

// Returns 0 ranks if no launcher variable is set.
Said said_by_launcher() {
    // Open MPI; MPICH and its derivatives
    for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char *size = std::getenv(name); size && std::atoi(size) > 0)
            return {name, std::atoi(size)};
    return {"", 0};
}

} // namespace

bool is_under_mpi() { return said_by_launcher().ranks > 0; }

// The module is next to the program in a build folder, and otherwise in its installation folder,
// whose path begins at the program's.
static void *load_module() {
    std::error_code ignored;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    const auto beside = folder / QCCL_MPI_MODULE;
    const auto installed = folder / QCCL_MODULE_DIR / QCCL_MPI_MODULE;
    // RTLD_GLOBAL, because MPI's own plug-ins need its symbols.
    static constexpr int flags = RTLD_NOW | RTLD_GLOBAL;
    if (void *const module = dlopen(beside.c_str(), flags)) return module;
    const bool was_there = std::filesystem::exists(beside, ignored);
    return was_there ? nullptr : dlopen(installed.c_str(), flags);
}

Result<std::unique_ptr<MpiRankGroup>> MpiRankGroup::create() {
    void *const library = load_module();
    if (!library)
        return Error::make(Code::invalid_usage,
                           "mpirun has started this process, but the MPI module cannot be loaded "
                           "(was QCCL built with MPI?): %.150s",
                           dlerror());
    const auto function = reinterpret_cast<MpiModuleFunction *>(dlsym(library, mpi_module_symbol));
    const MpiModule *const module = function ? function() : nullptr;
    if (!module || module->abi != MpiModule::current_abi)
        return Error::make(Code::invalid_usage,
                           "the MPI module belongs to another version: built for %u, need %u",
                           module ? module->abi : 0, MpiModule::current_abi);
    uint32_t rank = 0, size = 0;
    if (!module->start(&rank, &size)) return Error::make(Code::system_error, "MPI does not start");
    std::unique_ptr<MpiRankGroup> rank_group(new MpiRankGroup(*module, rank, size));
    // With another MPI's launcher every process would take itself for the whole job.
    const Said said = said_by_launcher();
    if (size == 1 && said.ranks > 1)
        return invalid_argument(
            "the MPI of this qccl-perf (%s) counts one rank, %s=%d: another MPI's "
            "mpirun has started it; take that one's, or leave out --baseline",
            module->library(), said.variable, said.ranks);
    return rank_group;
}

MpiRankGroup::~MpiRankGroup() { module_.finish(); }

Done MpiRankGroup::allgather(const void *mine, void *all, size_t bytes) {
    if (module_.allgather(mine, all, bytes, nullptr) != 0)
        return Error::make(Code::remote_error, "MPI's all-gather failed");
    return {};
}

Done MpiRankGroup::barrier() {
    if (module_.barrier() != 0) return Error::make(Code::remote_error, "MPI's barrier failed");
    return {};
}

void MpiRankGroup::give_up() {
    std::fflush(nullptr);
    module_.abort(EXIT_FAILURE);
}

// ---- Ranks by environment variables

// Bytes of one rank in one exchange; the rendezvous limits the size of an exchange.
static constexpr size_t most_bytes_at_once = size_t{64} << 10;

Result<std::unique_ptr<EnvRankGroup>> EnvRankGroup::join() {
    QCCL_TRY(const Settings settings, read_settings(environ));
    EnvironmentOptions options;
    options.rendezvous.timeout = settings.timeout;
    options.rendezvous.interface = settings.socket_interface.value_or("");
    options.rendezvous.warn = [](const char *sentence) {
        std::fprintf(stderr, "qccl-perf: %s\n", sentence);
    };
    if (settings.port) options.port = static_cast<uint16_t>(*settings.port);
    options.secret_file = settings.secret_file;
    QCCL_TRY(auto bootstrap, join_environment(environ, options));
    return std::unique_ptr<EnvRankGroup>(new EnvRankGroup(std::move(bootstrap)));
}

Done EnvRankGroup::allgather(const void *mine, void *all, size_t bytes) {
    if (!bootstrap_) return Error::make(Code::invalid_usage, "this rank has given up");
    if (bytes <= most_bytes_at_once) return bootstrap_->all_gather(mine, all, bytes);
    std::vector<std::byte> pieces(size_ * most_bytes_at_once);
    for (size_t done = 0; done < bytes; done += most_bytes_at_once) {
        const size_t piece = std::min(most_bytes_at_once, bytes - done);
        QCCL_TRY(bootstrap_->all_gather(static_cast<const std::byte *>(mine) + done, pieces.data(),
                                        piece));
        for (size_t peer = 0; peer < size_; peer++)
            std::memcpy(static_cast<std::byte *>(all) + peer * bytes + done,
                        pieces.data() + peer * piece, piece);
    }
    return {};
}

// ---- Objects of the C API

Done explained(qcclResult_t result, const char *call, qcclComm_t comm) {
    if (result == qcclSuccess) return {};
    const char *const sentence = qcclGetLastError(comm);
    return Error::make(static_cast<Code>(result), "%s: %s", call,
                       *sentence ? sentence : qcclGetErrorString(result));
}

Result<CodecHandle> create_codec(const Codec &codec) {
    qcclCodec_t handle = nullptr;
    QCCL_TRY(explained(qcclCodecCreate(&handle, spec(codec).c_str()), "qcclCodecCreate"));
    return CodecHandle(handle);
}

Result<Buffer> Buffer::create(const RankDevice &device, Buffers kind, size_t bytes, size_t offset) {
    const size_t whole = bytes + offset + 1; // never empty
    void *memory = nullptr;
    if (const auto &gpu = device.gpu()) {
        // Freeing other GPU memory waits for all work of the GPU, including that of other ranks.
        QCCL_TRY(memory, gpu->allocate_private(whole));
    } else if (kind == Buffers::shareable) {
        QCCL_TRY(explained(qcclMemAlloc(&memory, whole), "qcclMemAlloc"));
    } else {
        memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return Error::make(Code::system_error, "no memory for a buffer of %zu bytes", whole);
    }
    return Buffer(device.gpu(), kind, memory, whole, offset);
}

Buffer::Buffer(Buffer &&other) noexcept
    : gpu_(std::move(other.gpu_)), kind_(other.kind_),
      memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), offset_(other.offset_) {
}

Buffer::~Buffer() {
    if (!memory_) return;
    if (gpu_)
        gpu_->free_private(static_cast<std::byte *>(memory_));
    else if (kind_ == Buffers::shareable)
        (void)qcclMemFree(memory_);
    else
        munmap(memory_, bytes_);
}

Result<Registered> Registered::create(qcclComm_t comm, const Buffer &buffer) {
    void *handle = nullptr;
    QCCL_TRY(explained(qcclCommRegister(comm, buffer.data(), buffer.bytes(), &handle),
                       "qcclCommRegister", comm));
    return Registered(comm, handle);
}

// The root sends to the rank after it; other ranks do nothing.
static Done call_send(qcclComm_t comm, const Operation &operation, const void *send, void *recv,
                      qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = number_in_c(operation.type);
    const auto root = static_cast<int>(operation.root);
    const int taker = (root + 1) % static_cast<int>(operation.ranks);
    int rank = 0;
    QCCL_TRY(explained(qcclCommUserRank(comm, &rank), "qcclCommUserRank", comm));
    if (root == taker && send == recv) return {};
    if (root == taker)
        return explained(qcclSendRecvConfig(send, operation.count, root, recv, operation.count,
                                            root, type, comm, stream, config),
                         "qcclSendRecv", comm);
    if (rank == root)
        return explained(qcclSendConfig(send, operation.count, type, taker, comm, stream, config),
                         "qcclSend", comm);
    if (rank != taker) return {};
    return explained(qcclRecvConfig(recv, operation.count, type, root, comm, stream, config),
                     "qcclRecv", comm);
}

Done call_collective(qcclComm_t comm, const Operation &operation, qcclRedOp_t op, const void *send,
                     void *recv, qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = number_in_c(operation.type);
    const int root = static_cast<int>(operation.root);
    switch (operation.collective) {
    case Collective::all_reduce:
        return explained(
            qcclAllReduceConfig(send, recv, operation.count, type, op, comm, stream, config),
            "qcclAllReduce", comm);
    case Collective::reduce_scatter:
        return explained(
            qcclReduceScatterConfig(send, recv, operation.count, type, op, comm, stream, config),
            "qcclReduceScatter", comm);
    case Collective::all_gather:
        return explained(
            qcclAllGatherConfig(send, recv, operation.count, type, comm, stream, config),
            "qcclAllGather", comm);
    case Collective::broadcast:
        return explained(
            qcclBroadcastConfig(send, recv, operation.count, type, root, comm, stream, config),
            "qcclBroadcast", comm);
    case Collective::reduce:
        return explained(
            qcclReduceConfig(send, recv, operation.count, type, op, root, comm, stream, config),
            "qcclReduce", comm);
    case Collective::gather:
        return explained(
            qcclGatherConfig(send, recv, operation.count, type, root, comm, stream, config),
            "qcclGather", comm);
    case Collective::scatter:
        return explained(
            qcclScatterConfig(send, recv, operation.count, type, root, comm, stream, config),
            "qcclScatter", comm);
    case Collective::all_to_all:
        return explained(
            qcclAllToAllConfig(send, recv, operation.count, type, comm, stream, config),
            "qcclAllToAll", comm);
    case Collective::scan:
        return explained(
            qcclScanConfig(send, recv, operation.count, type, op, comm, stream, config), "qcclScan",
            comm);
    case Collective::exscan:
        return explained(
            qcclExscanConfig(send, recv, operation.count, type, op, comm, stream, config),
            "qcclExscan", comm);
    case Collective::send: return call_send(comm, operation, send, recv, stream, config);
    case Collective::barrier:
        return explained(qcclBarrierConfig(comm, stream, config), "qcclBarrier", comm);
    }
    return Error::make(Code::internal_error, "no such collective");
}

Done finish_calls(const RankDevice &device, qcclComm_t comm) {
    if (!device.enqueues()) return {};
    QCCL_TRY(device.wait());
    qcclResult_t result = qcclSuccess;
    QCCL_TRY(explained(qcclCommGetAsyncError(comm, &result), "qcclCommGetAsyncError", comm));
    return explained(result == qcclInProgress ? qcclSuccess : result, "a call in a stream", comm);
}

// ---- Communicators

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

// ---- How this process was started

Started how_started() {
    Started started{.by_mpi = is_under_mpi(), .by_environment = {}};
    const auto found = find_launcher(environ);
    // Invalid numbers are refused when the ranks join.
    if (!found) started.by_environment = "a launcher's variables";
    if (!found || !*found || (*found)->size < 2) return started;
    // Open MPI's processes communicate through MPI, on one host or on several.
    if ((*found)->launcher != open_mpi)
        started.by_environment.append((*found)->rank_variable)
            .append(" and ")
            .append((*found)->size_variable);
    return started;
}

bool is_another_than_rank_0() {
    const auto found = find_launcher(environ);
    return found && *found && (*found)->rank != 0;
}

static int tell_once_under_mpi(const Answer &answer) {
    const auto rank_group = MpiRankGroup::create();
    if (!rank_group) return tell(answer);
    // If the ranks have different command lines, those with a valid one call settle() too.
    const Done settled = settle(**rank_group, invalid_argument("%s", ""));
    return !settled && is_given_up(settled.error()) ? answer.status : tell(answer);
}

int tell_once(const Answer &answer) {
    const Launch launch = how_started().launch(false);
    if (launch == Launch::mpi) return tell_once_under_mpi(answer);
    const bool is_repeated = launch == Launch::environment && is_another_than_rank_0();
    return is_repeated && answer.status == EXIT_SUCCESS ? EXIT_SUCCESS : tell(answer);
}

// ---- Starting the ranks

static int status_of(const Error &error) {
    return error.code == Code::invalid_argument ? usage_error : EXIT_FAILURE;
}

int complain(const Error &error) {
    std::fprintf(stderr, "qccl-perf: %s\n", error.text);
    return status_of(error);
}

static int status_of(const Result<int> &played, RankGroup &rank_group) {
    return played ? *played : complain(rank_group, played.error());
}

static int run_processes(const RankWork &work) {
    return launch_processes(work.ranks, [&work](RankGroup &rank_group) {
        const auto act = [&]() -> Result<int> {
            QCCL_TRY(const CommHandle comm,
                     create_comm(rank_group, work.config(rank_group.rank())));
            return work.act(rank_group, comm.get(), nullptr);
        };
        return status_of(act(), rank_group);
    });
}

static int run_threads(const RankWork &work) {
    std::vector<const char *> devices;
    for (uint32_t rank = 0; rank < work.ranks; rank++) {
        const char *const device = work.config(rank).device;
        devices.push_back(device ? device : "host");
    }
    const auto comms = create_comms(devices);
    if (!comms) return complain(comms.error());
    return launch_threads(work.ranks, [&](RankGroup &rank_group) {
        return status_of(work.act(rank_group, (*comms)[rank_group.rank()].get(), nullptr),
                         rank_group);
    });
}

// Runs this process as one rank of a group that a launcher or a user has started.
static int run_among(RankGroup &rank_group, const RankWork &work,
                     const std::function<Result<int>()> &act) {
    const bool is_first = rank_group.rank() == 0;
    if (const Done settled = settle(rank_group, work.prepare(rank_group.size(), is_first));
        !settled)
        return is_given_up(settled.error()) ? status_of(settled.error())
                                            : complain(settled.error());
    const Result<int> played = act();
    int status = status_of(played, rank_group);
    if (is_first) status = work.finish(status);
    if (!played) rank_group.give_up(); // the other processes may be waiting
    return status;
}

static int run_under_mpi(const RankWork &work) {
    const auto rank_group = MpiRankGroup::create();
    // An invalid argument fails on all ranks alike, so only rank 0 reports it; any other failure
    // may concern a single rank.
    if (!rank_group && rank_group.error().code == Code::invalid_argument &&
        is_another_than_rank_0())
        return status_of(rank_group.error());
    if (!rank_group) return complain(rank_group.error());
    return run_among(**rank_group, work, [&]() -> Result<int> {
        const MpiModule &mpi = (*rank_group)->module();
        QCCL_TRY(const CommHandle comm,
                 create_comm(**rank_group, mpi, work.config((*rank_group)->rank())));
        return work.act(**rank_group, comm.get(), &mpi);
    });
}

static int run_in_environment(const RankWork &work) {
    const auto rank_group = EnvRankGroup::join();
    if (!rank_group) return complain(rank_group.error());
    return run_among(**rank_group, work, [&]() -> Result<int> {
        QCCL_TRY(const CommHandle comm,
                 create_comm(**rank_group, work.config((*rank_group)->rank())));
        return work.act(**rank_group, comm.get(), nullptr);
    });
}

int start_ranks(const RankWork &work) {
    if (work.launch == Launch::mpi) return run_under_mpi(work);
    if (work.launch == Launch::environment) return run_in_environment(work);
    if (const Done prepared = work.prepare(work.ranks, true); !prepared)
        return complain(prepared.error());
    return work.finish(work.launch == Launch::threads ? run_threads(work) : run_processes(work));
}

} // namespace qccl::perf
