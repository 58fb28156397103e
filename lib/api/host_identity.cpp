#include "api/host_identity.hpp"

#include "base/file_descriptor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

static Result<std::string> boot_id() {
    static constexpr const char *path = "/proc/sys/kernel/random/boot_id";
    const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
    // Where it is not to be had, that is so for all ranks of the host: but not where this process
    // has only run short of something.
    if (!file.is_open() && errno != ENOENT && errno != EACCES)
        return Error::make(Code::system_error, "cannot open %s: %s", path, std::strerror(errno));
    std::array<char, 36> boot{}; // a UUID
    const ssize_t got = file.is_open() ? read(file.number(), boot.data(), boot.size()) : 0;
    return std::string(boot.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
}

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
