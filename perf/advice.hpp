// Which codec to use for data at hand on a network: errors are measured by rehearsals of the sum,
// times are the planner's. qccl-info advise and the demonstration ask it. Prints nothing; blocks
// for as long as it computes; any thread.
#pragma once

#include "base/result.hpp"
#include "perf/datagen.hpp"
#include "plan/planner.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl::perf {

// Measures what sums of the same data lose, each way once.
class ErrorMeter {
public:
    // The sum that is asked about; its codec is not looked at. `data` and the problem's places
    // outlive the meter.
    ErrorMeter(const Source &data, const Problem &problem) : data_(data), problem_(problem) {}

    const Problem &problem() const { return problem_; }
    // Of the sum by the plan. Nothing where the data have no error, see rehearsed_nmse.
    Result<std::optional<double>> nmse(const Plan &plan);

private:
    const Source &data_;
    const Problem problem_;
    std::map<std::string, std::optional<double>> known_; // by algorithm and codecs
};

// A codec on the data: as the library would use it where QCCL_CODEC names it.
struct CodecTrial {
    Codec codec = {};
    Plan plan = {};
    double bits = 0; // of a value on the wire
    double nmse = 0; // measured
};

// What a budget leads to.
struct BudgetAdvice {
    enum class Outcome : uint8_t {
        codec,   // the trial's
        no_link, // no slow link is known that a codec would relieve: all ranks are on one host
        no_gain, // codecs keep the budget, and none makes the call least_gain times as fast
        missed,  // no codec keeps the budget
    };
    double nmse = 0; // at most
    Outcome outcome = Outcome::missed;
    // The fastest that keeps the budget, and of those as fast within equal_time the one that loses
    // least; of a missed budget the one that loses least.
    const CodecTrial *trial = nullptr;
};

struct Advice {
    Plan lossless;
    std::vector<CodecTrial> trials; // by bits
    bool has_known_link = false;    // between hosts
};

// Tries every codec that auto chooses from and that takes fewer bits than the values, on the
// network that the tables describe. Fails (invalid_argument) where nothing can be measured.
Result<Advice> try_codecs(ErrorMeter &meter, const Tables &tables);

// The error that is asked for where none is named; most trainings bear it.
inline constexpr double usual_nmse = 1e-3;

// `advice` outlives what is returned.
BudgetAdvice advise(const Advice &advice, double nmse);

// The advice in a sentence or two.
std::string sentence_of(const Advice &advice, const BudgetAdvice &chosen);

// How many times as fast as values as they are.
double gain(const Advice &advice, const CodecTrial &trial);

} // namespace qccl::perf
