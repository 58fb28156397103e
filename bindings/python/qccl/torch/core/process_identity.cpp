// Reads /proc/PID/stat: a process that has ended but whose parent has not collected it is a zombie.
#include "core/process_identity.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl_torch {

namespace {

struct ProcessState {
    char state = 'X';
    uint64_t start_time = 0;
};

// The second field of the line is the program's name in parentheses, which may hold anything.
ProcessState state_of(uint64_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    ProcessState found;
    if (!std::getline(file, line)) return found;
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return found;
    std::istringstream fields(line.substr(name_end + 1));
    fields >> found.state;
    constexpr int fields_before_start_time = 18;
    std::string skipped;
    for (int field = 0; field < fields_before_start_time; field++) fields >> skipped;
    fields >> found.start_time;
    return found;
}

std::array<char, 40> this_host() {
    std::array<char, 40> host{};
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    std::getline(file, boot);
    struct stat process_namespace {};
    stat("/proc/self/ns/pid", &process_namespace);
    // 23 of the id's 36 characters leave room for the namespace, and are random enough.
    std::snprintf(host.data(), host.size(), "%.23s-%llx", boot.c_str(),
                  static_cast<unsigned long long>(process_namespace.st_ino));
    return host;
}

} // namespace

ProcessIdentity ProcessIdentity::of_this_process() {
    const auto process = static_cast<uint64_t>(getpid());
    return {.host = this_host(), .process = process, .start_time = state_of(process).start_time};
}

bool ProcessIdentity::has_ended() const {
    static const std::array<char, 40> here = this_host();
    if (host != here) return false;
    const ProcessState now = state_of(process);
    return now.state == 'X' || now.state == 'Z' || now.start_time != start_time;
}

} // namespace qccl_torch
