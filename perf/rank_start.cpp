#include "perf/rank_start.hpp"

#include "perf/crew_comm.hpp"
#include "perf/environment_crew.hpp"
#include "perf/launch.hpp"
#include "perf/mpi_crew.hpp"
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

static int status_of(const Result<int> &played, Crew &crew) {
    return played ? *played : complain(crew, played.error());
}

static int run_processes(const RankWork &work) {
    return launch_processes(work.ranks, [&work](Crew &crew) {
        const auto act = [&]() -> Result<int> {
            QCCL_TRY(const CommHandle comm, create_comm(crew, work.config(crew.rank())));
            return work.act(crew, comm.get(), nullptr);
        };
        return status_of(act(), crew);
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
    return launch_threads(work.ranks, [&](Crew &crew) {
        return status_of(work.act(crew, (*comms)[crew.rank()].get(), nullptr), crew);
    });
}

// This process is one of the crew, which somebody has started.
static int run_among(Crew &crew, const RankWork &work, const std::function<Result<int>()> &act) {
    const bool is_first = crew.rank() == 0;
    if (const Done settled = settle(crew, work.prepare(crew.size(), is_first)); !settled)
        return is_given_up(settled.error()) ? status_of(settled.error())
                                            : complain(settled.error());
    const Result<int> played = act();
    int status = status_of(played, crew);
    if (is_first) status = work.finish(status);
    if (!played) crew.give_up(); // the other processes may be waiting
    return status;
}

static int run_under_mpi(const RankWork &work) {
    const auto crew = MpiCrew::create();
    // What was asked for cannot be, on all ranks alike; what else fails may fail on one.
    if (!crew && crew.error().code == Code::invalid_argument && is_another_than_rank_0())
        return status_of(crew.error());
    if (!crew) return complain(crew.error());
    return run_among(**crew, work, [&]() -> Result<int> {
        const MpiModule &mpi = (*crew)->module();
        QCCL_TRY(const CommHandle comm, create_comm(**crew, mpi, work.config((*crew)->rank())));
        return work.act(**crew, comm.get(), &mpi);
    });
}

static int run_in_environment(const RankWork &work) {
    const auto crew = EnvironmentCrew::join();
    if (!crew) return complain(crew.error());
    return run_among(**crew, work, [&]() -> Result<int> {
        QCCL_TRY(const CommHandle comm, create_comm(**crew, work.config((*crew)->rank())));
        return work.act(**crew, comm.get(), nullptr);
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
