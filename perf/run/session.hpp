// One rank's session in a measurement, from the start of the ranks to the calls. Used by
// qccl-perf's benchmark, calibration and demonstration. Calls block as the C API does, and those
// that concern a RankGroup block until all ranks have called; one thread at a time.
//
// start_ranks starts the ranks as processes or threads, or joins a run that mpirun, another
// launcher or a user by hand has started, and gives each rank its communicator. MPI itself is in a
// module that is loaded here; the ranks by environment variables use the same bootstrap as
// qcclCommInitEnv. A launcher has started several ranks that would all print the same message, so
// tell_once prints it once. The QCCL objects of a rank (communicator, codecs, buffers,
// registrations) wrap the C API with destructors and Result, and add nothing to it; communicators
// are created in the way that a program with such ranks would create them. plan_of asks the library
// how it would perform a call, as far as a benchmark shows it, and does not communicate; it is in
// session_plan.cpp, which includes the JSON library.
#pragma once

#include "base/result.hpp"
#include "bootstrap/bootstraps.hpp"
#include "codec/codec.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/report/measurement.hpp"
#include "perf/run/mpi_module.hpp"
#include "perf/run/rank_group.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <qccl/qccl.h>

namespace qccl::perf {

// ---- Ranks under MPI

// Returns whether an MPI launcher has started this process.
bool is_under_mpi();

class MpiRankGroup final : public RankGroup {
public:
    // Loads the module and initializes MPI; the error says what is missing.
    static Result<std::unique_ptr<MpiRankGroup>> create();
    ~MpiRankGroup() override;

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override;
    void give_up() override; // does not return
    bool is_first_to_say(std::string_view) override { return true; }

    const MpiModule &module() const { return module_; }

private:
    MpiRankGroup(const MpiModule &module, uint32_t rank, uint32_t size)
        : module_(module), rank_(rank), size_(size) {}

    const MpiModule &module_;
    uint32_t rank_;
    uint32_t size_;
};

// ---- Ranks by environment variables

class EnvRankGroup final : public RankGroup {
public:
    static Result<std::unique_ptr<EnvRankGroup>> join();

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override { return allgather(nullptr, nullptr, 0); }
    // The other ranks learn that this rank has left.
    void give_up() override { bootstrap_.reset(); }
    bool is_first_to_say(std::string_view) override { return true; }

private:
    explicit EnvRankGroup(std::unique_ptr<Bootstrap> bootstrap)
        : rank_(bootstrap->rank()), size_(bootstrap->size()), bootstrap_(std::move(bootstrap)) {}

    uint32_t rank_;
    uint32_t size_;
    std::unique_ptr<Bootstrap> bootstrap_;
};

// ---- Objects of the C API

// Returns success, or an error with the code of `result`, the name of the call and the library's
// message.
Done explained(qcclResult_t result, const char *call, qcclComm_t comm = nullptr);

struct CommDestroy {
    void operator()(qcclComm_t comm) const { (void)qcclCommDestroy(comm); }
};
using CommHandle = std::unique_ptr<qcclComm, CommDestroy>;

struct CodecDestroy {
    void operator()(qcclCodec_t codec) const { (void)qcclCodecDestroy(codec); }
};
using CodecHandle = std::unique_ptr<qcclCodec, CodecDestroy>;

Result<CodecHandle> create_codec(const Codec &codec);

// Page-aligned host memory, or memory of the rank's GPU, shifted from its alignment by `offset`
// bytes.
class Buffer {
public:
    static Result<Buffer> create(const RankDevice &device, Buffers kind, size_t bytes,
                                 size_t offset);
    Buffer(Buffer &&other) noexcept;
    Buffer &operator=(Buffer &&) = delete;
    ~Buffer();

    std::byte *data() const { return static_cast<std::byte *>(memory_) + offset_; }
    size_t bytes() const { return bytes_ - offset_; }

private:
    Buffer(std::shared_ptr<Gpu> gpu, Buffers kind, void *memory, size_t bytes, size_t offset)
        : gpu_(std::move(gpu)), kind_(kind), memory_(memory), bytes_(bytes), offset_(offset) {}

    std::shared_ptr<Gpu> gpu_;
    Buffers kind_; // for host memory
    void *memory_;
    size_t bytes_;
    size_t offset_;
};

// A buffer's registration with a communicator. The communicator must outlive it.
class Registered {
public:
    static Result<Registered> create(qcclComm_t comm, const Buffer &buffer);
    Registered(Registered &&other) noexcept
        : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
    Registered &operator=(Registered &&) = delete;
    ~Registered() { (void)qcclCommDeregister(comm_, handle_); }

private:
    Registered(qcclComm_t comm, void *handle) : comm_(comm), handle_(handle) {}

    qcclComm_t comm_;
    void *handle_;
};

// `op` is the operation's as C knows it. `config` may be null, as in the C API.
Done call_collective(qcclComm_t comm, const Operation &operation, qcclRedOp_t op, const void *send,
                     void *recv, qcclStream_t stream, const qcclCollConfig_t *config);
// Waits for the calls that the rank has enqueued and returns their result.
Done finish_calls(const RankDevice &device, qcclComm_t comm);

// ---- Communicators

// Returns a config without compression, which overrides the environment. A call may still name a
// codec.
qcclConfig_t lossless_config();

// For ranks that are processes: rank 0 makes the unique id, and the rank group distributes it.
Result<CommHandle> create_comm(RankGroup &rank_group, const qcclConfig_t &config);
// For ranks under MPI: bootstraps with MPI's all-gather.
Result<CommHandle> create_comm(RankGroup &rank_group, const MpiModule &mpi,
                               const qcclConfig_t &config);
// For ranks that are threads: creates all communicators at once, before the threads start.
// `devices` has one entry per rank.
Result<std::vector<CommHandle>> create_comms(const std::vector<const char *> &devices);

// ---- Plan of a call

struct PlanInfo {
    std::string algorithm;
    std::string transport;
    Codec codec; // the codec that values travel with, which differs from the requested one if the
                 // planner chooses
    std::optional<double>
        nmse_predicted; // nothing for integers, and for operations other than sums
};

// `algorithm` is empty if the library chooses.
Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm);

// ---- How this process was started

Started how_started();

// Returns whether a launcher's variables give this process a rank other than 0.
bool is_another_than_rank_0();

// Prints the answer once for all ranks; returns its exit status. Under mpirun one rank prints it
// after all ranks have called. Otherwise the other ranks would repeat it, or their exit would make
// mpirun end the rank that prints. Ranks that know each other only by environment variables do not
// wait: each prints a refusal, and only rank 0 prints other answers. In all other cases the same as
// tell().
int tell_once(const Answer &answer);

// ---- Starting the ranks

// The functions of one run, on each of its processes.
struct RankWork {
    Launch launch = Launch::processes;
    uint32_t ranks = 2; // number of ranks if they are started here
    // Called when the number of ranks is known, before communicators are created; `is_first` is
    // true on the one process that writes results. If it fails on one process, the run ends on all.
    std::function<Done(uint32_t ranks, bool is_first)> prepare;
    std::function<qcclConfig_t(uint32_t rank)> config;
    // The work of a rank; returns its exit status. `mpi` is null if the ranks are not MPI's.
    std::function<Result<int>(RankGroup &rank_group, qcclComm_t comm, const MpiModule *mpi)> act;
    // Called when the run is over, with its exit status so far, on the process that writes results.
    std::function<int(int status)> finish = [](int status) { return status; };
};

// Prints the error to standard error; returns the exit status.
int complain(const Error &error);

// Runs the ranks and blocks until they are done; returns the exit status of this process.
int start_ranks(const RankWork &work);

} // namespace qccl::perf
