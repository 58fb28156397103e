// Implements read_text of tool_files.hpp: reads a file or standard input in pieces, up to a limit.

#include "base/system.hpp"
#include "perf/report/tool_files.hpp"

#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace qccl::perf {

static Error cannot_read(const std::string &called, int reason) {
    return Error::make(Code::system_error, "cannot read %.300s: %s", called.c_str(),
                       describe_errno(reason).c_str());
}

Result<std::string> read_text(const std::string &path, const std::string &called, uint64_t most) {
    const FileDescriptor file(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                          : open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) return cannot_read(called, errno);
    std::string text;
    std::vector<char> piece(65536);
    for (;;) {
        const ssize_t bytes = read(file.number(), piece.data(), piece.size());
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return cannot_read(called, errno);
        if (bytes == 0) return text;
        text.append(piece.data(), static_cast<size_t>(bytes));
        if (text.size() > most)
            return Error::make(Code::invalid_argument,
                               "%.300s holds more than the %s that are read", called.c_str(),
                               memory_text(static_cast<double>(most)).c_str());
    }
}

} // namespace qccl::perf
