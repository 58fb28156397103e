// The command line of qccl-info explain: which calls, on which machine, and where the answers go.
// Used by qccl-info.
#pragma once

#include "perf/machine_options.hpp"
#include "perf/perf_arguments.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

struct ExplainQuestion {
    PerfArguments calls; // collective, sizes, operation, type, root; one value each, except sizes
    std::vector<Codec> codecs; // empty: as the settings say
    Algorithm algorithm;       // none: the planner chooses
    MachineQuestion asked;
    Machine machine; // the machine that `asked` describes; set by complete_question
    std::string json_file;
    std::vector<std::string> command_line;
};

// Adds the subcommand. Its options write into `question`, which must outlive the parsing of the
// command line.
CLI::App &add_explain_command(CLI::App &app, ExplainQuestion &question);

// Call after the command line has been parsed: finds the machine and checks the options. The error
// names the options that do not fit together.
Done complete_question(ExplainQuestion &question);

} // namespace qccl::perf
