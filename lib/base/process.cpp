// Reads /proc/PID/stat and the kernel's boot id.
#include "base/process.hpp"

#include "base/file_descriptor.hpp"
#include "base/system_error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <memory>

#include <fcntl.h>

namespace qccl {

std::optional<ProcessStatus> process_status(int64_t pid) {
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path, "re"), std::fclose);
    char bytes[1024];
    const std::string line(bytes, file ? std::fread(bytes, 1, sizeof bytes, file.get()) : 0);
    // The second word is the program's name, which may contain any character.
    const size_t end_of_name = line.rfind(')');
    if (end_of_name == std::string::npos) return std::nullopt;
    ProcessStatus status;
    const int found = std::sscanf(line.c_str() + end_of_name + 1,
                                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                  "%*s %*s %*s %" SCNu64,
                                  &status.state, &status.start);
    return found == 2 ? std::optional(status) : std::nullopt;
}

Result<std::string> boot_id() {
    static constexpr const char *path = "/proc/sys/kernel/random/boot_id";
    const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
    if (!file.is_open() && errno != ENOENT && errno != EACCES)
        return Error::make(Code::system_error, "cannot open %s: %s", path,
                           describe_errno(errno).c_str());
    std::array<char, 36> boot{}; // a UUID
    const ssize_t got = file.is_open() ? read(file.number(), boot.data(), boot.size()) : 0;
    return std::string(boot.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
}

} // namespace qccl
