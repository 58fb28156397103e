// Expands patterns of file names.
#include "base/file_pattern.hpp"

#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace qccl {

std::string host_name() {
    char host[256] = {};
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0) return "localhost";
    return host;
}

Result<std::string> expand_file_pattern(const char *what, const std::string &pattern,
                                        const std::string &host, std::optional<uint32_t> rank) {
    std::string path;
    for (size_t i = 0; i < pattern.size(); i++) {
        if (pattern[i] != '%') {
            path += pattern[i];
            continue;
        }
        const char letter = ++i < pattern.size() ? pattern[i] : '\0';
        if (letter == 'h')
            path += host;
        else if (letter == 'p')
            path += std::to_string(getpid());
        else if (letter == 'r' && rank)
            path += std::to_string(*rank);
        else if (letter == '%')
            path += '%';
        else
            return Error::make(Code::invalid_argument,
                               "%s \"%s\": %%h is the host, %%p the process%s and %%%% a percent; "
                               "nothing else may follow %%",
                               what, pattern.c_str(), rank ? ", %r the rank" : "");
    }
    return path;
}

static bool names_rank(const std::string &pattern) {
    for (size_t i = 0; i + 1 < pattern.size(); i++) {
        if (pattern[i] != '%') continue;
        if (pattern[++i] == 'r') return true;
    }
    return false;
}

Result<std::string> rank_file_path(const char *what, const std::string &pattern, uint32_t rank,
                                   uint32_t ranks) {
    QCCL_TRY(const std::string path, expand_file_pattern(what, pattern, host_name(), rank));
    std::error_code error;
    if (path.ends_with('/') || std::filesystem::is_directory(path, error))
        return Error::make(
            Code::invalid_argument,
            "%s \"%s\" is a folder; expected the name of a file such as %s%srank-%%r", what,
            pattern.c_str(), path.c_str(), path.ends_with('/') ? "" : "/");
    const bool is_shared = ranks > 1 && !names_rank(pattern);
    if (!is_shared) return path;
    return expand_file_pattern(what, with_suffix(pattern, "-%r"), host_name(), rank);
}

std::string with_suffix(const std::string &path, const std::string &text) {
    const size_t name = path.find_last_of('/') + 1; // 0 where there is no folder
    const size_t dot = path.find_last_of('.');
    const bool has_extension = dot != std::string::npos && dot > name;
    const size_t at = has_extension ? dot : path.size();
    return path.substr(0, at) + text + path.substr(at);
}

} // namespace qccl
