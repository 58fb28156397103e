#include "tests/kit/qtest.hpp"

#include <cstdio>
#include <exception>
#include <initializer_list>

namespace qtest {
namespace {

template <class T> std::string printed(const char *format, T value) {
    char text[64];
    snprintf(text, sizeof text, format, value);
    return text;
}

// GCC 12 warns of chains of operator+, falsely.
std::string joined(std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view part : parts) text.append(part);
    return text;
}

} // namespace

void fail_at(const char *file, int line, const char *condition) {
    throw Failure{joined({file, ":", std::to_string(line), ": ", condition})};
}

void fail_at(const char *file, int line, const char *condition, std::string_view said) {
    fail_at(file, line, joined({condition, ": ", said}).c_str());
}

void fail_unequal(const char *file, int line, const char *a_text, const char *b_text,
                  const std::string &a, const std::string &b) {
    const std::string equation = joined({a_text, " == ", b_text});
    if (a.empty() || b.empty()) fail_at(file, line, equation.c_str());
    fail_at(file, line, equation.c_str(), joined({a, " is not ", b}));
}

std::string shown_text(std::string_view text) { return joined({"\"", text, "\""}); }
std::string shown_number(int64_t value) { return std::to_string(value); }
std::string shown_number(uint64_t value) { return std::to_string(value); }
std::string shown_number(double value) { return printed("%.17g", value); }
std::string shown_pointer(const volatile void *value) { return printed("%p", value); }

bool fails(void (*body)(), char *text, size_t bytes) {
    try {
        body();
        return false;
    } catch (const Failure &failure) {
        snprintf(text, bytes, "%s", failure.text.c_str());
    } catch (const std::exception &failure) {
        snprintf(text, bytes, "exception: %s", failure.what());
    }
    return true;
}

} // namespace qtest
