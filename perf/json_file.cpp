// Implements json_file.hpp: writes each row and the tail at the end of the last row, in the file or
// in a memfd.
#include "perf/json_file.hpp"

#include "base/system_error.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace qccl::perf {

static Error cannot_write(const std::string &path) {
    return Error::make(Code::system_error, "cannot write %s: %s", path.c_str(),
                       describe_errno(errno).c_str());
}

Result<JsonFile> JsonFile::around(const std::string &path, FileDescriptor target) {
    struct stat status {};
    if (!target.is_open() || fstat(target.number(), &status) != 0) return cannot_write(path);
    if (S_ISREG(status.st_mode) && path != "-") return JsonFile(path, std::move(target), {});
    FileDescriptor held(memfd_create("qccl-perf-json", MFD_CLOEXEC));
    if (!held.is_open()) return cannot_write(path);
    return JsonFile(path, std::move(target), std::move(held));
}

static constexpr int writing = O_WRONLY | O_CREAT | O_CLOEXEC;
static constexpr mode_t for_everybody = 0666; // before the umask

Result<JsonFile> JsonFile::open(const std::string &path) {
    const int number = path == "-" ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                   : ::open(path.c_str(), writing, for_everybody);
    return around(path, FileDescriptor(number));
}

Result<JsonFile> JsonFile::create(const std::string &path) {
    struct stat there {};
    if (stat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) {
        errno = EISDIR; // a folder must not get a file with a number after the folder's name
        return cannot_write(path);
    }
    std::string tried = path;
    FileDescriptor file(::open(tried.c_str(), writing | O_EXCL, for_everybody));
    for (int next = 0; !file.is_open() && errno == EEXIST; next++) {
        tried = path + "." + std::to_string(next);
        file = FileDescriptor(::open(tried.c_str(), writing | O_EXCL, for_everybody));
    }
    return around(tried, std::move(file));
}

Done JsonFile::put(std::string_view text) {
    const int file = held_.is_open() ? held_.number() : target_.number();
    uint64_t at = rows_end_;
    while (!text.empty()) {
        const ssize_t written = pwrite(file, text.data(), text.size(), static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return cannot_write(path_);
        text.remove_prefix(static_cast<size_t>(written));
        at += static_cast<uint64_t>(written);
    }
    return ftruncate(file, static_cast<off_t>(at)) == 0 ? Done{} : cannot_write(path_);
}

Done JsonFile::begin(std::string_view head, std::string_view tail) {
    QCCL_TRY(put(std::string(head).append(tail)));
    rows_end_ = head.size();
    return {};
}

Done JsonFile::add(std::string_view row, std::string_view tail) {
    const std::string text = std::string(has_rows_ ? ",\n" : "\n").append(row);
    QCCL_TRY(put(std::string(text).append(tail)));
    rows_end_ += text.size();
    has_rows_ = true;
    return {};
}

Done JsonFile::finish(std::string_view tail) { return put(tail); }

Done JsonFile::deliver() const {
    if (!held_.is_open()) return {};
    std::array<char, 65536> piece{};
    off_t at = 0;
    for (;;) {
        const ssize_t read = pread(held_.number(), piece.data(), piece.size(), at);
        if (read < 0) return cannot_write(path_);
        if (read == 0) return {};
        for (ssize_t done = 0; done < read;) {
            const ssize_t written =
                write(target_.number(), piece.data() + done, static_cast<size_t>(read - done));
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return cannot_write(path_);
            done += written;
        }
        at += read;
    }
}

} // namespace qccl::perf
