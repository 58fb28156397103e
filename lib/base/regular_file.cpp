// Reads a regular file with a limit on its size.
#include "base/regular_file.hpp"

#include "base/file_descriptor.hpp"
#include "base/system_error.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

namespace qccl {

Result<std::string> read_regular_file(const std::string &path, size_t most_bytes) {
    // O_NONBLOCK: if the path is a pipe, open() must not wait for a writer.
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (!file.is_open() || fstat(file.number(), &about) != 0)
        return Error::make(Code::invalid_argument, "it cannot be read: %s",
                           describe_errno(errno).c_str());
    if (S_ISDIR(about.st_mode))
        return Error::make(Code::invalid_argument, "it is a directory, not a file");
    if (!S_ISREG(about.st_mode))
        return Error::make(Code::invalid_argument, "it is no regular file");
    if (static_cast<uint64_t>(about.st_size) > most_bytes)
        return Error::make(Code::invalid_argument, "it has %lld bytes, more than the %zu possible",
                           static_cast<long long>(about.st_size), most_bytes);
    std::string text(static_cast<size_t>(about.st_size), '\0');
    size_t got = 0;
    while (got < text.size()) {
        const ssize_t bytes = read(file.number(), text.data() + got, text.size() - got);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0)
            return Error::make(Code::system_error, "it cannot be read: %s",
                               describe_errno(errno).c_str());
        if (bytes == 0) break; // the file became shorter meanwhile
        got += static_cast<size_t>(bytes);
    }
    text.resize(got);
    return text;
}

} // namespace qccl
