// Runs programs on ranks that are threads over an inproc transport. Each rank has other kernels and
// options, because results must not depend on them. Used by tests of the engine; `on_each` and
// `run_all` block.
#pragma once

#include "tests/kernels/golden_cases.hpp"
#include "rank_threads.hpp"
#include "slow_twin.hpp"
#include "tests/transport/transport_ranks.hpp"

#include "base/shared_memory.hpp"
#include "coll/algorithm.hpp"
#include "device/device.hpp"
#include "engine/run/engine.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace qtest {

using namespace qccl;

// Memory for the buffers of a rank's calls; exposes it to the peers.
class Arena {
public:
    static constexpr size_t bytes = size_t{16} << 20;

    explicit Arena(Transport &transport);
    std::span<std::byte> half(size_t number) const {
        return {mapping_.base() + number * bytes / 2, bytes / 2};
    }

private:
    FileDescriptor file_;
    Mapping mapping_;
};

// One rank's transport and engine; kernels and options differ from rank to rank.
struct EngineRank {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Arena> arena; // if set, calls have their buffers in it

    void open_local_resources(uint32_t rank);
    // Runs one call with guarded buffers and returns the contents of its receive buffer.
    Result<Bytes> run(const TwinCall &call, uint32_t rank, const Program &program,
                      const Bytes &input, bool in_place, std::chrono::nanoseconds timeout,
                      const CallFeedback *feedback = nullptr);
};

// Returns the inputs of all ranks.
std::vector<Bytes> make_inputs(const TwinCall &call, golden::Kind kind);

// Returns the location of each rank, given its host.
std::vector<RankLocation> spots_on(const std::vector<uint32_t> &hosts);

// Returns Cluster::test_options() for these hosts, one for each rank. Several hosts have a network
// in memory.
TransportOptions on_hosts(const std::vector<uint32_t> &hosts);

Result<Program> compile_for(const TwinCall &call, uint32_t rank, const Chunking &cut,
                            Feedback feedback = Feedback::none);

using Shows = std::function<bool(uint32_t rank)>;
using Wrap = std::function<std::unique_ptr<Transport>(uint32_t rank, std::unique_ptr<Transport>)>;

class Cluster {
public:
    explicit Cluster(uint32_t size, TransportOptions options = test_options(),
                     const Wrap &wrap = {}, const Shows &shows = {});
    ~Cluster();

    static TransportOptions test_options();

    std::chrono::nanoseconds timeout = std::chrono::seconds(20); // of every call

    uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
    EngineRank &rank(uint32_t r) { return ranks_[r]; }

    // Runs body(rank) on a thread for each rank, waits for all, and throws the first rank's
    // failure.
    void on_each(const std::function<void(uint32_t rank)> &body);

    // Runs one call on this rank.
    Result<Bytes> run(uint32_t rank, const TwinCall &call, const Program &program,
                      const Bytes &input, bool in_place, const CallFeedback *feedback = nullptr);

    // Runs the call on every rank, once with each cut and without a barrier in between; all must
    // succeed. Returns the outputs by cut and rank, and sets call.number to the number of the first
    // call.
    std::vector<std::vector<Bytes>> run_all(TwinCall &call, const std::vector<Chunking> &cuts,
                                            const std::vector<Bytes> &inputs, bool in_place);

private:
    Meeting meeting_;
    RankThreads threads_;
    std::vector<EngineRank> ranks_;
    uint64_t next_call_ = 1;
};

} // namespace qtest
