// Specs as tests of codecs use them.
#pragma once

#include "tests/kit/qtest.hpp"

#include "codec/codec.hpp"

#include <cstring>
#include <string>

namespace qtest {

inline qccl::Codec parsed(const char *text) {
    const auto codec = qccl::parse_codec(text);
    CHECK_OK(codec);
    return *codec;
}

// Checks that the spec is refused with a sentence that contains `hint`.
inline void check_refused(const std::string &text, const char *hint) {
    const auto codec = qccl::parse_codec(text);
    if (codec) throw Failure{text + " is accepted"};
    CHECK(codec.error().code == qccl::Code::invalid_argument);
    if (strstr(codec.error().text, hint) == nullptr)
        throw Failure{text + ": \"" + codec.error().text + "\" does not say " + hint};
}

} // namespace qtest
