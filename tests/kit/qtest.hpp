// CMocka for C++. A CMocka assert leaves by longjmp past destructors. Here a failed CHECK throws
// instead, the test's body unwinds, and only then one C frame that owns nothing reports to CMocka.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

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

// Defined in qtest.cpp: streams and strings at each check would make tests compile a tenth longer.
[[noreturn]] void fail_at(const char *file, int line, const char *condition);
[[noreturn]] void fail_at(const char *file, int line, const char *condition, std::string_view said);
[[noreturn]] void fail_unequal(const char *file, int line, const char *a_text, const char *b_text,
                               const std::string &a, const std::string &b);
std::string shown_text(std::string_view text);
std::string shown_number(int64_t value);
std::string shown_number(uint64_t value);
std::string shown_number(double value);
std::string shown_pointer(const volatile void *value);

// Returns the value as text, or nothing if it is no text, number, enumerator or pointer.
template <class T> std::string shown(const T &value) {
    if constexpr (std::is_null_pointer_v<T>)
        return "nullptr";
    else if constexpr (std::is_same_v<T, char *> || std::is_same_v<T, const char *>)
        return value ? shown_text(value) : "nullptr";
    else if constexpr (std::is_convertible_v<const T &, std::string_view>)
        return shown_text(value);
    else if constexpr (std::is_floating_point_v<T>)
        return shown_number(static_cast<double>(value));
    else if constexpr (std::is_pointer_v<T>)
        return shown_pointer(reinterpret_cast<const volatile void *>(value));
    else if constexpr (std::is_enum_v<T>)
        return shown_number(static_cast<int64_t>(value));
    else if constexpr (std::is_unsigned_v<T>)
        return shown_number(static_cast<uint64_t>(value));
    else if constexpr (std::is_integral_v<T>)
        return shown_number(static_cast<int64_t>(value));
    else
        return {};
}

template <class A, class B>
void check_equal(const A &a, const B &b, const char *a_text, const char *b_text, const char *file,
                 int line) {
    if (!(a == b)) fail_unequal(file, line, a_text, b_text, shown(a), shown(b));
}

// Runs the test and returns whether it failed. Fills `text`, which is a buffer so that the caller
// owns nothing when it reports.
bool fails(void (*body)(), char *text, size_t bytes);

template <void (*body)()> void run(void **) {
    char text[4096];
    if (fails(body, text, sizeof text)) report(text);
}

template <void (*body)()> CMUnitTest unit(const char *name) {
    return {name, run<body>, nullptr, nullptr, nullptr};
}

} // namespace qtest

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) qtest::fail_at(__FILE__, __LINE__, #condition);                          \
    } while (false)
#define CHECK_EQ(a, b) qtest::check_equal((a), (b), #a, #b, __FILE__, __LINE__)
// Fails with the error's sentence if the Result holds an error.
#define CHECK_OK(result)                                                                           \
    do {                                                                                           \
        if (const auto &checked_ = (result); !checked_)                                            \
            qtest::fail_at(__FILE__, __LINE__, #result, checked_.error().text);                    \
    } while (false)

#define QTEST(function) qtest::unit<(function)>(#function)
