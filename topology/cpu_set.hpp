// A set of processors, by the numbers that the operating system gives them. Plain data.
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
    // More than any machine has. The limit keeps a damaged file from using up the memory.
    static constexpr uint32_t most_cpus = 1U << 16;

    // Ignores numbers from most_cpus on.
    void add(uint32_t cpu);
    bool has(uint32_t cpu) const;
    bool contains(const CpuSet &other) const;
    bool is_empty() const { return words_.empty(); }
    uint32_t size() const;
    bool operator==(const CpuSet &) const = default;

    // Returns "ff,ffffffff": hexadecimal words of 32 processors, the highest first, as Linux prints
    // masks. The empty set is "0".
    std::string print() const;
    // Reads what print() returns. Words may also have leading zeros or "0x", and a word of 0
    // between two others may be empty, as hwloc prints it. Returns nothing if the text is no such
    // mask or has too many processors.
    static std::optional<CpuSet> parse(std::string_view mask);

private:
    std::vector<uint32_t> words_; // lowest first; the last one is never 0
};

} // namespace qccl
