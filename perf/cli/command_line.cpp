// Implements command_line.hpp on top of CLI11, with messages of its own.
#include "perf/cli/command_line.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <CLI/CLI.hpp>

namespace qccl::perf {

Answer refusal(const std::string &program, const std::string &sentence) {
    return {usage_error, program + ": " + sentence + "\n"};
}

int tell(const Answer &answer) {
    std::fputs(answer.text.c_str(), answer.status == EXIT_SUCCESS ? stdout : stderr);
    return answer.status;
}

Error refuse(const char *format, ...) {
    char text[sizeof(Error::text)];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return Error::make(Code::invalid_argument, "%s", text);
}

// A refused value is reported by an exception, as CLI11 requires; its message begins with the
// option's names. If an option is given several times, the last value counts.
CLI::Option *add_option(CLI::App &app, const char *group, const std::string &flags,
                        const std::string &help, const Take &take) {
    CLI::Option *const option = app.add_option_function<std::string>(
        flags,
        [flags, take](const std::string &text) {
            const bool is_option = text.size() > 2 && text.starts_with("--");
            const Done done = is_option
                                  ? refuse("needs a value; '%.40s' is an option", text.c_str())
                                  : take(text);
            if (!done) throw CLI::ValidationError(flags, done.error().text);
        },
        help);
    // Like getopt. Positional arguments keep their own positions.
    if (flags.starts_with('-')) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return option->group(group)->type_name("");
}

Done read_count(const std::string &text, uint64_t least, uint64_t most, uint64_t &value) {
    const auto number = parse_count(text);
    if (!number || *number < least || *number > most)
        return refuse("'%.40s' is no number from %llu to %llu", text.c_str(),
                      static_cast<unsigned long long>(least),
                      static_cast<unsigned long long>(most));
    value = *number;
    return {};
}

Take take_bytes(uint64_t &value) {
    return [&value](const std::string &text) -> Done {
        const auto bytes = parse_bytes(text);
        if (!bytes) return refuse("'%.40s' is no size such as 4096, 64K, 32M or 1G", text.c_str());
        value = *bytes;
        return {};
    };
}

Take take_text(std::string &value) {
    return [&value](const std::string &text) -> Done {
        if (text.empty()) return refuse("is empty");
        value = text;
        return {};
    };
}

static void add_names(const CLI::App &app, std::vector<std::string> &names) {
    for (const CLI::Option *const option : app.get_options())
        for (const std::string &name : option->get_lnames()) names.push_back(name);
    for (const CLI::App *const chosen : app.get_subcommands()) add_names(*chosen, names);
}

// Returns the long names that begin with `begun`, only of options that also have a letter. These
// options are those of nccl-tests, whose getopt_long completes names.
static std::vector<std::string> names_begun(const CLI::App &app, const std::string &begun) {
    std::vector<std::string> names;
    for (const CLI::Option *const option : app.get_options())
        for (const std::string &name : option->get_lnames())
            if (!option->get_snames().empty() && name.starts_with(begun)) names.push_back(name);
    return names;
}

static std::string unknown_option(const CLI::App &app, const std::string &word) {
    const std::string flag = word.substr(0, word.find('='));
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    static constexpr size_t longest_name = 64; // a longer name is not taken for a misspelling
    const size_t most_edits = std::max<size_t>(name.size() / 3, 1);
    std::vector<std::string> known;
    add_names(app, known);
    if (const auto begun = names_begun(app, name);
        flag.starts_with("--") && !name.empty() && begun.size() > 1) {
        std::string all;
        for (const std::string &each : begun) all += (all.empty() ? "--" : ", --") + each;
        return flag + " is ambiguous: " + all;
    }
    std::optional<std::string_view> meant;
    if (flag.starts_with("--") && name.size() <= longest_name)
        meant = nearest(name, {known.begin(), known.end()}, most_edits);
    const std::string sentence = "unknown option " + flag;
    return meant ? sentence + "; did you mean --" + std::string(*meant) + "?"
                 : sentence + "; --help lists those that there are";
}

static std::string unknown_word(const CLI::App &app, const std::string &word) {
    std::vector<std::string> commands;
    for (const CLI::App *const command : app.get_subcommands(nullptr))
        commands.push_back(command->get_name());
    if (commands.empty() || !app.get_subcommands().empty()) return "'" + word + "' is not expected";
    return no_choice("the first argument", word, {commands.begin(), commands.end()}).text;
}

// Returns the reason in words that name what the user wrote, not what the parser expected.
static std::string reason(const CLI::App &app, const CLI::ParseError &error) {
    const std::vector<std::string> unknown = app.remaining(true);
    for (const std::string &word : unknown)
        if (word.size() > 1 && word.starts_with('-')) return unknown_option(app, word);
    if (dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr && !unknown.empty())
        return unknown_word(app, unknown.front());
    const std::string said = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch *>(&error) == nullptr) return said;
    return said.substr(0, said.find(':')) + " needs a value";
}

void complete_names(const CLI::App &app, std::vector<std::string> &words) {
    for (std::string &word : words) {
        if (!word.starts_with("--")) continue;
        const std::string begun = word.substr(2, word.find('=') - 2);
        if (begun.empty() || app.get_option_no_throw("--" + begun)) continue;
        const std::vector<std::string> meant = names_begun(app, begun);
        if (meant.size() == 1) word.replace(2, begun.size(), meant.front());
    }
}

std::optional<Answer> read_command_line(CLI::App &app, const std::string &program,
                                        std::vector<std::string> words) {
    std::reverse(words.begin(), words.end()); // CLI11 expects the words in reverse order
    try {
        app.parse(words);
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        std::ostringstream help, complaint;
        if (app.exit(error, help, complaint) == 0) return Answer{EXIT_SUCCESS, help.str()};
        return refusal(program, reason(app, error));
    }
}

} // namespace qccl::perf
