// Implements tool_files.hpp on C streams. A JsonFile writes each row and the tail at the end of the
// last row, in the file or in a memfd. read_text reads a file or standard input in pieces, up to a
// limit.
#include "perf/report/tool_files.hpp"

#include "base/system.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

Error OutputFile::refusal() const {
    return Error::make(Code::system_error, "cannot write %s: %s", path_.c_str(),
                       describe_errno(errno).c_str());
}

Result<OutputFile> OutputFile::open(const std::string &path) {
    std::FILE *const file = path == "-" ? stdout : std::fopen(path.c_str(), "we");
    OutputFile opened(path == "-" ? "standard output" : path, file);
    if (!file) return opened.refusal();
    return opened;
}

Done OutputFile::write(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) return refusal();
    return {};
}

Done OutputFile::close() {
    if (std::fflush(file_.get()) != 0) return refusal();
    std::FILE *const file = file_.release();
    if (file != stdout && std::fclose(file) != 0) return refusal();
    return {};
}

Done write_file(const std::string &path, const std::string &content) {
    QCCL_TRY(OutputFile file, OutputFile::open(path));
    QCCL_TRY(file.write(content));
    return file.close();
}

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
            return invalid_argument("%.300s holds more than the %s that are read", called.c_str(),
                                    memory_text(static_cast<double>(most)).c_str());
    }
}

} // namespace qccl::perf
