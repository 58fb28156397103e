// Reads the command lines of all tools: accepts or refuses values with a message, suggests the
// meant option for a misspelt one, prints help in one style, and gives the version text that the
// tools print. Starts nothing, and prints nothing except by tell(). Any thread; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <qccl/version.h>

namespace qccl::perf {

inline std::string version_text() {
    return std::to_string(QCCL_VERSION_MAJOR) + "." + std::to_string(QCCL_VERSION_MINOR) + "." +
           std::to_string(QCCL_VERSION_PATCH);
}
inline std::string version_line(const std::string &program) {
    return program + " " + version_text();
}

} // namespace qccl::perf

namespace CLI {

class App;
class Option;

} // namespace CLI

namespace qccl::perf {

// Exit status if the request is invalid or impossible.
inline constexpr int usage_error = 2;

// What a program prints before it exits because its command line leaves nothing else to do: help,
// or the reason for a refusal.
struct Answer {
    int status;
    std::string text;
};

Answer refusal(const std::string &program, const std::string &sentence);
// Prints the answer and returns its exit status.
int tell(const Answer &answer);

[[gnu::format(printf, 1, 2)]] Error refuse(const char *format, ...);

using Take = std::function<Done(const std::string &text)>;
CLI::Option *add_option(CLI::App &app, const char *group, const std::string &flags,
                        const std::string &help, const Take &take);

Done read_count(const std::string &text, uint64_t least, uint64_t most, uint64_t &value);
template <class T> Take take_count(T &value, uint64_t least, uint64_t most) {
    return [&value, least, most](const std::string &text) -> Done {
        uint64_t number = 0;
        QCCL_TRY(read_count(text, least, most, number));
        value = static_cast<T>(number);
        return {};
    };
}
Take take_bytes(uint64_t &value);
Take take_text(std::string &value); // any text except an empty one

// Completes abbreviated long names of options that also have a letter, if only one such name begins
// so. nccl-tests reads its options by getopt_long, which accepts abbreviations.
void complete_names(const CLI::App &app, std::vector<std::string> &words);

// `words` are those after the program's name. Returns nothing if the program goes on.
std::optional<Answer> read_command_line(CLI::App &app, const std::string &program,
                                        std::vector<std::string> words);

} // namespace qccl::perf
