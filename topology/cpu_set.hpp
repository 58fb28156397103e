// A set of processors, by the numbers that the operating system gives them. Pure data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

class CpuSet {
public:
    // More than any machine has; a damaged file must not cost all memory.
    static constexpr uint32_t most_cpus = 1U << 16;

    // Numbers from most_cpus on are left out.
    void add(uint32_t cpu);
    bool has(uint32_t cpu) const;
    bool contains(const CpuSet &other) const;
    bool is_empty() const { return words_.empty(); }
    uint32_t size() const;
    bool operator==(const CpuSet &) const = default;

    // "ff,ffffffff": hexadecimal words of 32 processors, the highest first, as Linux prints masks.
    // The empty set is "0".
    std::string print() const;
    // Also with words that have leading zeros or "0x", or between two others nothing for 0, as
    // hwloc prints them. Empty where the text is no such mask or has too many processors.
    static std::optional<CpuSet> parse(std::string_view mask);

private:
    std::vector<uint32_t> words_; // lowest first; the last one is never 0
};

} // namespace qccl
