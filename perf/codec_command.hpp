// qccl-perf codec: measures the speed of codecs on one core next to memcpy, or on a GPU next to a
// copy there.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are the words after "codec"; `command_line` is the program's whole command line, for
// the JSON output. Returns the exit status.
int run_codec_command(const std::vector<std::string> &arguments,
                      const std::vector<std::string> &command_line);

} // namespace qccl::perf
