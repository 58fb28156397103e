// Result<T>: a value, or an Error that describes the failure in a sentence. It uses no exceptions
// and allocates nothing. The function that detects the error words the sentence; its callers
// forward it with QCCL_TRY.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace qccl {

// Number, name and text of every result; they never change. The C header spells the same numbers;
// lib/comm/boundary.cpp asserts that they agree.
#define QCCL_RESULTS(X)                                                                            \
    X(0, success, "no error")                                                                      \
    X(1, unhandled_device_error, "a call to the device's runtime failed")                          \
    X(2, system_error, "a call to the operating system failed")                                    \
    X(3, internal_error, "QCCL found itself in a state that it should never reach")                \
    X(4, invalid_argument, "an argument is not valid")                                             \
    X(5, invalid_usage, "the call is not allowed at this point")                                   \
    X(6, remote_error, "another rank failed")                                                      \
    X(7, in_progress, "the operation is still running")                                            \
    X(8, timeout, "a rank did not come in time")                                                   \
    X(64, mismatch, "ranks disagree about a call")                                                 \
    X(65, peer_lost, "a rank died or left the communicator")                                       \
    X(66, revoked, "a rank revoked the communicator")                                              \
    X(67, damaged_data, "encoded data are damaged")

enum class Code : int32_t {
#define QCCL_CODE(number, name, text) name = number,
    QCCL_RESULTS(QCCL_CODE)
#undef QCCL_CODE
};

const char *code_text(Code code);

// Processes send each other errors as they lie in memory, and call `make_printable` on what they
// receive. `rank` is the rank at fault, if there is one. `expected` and `got` are filled where two
// values were compared, so that callers can read them without parsing the sentence.
struct [[nodiscard]] Error {
    static constexpr int32_t no_rank = -1;

    Code code = Code::internal_error;
    int32_t rank = no_rank;
    int64_t expected = 0;
    int64_t got = 0;
    char text[488] = {};

    // What a user or a file says may be part of the sentence, and the sentence is shown on
    // terminals: control characters become question marks.
    [[gnu::format(printf, 2, 3)]] static Error make(Code code, const char *format, ...);
    [[gnu::format(printf, 2, 0)]] static Error make_from(Code code, const char *format,
                                                         va_list arguments);

    Error &at_rank(int64_t faulty) {
        rank = static_cast<int32_t>(faulty);
        return *this;
    }
    Error &compared(int64_t wanted, int64_t found) {
        expected = wanted;
        got = found;
        return *this;
    }
    // Ends the sentence where its space ends, and replaces its control characters.
    Error &make_printable() {
        text[sizeof text - 1] = '\0';
        for (char *each = text; *each != '\0'; each++)
            if (const auto code_unit = static_cast<unsigned char>(*each);
                code_unit < ' ' || code_unit == 0x7f)
                *each = '?';
        return *this;
    }
};
static_assert(sizeof(Error) == 512 && std::has_unique_object_representations_v<Error>);

inline Error Error::make_from(Code code, const char *format, va_list arguments) {
    Error error;
    error.code = code;
    std::vsnprintf(error.text, sizeof error.text, format, arguments);
    return error.make_printable();
}

inline Error Error::make(Code code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const Error error = make_from(code, format, arguments);
    va_end(arguments);
    return error;
}

// Returns an error with another sentence, and with the code, rank and comparison of `error`.
[[gnu::format(printf, 2, 3)]] inline Error reworded(const Error &error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    Error worded = Error::make_from(error.code, format, arguments);
    va_end(arguments);
    return worded.at_rank(error.rank).compared(error.expected, error.got);
}

// Makes the Error that is made most often.
[[gnu::format(printf, 1, 2)]] inline Error invalid_argument(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const Error error = Error::make_from(Code::invalid_argument, format, arguments);
    va_end(arguments);
    return error;
}

inline const char *code_text(Code code) {
    switch (code) {
#define QCCL_CODE(number, name, text)                                                              \
    case Code::name: return text;
        QCCL_RESULTS(QCCL_CODE)
#undef QCCL_CODE
    }
    return "unknown result";
}

template <class T = void> class [[nodiscard]] Result {
public:
    Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
    Result(const Error &error) : held_(std::in_place_index<1>, error) {}

    bool is_ok() const { return held_.index() == 0; }
    explicit operator bool() const { return is_ok(); }
    T &operator*() { return *std::get_if<0>(&held_); }
    const T &operator*() const { return *std::get_if<0>(&held_); }
    T *operator->() { return std::get_if<0>(&held_); }
    const T *operator->() const { return std::get_if<0>(&held_); }
    const Error &error() const { return *std::get_if<1>(&held_); }

private:
    std::variant<T, Error> held_;
};

template <> class [[nodiscard]] Result<void> {
public:
    // Success does not touch the bytes of an error, neither here nor in copies: calls of a few
    // microseconds create and copy results, and an Error has half a KiB.
    Result() {}
    Result(const Error &error) : error_(error) {}
    Result(const Result &other) {
        if (other.error_) error_.emplace(*other.error_);
    }
    Result &operator=(const Result &other) {
        if (other.error_)
            error_ = other.error_;
        else
            error_.reset();
        return *this;
    }

    bool is_ok() const { return !error_; }
    explicit operator bool() const { return is_ok(); }
    const Error &error() const { return *error_; }

private:
    std::optional<Error> error_;
};

using Done = Result<void>;

// Returns success or the error of `result`, without its value.
template <class T> Done outcome(const Result<T> &result) {
    return result ? Done() : Done(result.error());
}

// QCCL_TRY(call) forwards the error of a Done; QCCL_TRY(auto x, call) also takes the value.
#define QCCL_JOIN_(a, b) a##b
#define QCCL_JOIN(a, b) QCCL_JOIN_(a, b)
#define QCCL_TRY_2(declaration, call)                                                              \
    auto QCCL_JOIN(result_, __LINE__) = (call);                                                    \
    if (!QCCL_JOIN(result_, __LINE__)) return QCCL_JOIN(result_, __LINE__).error();                \
    declaration = std::move(*QCCL_JOIN(result_, __LINE__))
#define QCCL_TRY_1(call)                                                                           \
    do {                                                                                           \
        if (auto &&result_ = (call); !result_) return result_.error();                             \
    } while (false)
#define QCCL_TRY_PICK(a, b, picked, ...) picked
#define QCCL_TRY(...) QCCL_TRY_PICK(__VA_ARGS__, QCCL_TRY_2, QCCL_TRY_1, )(__VA_ARGS__)

} // namespace qccl
