#include "plan/corrections.hpp"

#include "codec/error_bound.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace qccl {

CodecWidth width_of(const Codec &codec) {
    constexpr double most_narrow_bits = 6;
    if (codec.is_lossless()) return CodecWidth::none;
    return bits_per_value(codec, DataType::float32) > most_narrow_bits ? CodecWidth::wide
                                                                       : CodecWidth::narrow;
}

const Corrections::Row *Corrections::row(const Corrections &self, const Calls &calls) {
    const auto known = algorithms();
    const auto number =
        static_cast<size_t>(std::ranges::find(known, calls.algorithm) - known.begin());
    if (number >= std::min(known.size(), most_algorithms)) return nullptr;
    const auto collective = static_cast<size_t>(calls.collective);
    return &self.rows_[(collective * most_algorithms + number) * width_codecs.size() +
                       static_cast<size_t>(calls.width)];
}

bool Corrections::is_empty() const {
    return std::ranges::all_of(rows_, [](const Row &each) { return each == Row(); });
}

double Corrections::measured(const Calls &calls, size_t size) const {
    const Row *const found = row(*this, calls);
    return found ? static_cast<double>((*found)[size]) : 0;
}

void Corrections::set(const Calls &calls, size_t size, double factor) {
    if (const Row *const found = row(*this, calls))
        rows_[static_cast<size_t>(found - rows_.data())][size] =
            static_cast<float>(std::clamp(factor, least, most));
}

double Corrections::of(const Calls &calls, uint64_t bytes) const {
    const Row *const found = row(*this, calls);
    if (!found) return 1;
    std::optional<size_t> below, above;
    for (size_t i = 0; i < sizes.size(); i++) {
        if ((*found)[i] == 0) continue;
        if (sizes[i] <= bytes) below = i;
        if (sizes[i] >= bytes && !above) above = i;
    }
    if (!below && !above) return 1;
    const double from = static_cast<double>((*found)[below.value_or(above.value_or(0))]),
                 to = static_cast<double>((*found)[above.value_or(below.value_or(0))]);
    if (!below || !above || *below == *above) return below ? from : to;
    const double part =
        std::log(static_cast<double>(bytes) / static_cast<double>(sizes[*below])) /
        std::log(static_cast<double>(sizes[*above]) / static_cast<double>(sizes[*below]));
    return from * std::pow(to / from, part);
}

} // namespace qccl
