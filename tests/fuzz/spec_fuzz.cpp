// Fuzzes parse_codec() of lib/codec/codec: a codec that it accepts is possible, and its printed
// spec reads back to the same codec and prints the same again. Lists give the same codecs as their
// items.
#include "codec/codec.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const std::string_view text(reinterpret_cast<const char *>(data), bytes);
    if (const auto codec = parse_codec(text)) {
        require(codec->is_auto() || is_possible(*codec), "an impossible codec is accepted");
        const std::string own = spec(*codec);
        const auto again = parse_codec(own);
        require(again.is_ok() && *again == *codec, "the spec does not lead back");
        require(spec(*again) == own, "a codec has two specs");
        require(grain(*codec) >= 64, "a grain is too small");
    } else {
        require(codec.error().code == Code::invalid_argument && codec.error().text[0] != 0,
                "a refusal without a sentence");
    }
    if (const auto list = parse_codec_list(text)) {
        std::string joined;
        for (const Codec &codec : *list)
            joined.append(joined.empty() ? "" : ",").append(spec(codec));
        const auto again = parse_codec_list(joined);
        require(again.is_ok() && *again == *list, "a list does not lead back");
    }
    return 0;
}
