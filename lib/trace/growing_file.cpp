// Creates the file under a free name and writes each piece together with the ending.
#include "trace/growing_file.hpp"

#include "base/file_pattern.hpp"
#include "base/system_error.hpp"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace qccl {

static constexpr int most_names = 10000;

Result<GrowingFile> GrowingFile::create(const std::string &path, std::string ending) {
    GrowingFile made;
    made.ending_ = std::move(ending);
    for (int number = 1; !made.file_.is_open(); number++) {
        made.path_ =
            number == 1 ? path : with_suffix(path, std::string(".").append(std::to_string(number)));
        made.file_ = FileDescriptor(
            open(made.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644));
        if (!made.file_.is_open() && (errno != EEXIST || number == most_names))
            return Error::make(Code::system_error, "cannot create \"%.300s\": %s",
                               made.path_.c_str(), describe_errno(errno).c_str());
    }
    QCCL_TRY(made.append({}));
    return made;
}

Done GrowingFile::append(std::string_view text) {
    piece_.assign(text);
    piece_ += ending_;
    if (const Done written = write_at(bytes_, piece_); !written) {
        // The old ending's place on the disk still belongs to the file.
        if (ftruncate(file_.number(), static_cast<off_t>(bytes_)) == 0)
            (void)write_at(bytes_, ending_);
        return written;
    }
    bytes_ += text.size();
    return {};
}

Done GrowingFile::write_at(uint64_t offset, std::string_view text) const {
    while (!text.empty()) {
        const ssize_t written =
            pwrite(file_.number(), text.data(), text.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return Error::make(Code::system_error, "cannot write \"%.300s\": %s", path_.c_str(),
                               describe_errno(written < 0 ? errno : ENOSPC).c_str());
        text.remove_prefix(static_cast<size_t>(written));
        offset += static_cast<uint64_t>(written);
    }
    return {};
}

} // namespace qccl
