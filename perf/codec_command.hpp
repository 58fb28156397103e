// qccl-perf codec: the speed of codecs on one core beside memcpy.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

int run_codec_command(const std::vector<std::string> &arguments);

} // namespace qccl::perf
