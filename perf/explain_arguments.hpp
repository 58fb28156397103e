// The command line of qccl-info explain: which calls, on which machine, and where the answers go.
#pragma once

#include "perf/machine_options.hpp"
#include "perf/perf_arguments.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

struct ExplainQuestion {
    PerfArguments calls;       // collective, sizes, operation, type, root; one of each but sizes
    std::vector<Codec> codecs; // empty: as the settings say
    Algorithm algorithm;       // none: the planner's choice
    MachineQuestion asked;
    Machine machine; // what is known of `asked`, by complete_question
    std::string json_file;
    std::vector<std::string> command_line;
};

// The options write into `question`, which outlives the command line's reading.
CLI::App &add_explain_command(CLI::App &app, ExplainQuestion &question);

// When the command line has been read: finds the machine. Refuses with a sentence what does not go
// together.
Done complete_question(ExplainQuestion &question);

} // namespace qccl::perf
