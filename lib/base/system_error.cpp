// Words errors of system calls.
#include "base/system_error.hpp"

#include <cstring>

#include <sys/resource.h>

namespace qccl {

std::string describe_errno(int number) {
    std::string said = std::strerror(number);
    rlimit limit{};
    if (number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        said += " (the limit of open files, ulimit -n, is " + std::to_string(limit.rlim_cur) + ")";
    return said;
}

Error cannot(const char *what) {
    return Error::make(Code::system_error, "cannot %s: %s", what, describe_errno(errno).c_str());
}

} // namespace qccl
