// Compares names by the Levenshtein distance.
#include "base/spell_suggest.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

// Returns the Levenshtein distance: the least number of insertions, deletions and substitutions.
static size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); j++) {
            const size_t substituted = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

std::optional<std::string_view> nearest(std::string_view text, const Names &names,
                                        size_t most_edits) {
    std::optional<std::string_view> best;
    size_t fewest = most_edits;
    for (const std::string_view name : names) {
        const size_t edits = edit_distance(text, name);
        if (best ? edits >= fewest : edits > fewest) continue;
        best = name;
        fewest = edits;
    }
    return best;
}

} // namespace qccl
