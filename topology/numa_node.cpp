#include "topology/numa_node.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include <sched.h>

namespace qccl {

// More than any machine has; a damaged file should not cost all memory.
static constexpr uint32_t most_numbers = 1U << 16;

static bool take_number(std::string_view &text, uint32_t &number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return error == std::errc() && number < most_numbers;
}

std::optional<std::vector<uint32_t>> parse_number_list(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    std::vector<uint32_t> numbers;
    while (!text.empty()) {
        uint32_t first = 0, last = 0;
        if (!take_number(text, first)) return std::nullopt;
        last = first;
        if (text.starts_with('-')) {
            text.remove_prefix(1);
            if (!take_number(text, last) || last < first) return std::nullopt;
        }
        for (uint32_t number = first; number <= last; number++) numbers.push_back(number);
        if (text.empty()) break;
        if (text.size() < 2 || text.front() != ',') return std::nullopt;
        text.remove_prefix(1);
    }
    return numbers;
}

static std::vector<uint32_t> read_numbers(const std::string &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return parse_number_list(line).value_or(std::vector<uint32_t>());
}

std::optional<uint32_t> numa_node_of(const std::vector<uint32_t> &cpus, const std::string &folder) {
    const std::vector<uint32_t> nodes = read_numbers(folder + "/online");
    if (nodes.size() < 2 || cpus.empty()) return std::nullopt;
    for (const uint32_t node : nodes) {
        const auto has = read_numbers(folder + "/node" + std::to_string(node) + "/cpulist");
        if (std::all_of(cpus.begin(), cpus.end(), [&](uint32_t cpu) {
                return std::find(has.begin(), has.end(), cpu) != has.end();
            }))
            return node;
    }
    return std::nullopt;
}

std::optional<uint32_t> numa_node_here() {
    static constexpr size_t sets = 16; // of 1024 CPUs each: Linux knows 8192 at most
    cpu_set_t allowed[sets] = {};
    if (sched_getaffinity(0, sizeof allowed, allowed) != 0) return std::nullopt;
    std::vector<uint32_t> cpus;
    for (uint32_t cpu = 0; cpu < sets * CPU_SETSIZE; cpu++)
        if (CPU_ISSET_S(cpu, sizeof allowed, allowed)) cpus.push_back(cpu);
    return numa_node_of(cpus, "/sys/devices/system/node");
}

} // namespace qccl
