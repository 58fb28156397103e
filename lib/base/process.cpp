#include "base/process.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

namespace qccl {

static std::string first_bytes(const char *path) {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path, "re"), std::fclose);
    char bytes[1024];
    return file ? std::string(bytes, std::fread(bytes, 1, sizeof bytes, file.get()))
                : std::string();
}

std::optional<ProcessStatus> process_status(int64_t pid) {
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const std::string line = first_bytes(path);
    // Its second word is a name, which may contain anything.
    const size_t end_of_name = line.rfind(')');
    if (end_of_name == std::string::npos) return std::nullopt;
    ProcessStatus status;
    const int found = std::sscanf(line.c_str() + end_of_name + 1,
                                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                  "%*s %*s %*s %" SCNu64,
                                  &status.state, &status.start);
    return found == 2 ? std::optional(status) : std::nullopt;
}

std::string boot_id() {
    std::string id = first_bytes("/proc/sys/kernel/random/boot_id");
    return id.substr(0, id.find('\n'));
}

} // namespace qccl
