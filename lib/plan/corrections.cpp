// Stores measured factors and interpolates between their sizes.
#include "plan/corrections.hpp"

#include "codec/error_bound.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

CodecWidth width_of(const Codec &codec) {
    constexpr double most_narrow_bits = 6;
    if (codec.is_lossless()) return CodecWidth::none;
    return bits_per_value(codec, DataType::float32) > most_narrow_bits ? CodecWidth::wide
                                                                       : CodecWidth::narrow;
}

std::optional<size_t> Corrections::row_of(const Calls &calls) {
    const auto known = algorithms();
    const auto number =
        static_cast<size_t>(std::ranges::find(known, calls.algorithm) - known.begin());
    if (number >= std::min(known.size(), most_algorithms)) return std::nullopt;
    const auto collective = static_cast<size_t>(calls.collective);
    return (collective * most_algorithms + number) * width_codecs.size() +
           static_cast<size_t>(calls.width);
}

bool Corrections::is_empty() const {
    return std::ranges::all_of(rows_, [](const Row &each) { return each == Row(); });
}

double Corrections::measured(const Calls &calls, size_t size) const {
    const auto row = row_of(calls);
    return row ? static_cast<double>(rows_[*row][size]) : 0;
}

void Corrections::set(const Calls &calls, size_t size, double factor) {
    if (const auto row = row_of(calls))
        rows_[*row][size] = static_cast<float>(std::clamp(factor, least, most));
}

// Returns nothing if the row has no measurement.
std::optional<double> Corrections::between(const Row &factors, uint64_t bytes) {
    std::optional<size_t> below, above;
    for (size_t i = 0; i < sizes.size(); i++) {
        if (factors[i] == 0) continue;
        if (sizes[i] <= bytes) below = i;
        if (sizes[i] >= bytes && !above) above = i;
    }
    if (!below && !above) return std::nullopt;
    const double from = static_cast<double>(factors[below.value_or(above.value_or(0))]),
                 to = static_cast<double>(factors[above.value_or(below.value_or(0))]);
    if (!below || !above || *below == *above) return below ? from : to;
    const double part =
        std::log(static_cast<double>(bytes) / static_cast<double>(sizes[*below])) /
        std::log(static_cast<double>(sizes[*above]) / static_cast<double>(sizes[*below]));
    return from * std::pow(to / from, part);
}

double Corrections::of(const Calls &calls, uint64_t bytes) const {
    auto row = row_of(calls);
    // Calibrations do not measure variants such as ring:rings=all. Without a factor a variant would
    // look faster than its plain form, so the plain form's factor counts.
    if (!row && calls.algorithm)
        row = row_of({calls.collective, Algorithm(calls.algorithm.row()), calls.width});
    if (!row) return 1;
    if (const auto factor = between(rows_[*row], bytes)) return *factor;
    std::optional<double> largest;
    for (const Algorithm &other : algorithms()) {
        const auto beside = row_of({calls.collective, other, calls.width});
        if (const auto factor = beside ? between(rows_[*beside], bytes) : std::nullopt)
            largest = std::max(*factor, largest.value_or(*factor));
    }
    return largest.value_or(1);
}

} // namespace qccl
