// What a codec may cost, for a caller who names no codec: "nmse=1e-3,bits=4.5"; and how much a
// guard lets it lose. Pure; any thread may call.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

struct Budget {
    double nmse = 0;   // the result's NMSE is at most this; 0: no limit
    uint32_t bits = 0; // thousandths of a bit that a value may take on the wire; 0: no limit
    uint32_t from = 0; // bit set of the CodecIds that may be chosen; 0: all that have a bound

    explicit operator bool() const { return nmse != 0 || bits != 0; }
    double most_bits() const { return bits / 1000.0; }
    bool allows(unsigned codec_id) const { return from == 0 || (from >> codec_id & 1) != 0; }
    bool operator==(const Budget &) const = default;
};

// The values that each key takes, in words.
inline constexpr std::string_view budget_nmse_words = "a number above 0 and below 1, as 1e-3",
                                  budget_bits_words = "1 to 64, with at most three decimals",
                                  budget_from_words =
                                      "int, minmax, nvfp4, bf16, several with + between them",
                                  guard_words =
                                      "nmse: and a number above 0 and below 1, as nmse:1e-3";

// Each parses the value of one key into `budget`. The error (invalid_argument) says what is
// possible.
Done read_budget_nmse(Budget &budget, std::string_view text);
Done read_budget_bits(Budget &budget, std::string_view text);
Done read_budget_from(Budget &budget, std::string_view text);
// Parses the value of the key guard, such as "nmse:1e-3", and stores its number in `nmse`.
Done read_guard(double &nmse, std::string_view text);
std::string guard_text(double nmse);
// Returns the keys that are set: "nmse=0.001,bits=4.5".
std::string budget_text(const Budget &budget);

} // namespace qccl
