// Creates the files of the flight recorder, with and without a name, and removes them.
#include "transport/record_file.hpp"

#include "base/system_error.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace qccl {

Result<std::shared_ptr<RecordFile>> RecordFile::create(const std::string &folder, uint64_t session,
                                                       uint32_t rank, size_t bytes) {
    auto made = std::make_shared<RecordFile>();
    made->pid_ = getpid();
    if (folder.empty()) {
        QCCL_TRY(made->make_memory(bytes));
        return made;
    }
    char name[64];
    std::snprintf(name, sizeof name, "/%s%016" PRIx64 "-rank%" PRIu32 "%s", record_name_beginning,
                  session, rank, record_name_end);
    // The path is absolute, because the program may have changed its working directory by the time
    // the file is removed.
    std::error_code nowhere;
    const std::filesystem::path here = std::filesystem::absolute(folder, nowhere);
    QCCL_TRY(made->make_named((nowhere ? folder : here.string()) + name, bytes));
    return made;
}

Done RecordFile::make_memory(size_t bytes) {
    QCCL_TRY(FileDescriptor file, create_shared_memory(bytes, record_memory_name));
    QCCL_TRY(const SharedFile described, describe(file.number()));
    QCCL_TRY(memory_, Mapping::shared(file.number(), bytes));
    file_ = described;
    file.release();
    return {};
}

Done RecordFile::make_named(const std::string &path, size_t bytes) {
    constexpr mode_t owner_alone = 0600;
    const auto in_vain = [&](const char *why) {
        return Error::make(Code::system_error, "QCCL_RECORD: %.200s: %.200s", path.c_str(), why);
    };
    const FileDescriptor file(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, owner_alone));
    if (!file.is_open()) return in_vain(std::strerror(errno));
    path_ = path;
    if (ftruncate(file.number(), static_cast<off_t>(bytes)) != 0)
        return in_vain(std::strerror(errno));
    if (const Done done = allocate_file(file.number(), bytes); !done)
        return in_vain(done.error().text);
    QCCL_TRY(memory_, Mapping::shared(file.number(), bytes));
    return {};
}

RecordFile::~RecordFile() {
    // The program may have closed this descriptor and opened another file under its number.
    const FileDescriptor file(file_.number >= 0 && is_open(file_) ? file_.number : -1);
    if (!path_.empty() && !is_kept_ && pid_ == getpid()) unlink(path_.c_str());
}

} // namespace qccl
