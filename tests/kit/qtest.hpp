// CMocka for C++. A CMocka assert leaves by longjmp past destructors. Here a failed CHECK throws
// instead, the test's body unwinds, and only then one C frame that owns nothing reports to CMocka.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>

extern "C" {
#include <cmocka.h>
}

namespace qtest {
inline void report(const char *text) { fail_msg("%s", text); }
} // namespace qtest
#undef fail // QCCL has functions of this name

namespace qtest {

struct Failure {
    std::string text;
};

template <class A, class B>
void check_equal(const A &a, const B &b, const char *a_text, const char *b_text, const char *file,
                 int line) {
    if (a == b) return;
    std::ostringstream out;
    out << file << ":" << line << ": " << a_text << " == " << b_text;
    if constexpr (requires { out << +a << +b; })
        out << ": " << +a << " is not " << +b;
    else if constexpr (requires { out << a << b; })
        out << ": \"" << a << "\" is not \"" << b << "\"";
    throw Failure{out.str()};
}

// Runs the test and returns whether it failed. Fills `text`, which is a buffer so that the caller
// owns nothing when it reports.
template <void (*body)()> bool fails(char *text, size_t bytes) {
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

template <void (*body)()> void run(void **) {
    char text[4096];
    if (fails<body>(text, sizeof text)) report(text);
}

template <void (*body)()> CMUnitTest unit(const char *name) {
    return {name, run<body>, nullptr, nullptr, nullptr};
}

} // namespace qtest

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            throw qtest::Failure{std::string(__FILE__ ":") + std::to_string(__LINE__) +            \
                                 ": " #condition};                                                 \
    } while (false)
#define CHECK_EQ(a, b) qtest::check_equal((a), (b), #a, #b, __FILE__, __LINE__)
// Fails with the error's sentence if the Result holds an error.
#define CHECK_OK(result)                                                                           \
    do {                                                                                           \
        if (const auto &checked_ = (result); !checked_)                                            \
            throw qtest::Failure{std::string(__FILE__ ":") + std::to_string(__LINE__) +            \
                                 ": " #result ": " + checked_.error().text};                       \
    } while (false)

#define QTEST(function) qtest::unit<(function)>(#function)
