// Reads the host's name, the network name space and the boot id from the system.
#include "base/host_identity.hpp"

#include "base/process.hpp"

#include <array>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

Result<std::string> host_identity(const Settings &settings) {
    if (settings.host_id) return *settings.host_id;
    QCCL_TRY(const std::string boot, boot_id());
    std::array<char, 65> name{};
    gethostname(name.data(), name.size() - 1);
    struct stat network {};
    stat("/proc/self/ns/net", &network);
    return std::string(name.data()) + " " + std::to_string(network.st_ino) + " " + boot;
}

} // namespace qccl
