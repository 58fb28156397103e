// Recognizes launchers by their variables, and prints a message from one rank only.
#include "perf/started.hpp"

#include "bootstrap/launcher.hpp"
#include "perf/mpi_rank_group.hpp"

#include <cstdlib>

#include <unistd.h>

namespace qccl::perf {

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
    const Done settled = settle(**rank_group, Error::make(Code::invalid_argument, "%s", ""));
    return !settled && is_given_up(settled.error()) ? answer.status : tell(answer);
}

int tell_once(const Answer &answer) {
    const Launch launch = how_started().launch(false);
    if (launch == Launch::mpi) return tell_once_under_mpi(answer);
    const bool is_repeated = launch == Launch::environment && is_another_than_rank_0();
    return is_repeated && answer.status == EXIT_SUCCESS ? EXIT_SUCCESS : tell(answer);
}

} // namespace qccl::perf
