// The version text that the tools print. Any thread.
#pragma once

#include <qccl/version.h>

#include <string>

namespace qccl::perf {

inline std::string version_text() {
    return std::to_string(QCCL_VERSION_MAJOR) + "." + std::to_string(QCCL_VERSION_MINOR) + "." +
           std::to_string(QCCL_VERSION_PATCH);
}
inline std::string version_line(const std::string &program) {
    return program + " " + version_text();
}

} // namespace qccl::perf
