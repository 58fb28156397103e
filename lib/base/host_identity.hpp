// What tells hosts apart: ranks with equal texts can share memory.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"

#include <string>

namespace qccl {

// As somebody has said, or else the boot, the host's name and the network name space: where any of
// them differs, ranks may well be containers that see no memory of each other.
Result<std::string> host_identity(const Settings &settings);

} // namespace qccl
