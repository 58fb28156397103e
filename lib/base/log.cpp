// Formats log lines and writes each with one system call.
#include "base/log.hpp"

#include "base/system.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

namespace qccl {

static constexpr std::array<const char *, 3> level_names{"warn", "info", "trace"};

const char *name(LogLevel level) { return level_names[static_cast<size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view name) {
    for (size_t i = 0; i < level_names.size(); i++) {
        const std::string_view known = level_names[i];
        if (name.size() == known.size() && !strncasecmp(name.data(), known.data(), known.size()))
            return static_cast<LogLevel>(i);
    }
    return std::nullopt;
}

static constexpr int nowhere = -1; // in place of a file's descriptor

Result<std::unique_ptr<Log>> Log::create(const LogOptions &options) {
    const std::string host = host_name();
    int file = options.file.empty() ? nowhere : STDERR_FILENO;
    if (!options.file.empty() && options.file != "stderr") {
        QCCL_TRY(const std::string path,
                 expand_file_pattern("QCCL_DEBUG_FILE", options.file, host));
        file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
        if (file < 0)
            return Error::make(Code::system_error, "QCCL_DEBUG_FILE: cannot open \"%s\": %s",
                               path.c_str(), describe_errno(errno).c_str());
    }
    return std::unique_ptr<Log>(new Log(options, host, file));
}

Log::Log(const LogOptions &options, const std::string &host, int file)
    : options_(options), host_(host), file_(file) {}

Log::~Log() {
    if (file_ != STDERR_FILENO && file_ != nowhere) close(file_);
}

// Bytes that cannot be written (full disk, closed terminal, pipe without a reader) are lost:
// logging never fails a call. A failed write does not end the program either: the signals that the
// kernel sends to the writing thread are blocked and then consumed, except for a signal that was
// already pending for the program.
static void write_quietly(int file, std::string_view text) {
    constexpr std::array signals{SIGPIPE, SIGXFSZ};
    sigset_t ours, before, waiting;
    sigemptyset(&ours);
    for (const int signal : signals) sigaddset(&ours, signal);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    sigpending(&waiting);
    for (const int signal : signals)
        if (sigismember(&waiting, signal) == 1) sigdelset(&ours, signal);

    bool can_write = true;
    while (can_write && !text.empty()) {
        const ssize_t written = ::write(file, text.data(), text.size());
        can_write = written > 0 || (written < 0 && errno == EINTR);
        if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    const timespec at_once{};
    if (!can_write) sigtimedwait(&ours, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Log::write_line(LogLevel level, const char *format, va_list arguments) const {
    // Linux keeps writes of up to PIPE_BUF (4096) bytes to a pipe in one piece.
    std::array<char, 2048> line;
    const size_t room = line.size() - 1; // one byte is for the line end
    const std::string rank = options_.rank < 0 ? "-" : std::to_string(options_.rank);

    // getpid() is called for every line, because a forked child logs under its own number.
    int used = snprintf(line.data(), room, "%s:%d:%s qccl %s: ", host_.c_str(),
                        static_cast<int>(getpid()), rank.c_str(), name(level));
    size_t length = std::min(static_cast<size_t>(std::max(used, 0)), room - 1);
    used = vsnprintf(line.data() + length, room - length, format, arguments);
    length = std::min(length + static_cast<size_t>(std::max(used, 0)), room - 1);

    // A peer's text must not be able to forge a second line or move a terminal's cursor.
    std::replace_if(
        line.begin(), line.begin() + static_cast<std::ptrdiff_t>(length),
        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
    line[length] = 0;
    if (options_.callback) options_.callback(level, line.data(), options_.context);

    if (file_ == nowhere) return;
    line[length] = '\n';
    write_quietly(file_, {line.data(), length + 1});
}

void Log::print(std::string_view lines) const {
    for (std::string_view rest = lines; options_.callback && !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        options_.callback(LogLevel::warn, std::string(rest.substr(0, end)).c_str(),
                          options_.context);
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (file_ != nowhere) write_quietly(file_, lines);
}

#define QCCL_LOG(level)                                                                            \
    void Log::level(const char *format, ...) const {                                               \
        if (!wants(LogLevel::level)) return;                                                       \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        write_line(LogLevel::level, format, arguments);                                            \
        va_end(arguments);                                                                         \
    }
QCCL_LOG(warn)
QCCL_LOG(info)
QCCL_LOG(trace)
#undef QCCL_LOG

} // namespace qccl
