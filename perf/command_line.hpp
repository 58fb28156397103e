// Command lines as all tools read them: values taken or refused in words, misspelt options answered
// with the one that was meant, help in one style. Starts nothing and prints nothing by itself.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace qccl::perf {

// The exit status where what was asked for cannot be.
inline constexpr int usage_error = 2;

// What is left to say by a program whose command line gives it nothing more to do: help, or why
// it is refused.
struct Answer {
    int status;
    std::string text;
};

Answer refusal(const std::string &program, const std::string &sentence);
// Prints it; returns the exit status.
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
Take take_text(std::string &value); // anything but nothing

// Completes the long names of options that have a letter too, where their beginnings stand and
// begin no other's: getopt_long, by which nccl-tests reads its options, takes these.
void complete_names(const CLI::App &app, std::vector<std::string> &words);

// `words` are those behind the program's name. Nothing: the program goes on.
std::optional<Answer> read_command_line(CLI::App &app, const std::string &program,
                                        std::vector<std::string> words);

} // namespace qccl::perf
