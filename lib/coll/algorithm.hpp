// The algorithms: a table of names, of functions that write schedules, and of what is known of
// these without writing them. Knows no sizes, no codecs and no links; what an algorithm costs is
// the planner's business.
#pragma once

#include "base/choice.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"
#include "schedule/sum_order.hpp"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// What may be chosen about an algorithm, in words; the first is what the bare name means.
struct AlgorithmKey {
    std::string_view name;
    std::span<const std::string_view> words;
};

// Of each key of an algorithm, in the order of its row, the number of the word.
using Choices = std::array<uint8_t, 4>;

using Emit = Schedule (*)(const Team &team, const Choices &choices);

struct AlgorithmRow {
    std::string_view name;
    std::span<const AlgorithmKey> keys;
    SumOrder (*order)(Collective collective, const Team &team, const Choices &choices,
                      uint32_t chunk);
    std::array<Emit, 5> emitters; // by Collective; nullptr where there is no such schedule

    // As verify counts them, for teams of any size: messages that wait for one another, and the
    // predicted NMSE of the results in units of one encode's. They are the same on all ranks.
    uint32_t (*rounds)(Collective collective, const Team &team, const Choices &choices);
    double (*noise)(Collective collective, const Team &team, const Choices &choices);
    // What is made below the outermost tier, which may have a codec of its own, beside it.
    // nullptr: there is one tier.
    double (*inner_noise)(Collective collective, const Team &team,
                          const Choices &choices) = nullptr;
    // Of the rounds those between hosts. nullptr: as many of them as of the messages.
    uint32_t (*outer_rounds)(Collective collective, const Team &team,
                             const Choices &choices) = nullptr;

    // Of lines, each of which carries what is there on every rank before it: that many carry all
    // that it sends, of a broadcast only if it is one. 0: it cannot be done so.
    uint32_t exchanges = 0;
    OwnInput own = OwnInput::exact;
    // Sums travel before they are complete, so that among three or more ranks a lossless one is
    // rounded to the type on its way.
    bool sums_on_the_way = false;
};

// A row and what was chosen. A small value; equal ones write equal schedules. The empty one is
// none.
class Algorithm {
public:
    constexpr Algorithm() = default;
    constexpr explicit Algorithm(const AlgorithmRow &row, const Choices &choices = {})
        : row_(&row), choices_(choices) {}

    explicit operator bool() const { return row_ != nullptr; }
    bool operator==(const Algorithm &) const = default;

    std::string_view name() const { return row_->name; }
    const AlgorithmRow &row() const { return *row_; }
    const Choices &choices() const { return choices_; }
    bool has(Collective collective) const {
        return row_->emitters[static_cast<size_t>(collective)] != nullptr;
    }
    bool is_one_exchange() const { return row_->exchanges == 1; }
    // Whether so many exchanges of lines can carry it.
    bool fits_exchanges(Collective collective, uint32_t most) const {
        return is_one_exchange() || (row_->exchanges != 0 && row_->exchanges <= most &&
                                     collective != Collective::broadcast);
    }
    OwnInput own() const { return row_->own; }
    bool sums_on_the_way() const { return row_->sums_on_the_way; }
    uint32_t rounds(Collective collective, const Team &team) const {
        return row_->rounds(collective, team, choices_);
    }
    double noise(Collective collective, const Team &team) const {
        return row_->noise(collective, team, choices_);
    }
    double inner_noise(Collective collective, const Team &team) const {
        return row_->inner_noise ? row_->inner_noise(collective, team, choices_) : 0;
    }
    // What was chosen for the key; empty where there is none of that name.
    std::string_view word(std::string_view key) const;
    // For any rank's team.
    OrderOf order(const Team &team) const;

private:
    const AlgorithmRow *row_ = nullptr;
    Choices choices_ = {};
};

std::span<const AlgorithmRow> algorithm_table();
// Those that the planner chooses from for every team, in the table's order.
std::span<const Algorithm> algorithms();
// Those of them for such a team, and others that are none of these on it alone.
std::vector<Algorithm> algorithms_for(const Team &team);
// Refuses a collective that the algorithm does not have.
Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team);

// "tree:shape=double": the name and, of the keys, those that are not as the bare name has them.
std::string spec(const Algorithm &algorithm);
// `who` wants it, and is named where the text is refused. `besides`: names that the caller takes
// and has found not to be asked for.
Result<Algorithm> parse_algorithm(std::string_view text, std::string_view who = "algorithm",
                                  const Names &besides = {});

} // namespace qccl
