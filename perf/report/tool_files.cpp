// Implements tool_files.hpp, except read_text and OutputFile. A JsonFile writes each row and the
// tail at the end of the last row, in the file or in a memfd.
#include "perf/report/tool_files.hpp"

#include "base/system.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace qccl::perf {

// ---- Numbers as text

std::string fitted(double value, int width) {
    char text[400]; // the largest double has 309 digits
    for (int decimals = 2; decimals >= 0; decimals--)
        if (std::snprintf(text, sizeof text, "%*.*f", width, decimals, value) <= width) return text;
    std::snprintf(text, sizeof text, "%*.*e", width, width >= 7 ? 1 : 0, value);
    return text;
}

std::string memory_text(double bytes) {
    static constexpr const char *units[] = {"B", "KB", "MB", "GB", "TB"};
    double amount = bytes;
    size_t unit = 0;
    for (; amount >= 1024 && unit + 1 < std::size(units); unit++) amount /= 1024;
    char text[400];
    const int decimals = amount < 10 ? 2 : amount < 100 ? 1 : 0;
    std::snprintf(text, sizeof text, "%.*f %s", decimals, amount, units[unit]);
    return text;
}

std::string time_text(double ns) {
    static constexpr const char *units[] = {"ns", "us", "ms", "s"};
    size_t unit = 0;
    // 999.5 would otherwise be printed as 1e+03.
    for (; ns >= 999.5 && unit + 1 < std::size(units); unit++) ns /= 1000;
    char text[400];
    const int decimals = ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0;
    std::snprintf(text, sizeof text, "%.*f %s", decimals, ns, units[unit]);
    return text;
}

// ---- Standard output

Done flush(std::FILE *out) {
    errno = 0;
    if (std::fflush(out) == 0 && std::ferror(out) == 0) return {};
    // If the buffer was too small for all output, an earlier write may have failed and its reason
    // is lost.
    const char *const reason = errno != 0 ? std::strerror(errno) : "some of it is lost";
    std::clearerr(out);
    return Error::make(Code::system_error, "cannot write standard %s: %s",
                       out == stderr ? "error" : "output", reason);
}

int end_output(const char *program, int status) {
    const Done done = flush(stdout);
    if (done) return status;
    std::fprintf(stderr, "%s: %s\n", program, done.error().text);
    return status != EXIT_SUCCESS ? status : EXIT_FAILURE;
}

// ---- JSON documents

static Error cannot_write_json(const std::string &path) {
    return Error::make(Code::system_error, "cannot write %s: %s", path.c_str(),
                       describe_errno(errno).c_str());
}

Result<JsonFile> JsonFile::around(const std::string &path, FileDescriptor target) {
    struct stat status {};
    if (!target.is_open() || fstat(target.number(), &status) != 0) return cannot_write_json(path);
    if (S_ISREG(status.st_mode) && path != "-") return JsonFile(path, std::move(target), {});
    FileDescriptor held(memfd_create("qccl-perf-json", MFD_CLOEXEC));
    if (!held.is_open()) return cannot_write_json(path);
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
        return cannot_write_json(path);
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
        if (written <= 0) return cannot_write_json(path_);
        text.remove_prefix(static_cast<size_t>(written));
        at += static_cast<uint64_t>(written);
    }
    return ftruncate(file, static_cast<off_t>(at)) == 0 ? Done{} : cannot_write_json(path_);
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
        if (read < 0) return cannot_write_json(path_);
        if (read == 0) return {};
        for (ssize_t done = 0; done < read;) {
            const ssize_t written =
                write(target_.number(), piece.data() + done, static_cast<size_t>(read - done));
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return cannot_write_json(path_);
            done += written;
        }
        at += read;
    }
}

} // namespace qccl::perf
