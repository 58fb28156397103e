// What a codec may cost, from a caller who names none: "nmse=1e-3,bits=4.5". Read and written for
// spec strings.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

struct Budget {
    double nmse = 0;   // the result's NMSE is at most this; 0: any
    uint32_t bits = 0; // thousandths of a bit that a value takes on the wire, at most; 0: any
    uint32_t from = 0; // bit set of the CodecIds that may be chosen; 0: all that have a bound

    explicit operator bool() const { return nmse != 0 || bits != 0; }
    double most_bits() const { return bits / 1000.0; }
    bool allows(unsigned codec_id) const { return from == 0 || (from >> codec_id & 1) != 0; }
    bool operator==(const Budget &) const = default;
};

// What the keys take, in words.
inline constexpr std::string_view budget_nmse_words = "a number above 0 and below 1, as 1e-3",
                                  budget_bits_words = "1 to 64, with at most three decimals",
                                  budget_from_words =
                                      "int, minmax, nvfp4, bf16, several with + between them",
                                  guard_words =
                                      "nmse: and a number above 0 and below 1, as nmse:1e-3";

// Of the keys above; an error says what is possible.
Done read_budget_nmse(Budget &budget, std::string_view text);
Done read_budget_bits(Budget &budget, std::string_view text);
Done read_budget_from(Budget &budget, std::string_view text);
// Of the key guard, whose value is "nmse:1e-3": the number alone.
Done read_guard(double &nmse, std::string_view text);
std::string guard_text(double nmse);
// "nmse=0.001,bits=4.5": the keys that say something.
std::string budget_text(const Budget &budget);

} // namespace qccl
