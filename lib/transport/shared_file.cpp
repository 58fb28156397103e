// Recognises files by what fstat reports.
#include "transport/shared_file.hpp"

#include "base/system_error.hpp"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>

namespace qccl {

Result<SharedFile> describe(int file) {
    struct stat status {};
    if (fstat(file, &status) != 0)
        return Error::make(Code::system_error, "file %d: %s", file, describe_errno(errno).c_str());
    return SharedFile{.device = status.st_dev,
                      .inode = status.st_ino,
                      .bytes = static_cast<uint64_t>(status.st_size),
                      .number = file};
}

bool is_open(const SharedFile &file) {
    const auto found = describe(file.number);
    return found && *found == file;
}

} // namespace qccl
