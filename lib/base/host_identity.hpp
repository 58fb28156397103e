// A text that identifies a host: ranks with equal texts can share memory. Used when a communicator
// is created.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"

#include <string>

namespace qccl {

// Returns QCCL_HOSTID if it is set, else the host's name, the network name space and the boot id:
// where any of them differs, ranks may be containers that cannot see each other's memory. Returns
// boot_id's errors.
Result<std::string> host_identity(const Settings &settings);

} // namespace qccl
