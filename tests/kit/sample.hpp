// Selects the cases that a commit runs of a table too long for it; QTEST_FULL=1 selects all,
// QTEST_EVERY=n one in n of the selected.
#pragma once

#include "codec/codec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

// Thins out long tables for slow emulators and checkers.
inline size_t thinning() {
    static const char *const every = std::getenv("QTEST_EVERY");
    static const size_t step = every != nullptr ? std::strtoul(every, nullptr, 10) : 1;
    return step == 0 ? 1 : step;
}

// Spread without a pattern, because the tables repeat types and inputs at fixed distances.
inline bool is_chosen(uint64_t number) { return qccl::splitmix64(number) % thinning() == 0; }

namespace qtest {

inline bool is_full() { return std::getenv("QTEST_FULL") != nullptr; }

// A fair sample of a table's cases.
struct Sample {
    bool is_full = qtest::is_full();
    uint64_t cases = 0, taken = 0;

    // Takes one in `rarity` of the cases, spread without a pattern; in a full run all of them.
    bool takes(uint64_t rarity) { return takes_of_few(rarity * thinning()); }
    // The same of a table so short that thinning would leave nothing of it.
    bool takes_of_few(uint64_t rarity) {
        const bool chosen = is_full || qccl::splitmix64(cases) % rarity == 0;
        cases++;
        taken += chosen;
        return chosen;
    }
};

// The numbers of a table's chosen cases; each walk over the table asks for its cases in turn.
struct ChosenCases {
    std::vector<bool> chosen;
    uint64_t cases = 0, taken = 0; // of this walk

    bool takes() {
        const bool is_taken = chosen.at(cases++);
        taken += is_taken;
        return is_taken;
    }
};

// Few cases, but so many that wherever two values of two columns meet in the table, they meet in a
// chosen case. A fault that two values cause is found, however many cases each further value of a
// column adds to the table.
template <size_t columns> class PairSample {
public:
    // Takes the next case of the table: a value for each column, which may be any number.
    // `is_slow`: it is chosen only where no other case has two values together.
    void offer(bool is_slow, const std::array<uint64_t, columns> &values) {
        Row row{.is_slow = is_slow, .values = {}};
        for (size_t i = 0; i < columns; i++) {
            const auto number = static_cast<uint32_t>(known_[i].size());
            row.values[i] = known_[i].try_emplace(values[i], number).first->second;
        }
        rows_.push_back(row);
    }

    // A text as such a value.
    static uint64_t value(std::string_view text) { return std::hash<std::string_view>{}(text); }

    ChosenCases choose() const {
        std::vector<bool> chosen(rows_.size(), is_full());
        if (is_full()) return {.chosen = chosen};
        std::vector<bool> met(count_pairs());
        const std::vector<uint32_t> order = walk_order();
        // First those cases that bring many pairs at once: then few are needed.
        for (size_t wanted = columns * (columns - 1) / 2; wanted != 0; wanted = wanted * 2 / 3)
            for (const uint32_t number : order) {
                if (chosen[number] || new_pairs(met, rows_[number]) < wanted) continue;
                each_pair(rows_[number], [&](size_t pair) { met[pair] = true; });
                chosen[number] = true;
            }
        uint64_t nth = 0;
        for (size_t number = 0; number < chosen.size(); number++)
            if (chosen[number]) chosen[number] = nth++ % thinning() == 0;
        return {.chosen = chosen};
    }

private:
    struct Row {
        bool is_slow;
        std::array<uint32_t, columns> values;
    };

    size_t count_pairs() const {
        size_t pairs = 0;
        for (size_t a = 0; a < columns; a++)
            for (size_t b = a + 1; b < columns; b++) pairs += known_[a].size() * known_[b].size();
        return pairs;
    }

    template <class Visitor> void each_pair(const Row &row, Visitor visit) const {
        size_t before = 0;
        for (size_t a = 0; a < columns; a++)
            for (size_t b = a + 1; b < columns; b++) {
                visit(before + row.values[a] * known_[b].size() + row.values[b]);
                before += known_[a].size() * known_[b].size();
            }
    }

    size_t new_pairs(const std::vector<bool> &met, const Row &row) const {
        size_t found = 0;
        each_pair(row, [&](size_t pair) { found += !met[pair]; });
        return found;
    }

    // Without a pattern, because the table repeats values at fixed distances; slow cases last.
    std::vector<uint32_t> walk_order() const {
        std::vector<std::pair<uint64_t, uint32_t>> keyed;
        for (uint32_t number = 0; number < rows_.size(); number++)
            keyed.emplace_back(qccl::splitmix64(number) >> 1 |
                                   (rows_[number].is_slow ? uint64_t{1} << 63 : 0),
                               number);
        std::sort(keyed.begin(), keyed.end());
        std::vector<uint32_t> order;
        for (const auto &[key, number] : keyed) order.push_back(number);
        return order;
    }

    std::array<std::map<uint64_t, uint32_t>, columns> known_;
    std::vector<Row> rows_;
};

} // namespace qtest
