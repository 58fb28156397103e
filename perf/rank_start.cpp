// Implements rank_start.hpp, with one function for each way in which ranks are started.
#include "perf/rank_start.hpp"

#include "perf/group_comm.hpp"
#include "perf/env_rank_group.hpp"
#include "perf/launch.hpp"
#include "perf/mpi_rank_group.hpp"
#include "perf/started.hpp"

#include <cstdio>
#include <cstdlib>

namespace qccl::perf {

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
