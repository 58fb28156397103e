// Sets of processors as words of 32 bits, and their text form.
#include "topology/cpu_set.hpp"

#include <bit>
#include <charconv>
#include <cstdio>

namespace qccl {

namespace {

constexpr uint32_t word_bits = 32;

} // namespace

void CpuSet::add(uint32_t cpu) {
    if (cpu >= most_cpus) return;
    const size_t word = cpu / word_bits;
    if (words_.size() <= word) words_.resize(word + 1);
    words_[word] |= uint32_t{1} << cpu % word_bits;
}

bool CpuSet::has(uint32_t cpu) const {
    const size_t word = cpu / word_bits;
    return word < words_.size() && (words_[word] >> cpu % word_bits & 1) != 0;
}

bool CpuSet::contains(const CpuSet &other) const {
    if (other.words_.size() > words_.size()) return false;
    for (size_t i = 0; i < other.words_.size(); i++)
        if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
}

uint32_t CpuSet::size() const {
    uint32_t count = 0;
    for (const uint32_t word : words_) count += static_cast<uint32_t>(std::popcount(word));
    return count;
}

std::string CpuSet::print() const {
    std::string text;
    for (size_t i = words_.size(); i-- > 0;) {
        char word[16];
        std::snprintf(word, sizeof word, text.empty() ? "%x" : ",%08x", words_[i]);
        text += word;
    }
    return text.empty() ? "0" : text;
}

std::optional<CpuSet> CpuSet::parse(std::string_view mask) {
    std::vector<uint32_t> words; // highest first
    for (bool has_more = true; has_more;) {
        const size_t end = mask.find(',');
        has_more = end != std::string_view::npos;
        std::string_view word = mask.substr(0, end);
        if (has_more) mask.remove_prefix(end + 1);
        if (word.starts_with("0x")) word.remove_prefix(2);
        uint32_t value = 0;
        const bool is_omitted = word.empty() && !words.empty() && has_more; // 0, as hwloc prints it
        const auto [last, error] =
            std::from_chars(word.data(), word.data() + word.size(), value, 16);
        const bool is_number = error == std::errc() && last == word.data() + word.size();
        if (!is_number && !is_omitted) return std::nullopt;
        words.push_back(value);
        if (words.size() > most_cpus / word_bits) return std::nullopt;
    }
    CpuSet set;
    set.words_.assign(words.rbegin(), words.rend());
    while (!set.words_.empty() && set.words_.back() == 0) set.words_.pop_back();
    return set;
}

} // namespace qccl
