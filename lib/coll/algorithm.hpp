// The algorithms: a table of their names, of the functions that write their schedules, and of
// properties that are known without writing a schedule. The planner predicts costs from these;
// sizes, codecs and links enter only there. Pure; any thread may call.
#pragma once

#include "base/result.hpp"
#include "base/text.hpp"
#include "base/types.hpp"
#include "schedule/noise_moments.hpp"
#include "schedule/schedule.hpp"

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// A parameter of an algorithm and its possible values, in words; the first is the default.
struct AlgorithmKey {
    std::string_view name;
    std::span<const std::string_view> words;
};

// The index of the chosen word of each key, in the order of the keys in the algorithm's row.
using Choices = std::array<uint8_t, 4>;

using Emit = Schedule (*)(const Team &team, const Choices &choices);

// What writes an algorithm's schedules of each collective; nullptr where there are none. A v-form
// whose counts all ranks know has those of its collective. The others have them only if every rank
// sends parts of its own alone, because a rank does not know the other counts.
using Emitters = std::array<Emit, collective_table.size()>;
struct CollectiveEmitter {
    Collective collective;
    Emit emit;
};
constexpr Emitters by_collective(std::initializer_list<CollectiveEmitter> all) {
    Emitters emitters{};
    for (const CollectiveEmitter &each : all)
        emitters[static_cast<size_t>(each.collective)] = each.emit;
    return emitters;
}

struct AlgorithmRow {
    std::string_view name;
    std::span<const AlgorithmKey> keys;
    SumOrder (*order)(Collective collective, const Team &team, const Choices &choices,
                      uint32_t chunk);
    Emitters emitters;

    // Properties of the schedule as verify counts them, for teams of any size; equal on all ranks.
    // rounds: the longest chain of messages that wait for one another. noise: what the encodes on
    // the way to a result have encoded of it, on average.
    uint32_t (*rounds)(Collective collective, const Team &team, const Choices &choices);
    NoiseMoments (*noise)(Collective collective, const Team &team, const Choices &choices);
    // The additional noise of encodes below the outermost tier, which may have a codec of its own.
    // nullptr: there is only one tier.
    NoiseMoments (*inner_noise)(Collective collective, const Team &team,
                                const Choices &choices) = nullptr;
    // The number of rounds between hosts. nullptr: the same share of the rounds as of the messages.
    uint32_t (*outer_rounds)(Collective collective, const Team &team,
                             const Choices &choices) = nullptr;

    // Number of eager exchanges needed (1 or 2), each of which carries what every rank has before
    // it; 0: not supported. A collective with a root is supported only if the number is 1.
    uint32_t exchanges = 0;
    OwnInput own = OwnInput::exact;
    // Partial sums travel, so that a lossless sum of three or more ranks is rounded to the type on
    // its way.
    bool sums_on_the_way = false;
};

// A row of the table and the choices for its keys. A small value; equal algorithms write equal
// schedules. An algorithm without a row is none.
class Algorithm {
public:
    constexpr Algorithm() = default;
    constexpr explicit Algorithm(const AlgorithmRow &row, const Choices &choices = {})
        : row_(&row), choices_(choices) {}

    explicit operator bool() const { return row_ != nullptr; }
    bool operator==(const Algorithm &) const = default;

    std::string_view name() const { return row_->name; }
    constexpr const AlgorithmRow &row() const { return *row_; }
    const Choices &choices() const { return choices_; }
    Emit emitter(Collective collective) const;
    bool has(Collective collective) const { return emitter(collective) != nullptr; }
    bool is_one_exchange() const { return row_->exchanges == 1; }
    // Whether at most `most` eager exchanges can carry the collective. A rank alone exchanges
    // nothing.
    bool fits_exchanges(Collective collective, uint32_t ranks, uint32_t most) const {
        return ranks == 1 || is_one_exchange() ||
               (row_->exchanges != 0 && row_->exchanges <= most && !row_of(collective).has_root);
    }
    OwnInput own() const { return row_->own; }
    bool sums_on_the_way() const { return row_->sums_on_the_way; }
    uint32_t rounds(Collective collective, const Team &team) const {
        return row_->rounds(collective, team, choices_);
    }
    // `owner`: of a collective with owners, what they keep.
    NoiseMoments noise(Collective collective, const Team &team,
                       OwnerKeeps owner = OwnerKeeps::decoded) const;
    NoiseMoments inner_noise(Collective collective, const Team &team) const {
        return row_->inner_noise ? row_->inner_noise(collective, team, choices_) : NoiseMoments();
    }
    // Returns the word that was chosen for `key`; empty if there is no such key.
    std::string_view word(std::string_view key) const;
    // Returns the order of summation; `team` may be any rank's team.
    OrderOf order(const Team &team) const;
    // Whether each chunk is summed from the left, in the order of the ranks. verify() also accepts
    // swapped operands of sums with other brackets.
    bool keeps_rank_order(Collective collective, const Team &team) const;

private:
    const AlgorithmRow *row_ = nullptr;
    Choices choices_ = {};
};

std::span<const AlgorithmRow> algorithm_table();
// Returns the algorithms that the planner considers for every team, in the table's order.
std::span<const Algorithm> algorithms();
// Returns algorithms() and those that exist only for some teams: the ring over all rings of the
// team's topology.
std::vector<Algorithm> algorithms_for(const Team &team);
// Writes the schedule of the team's rank. Returns invalid_argument if the algorithm does not have
// the collective or the team's rank or root does not exist.
Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team);

// Returns the name and the keys that differ from their defaults: "tree:shape=double".
std::string spec(const Algorithm &algorithm);
// Parses an algorithm's spec. `who` names the origin of the text in errors (invalid_argument).
// `besides`: names that the caller accepts besides algorithms; the error lists them as possible.
Result<Algorithm> parse_algorithm(std::string_view text, std::string_view who = "algorithm",
                                  const Names &besides = {});

} // namespace qccl
