// The log that a user sees of a running job: one line for each message, handed to the kernel in one
// write so that the lines of many processes never mix. Every communicator has its own Log; there is
// no global one.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

enum class LogLevel : uint8_t { warn, info, trace };

const char *name(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view name);

// Called for every line that passes the level, without its line end, on the thread that logs.
using LogCallback = void (*)(LogLevel level, const char *line, void *context);

struct LogOptions {
    LogLevel level = LogLevel::warn;
    std::string file = "stderr"; // or a path, in which %h is the host, %p the process, %% a
                                 // percent; empty: no file, only the callback
    int32_t rank = -1;           // shown in every line; negative: not known yet
    LogCallback callback = nullptr;
    void *context = nullptr;
};

// Any thread may log at any time.
class Log {
public:
    static Result<std::unique_ptr<Log>> create(const LogOptions &options);
    ~Log();
    Log(const Log &) = delete;
    Log &operator=(const Log &) = delete;

    bool wants(LogLevel level) const { return level <= options_.level; }

    [[gnu::format(printf, 2, 3)]] void warn(const char *format, ...) const;
    [[gnu::format(printf, 2, 3)]] void info(const char *format, ...) const;
    [[gnu::format(printf, 2, 3)]] void trace(const char *format, ...) const;

    // Prints lines that the user asked for, unchanged and in one write, whatever the level. The
    // callback gets each line as a warning.
    void print(std::string_view lines) const;

private:
    Log(const LogOptions &options, const std::string &host, int file);
    [[gnu::format(printf, 3, 0)]] void write_line(LogLevel level, const char *format,
                                                  va_list arguments) const;

    LogOptions options_;
    std::string host_;
    int file_;
};

} // namespace qccl
