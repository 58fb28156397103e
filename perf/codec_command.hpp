// qccl-perf codec: the speed of codecs on one core beside memcpy.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are those behind "codec".
int run_codec_command(const std::vector<std::string> &arguments,
                      const std::vector<std::string> &command_line);

} // namespace qccl::perf
