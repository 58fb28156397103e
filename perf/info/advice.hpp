// Advises which codec to use for given data on a given network. Rehearsals of the sum measure the
// errors; the planner predicts the times. Used by qccl-info advise and the demonstration. Prints
// nothing. Any thread may call; a call blocks while it computes.
//
// The lists of a job's tensors come from files that the user supplies; qccl-info plan reads them
// (tensor_list.cpp).
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/info/rehearsal.hpp"
#include "perf/run/input_data.hpp"
#include "plan/planner.hpp"
#include "plan/tensor_plan.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl::perf {

// ---- Advice

// Measures the error of sums of the same data. Each combination of algorithm and codecs is measured
// once.
class ErrorMeter {
public:
    // `problem` is the sum in question; its codec is ignored. `data` and the problem's places must
    // outlive the meter.
    ErrorMeter(const Source &data, const Problem &problem) : data_(data), problem_(problem) {}

    const Problem &problem() const { return problem_; }
    // Returns the normalized mean squared error of the sum by the plan, or nothing if the error is
    // undefined for these data (see rehearsed_nmse).
    Result<std::optional<double>> nmse(const Plan &plan);

private:
    const Source &data_;
    const Problem problem_;
    std::map<std::string, std::optional<double>> known_; // by algorithm and codecs
};

// A codec tried on the data, used as the library would use it if QCCL_CODEC named it.
struct CodecTrial {
    Codec codec = {};
    Plan plan = {};
    double bits = 0; // bits of a value on the wire
    double nmse = 0; // measured
};

// The advice for one error budget.
struct BudgetAdvice {
    enum class Outcome : uint8_t {
        codec,   // use the trial's codec
        no_link, // no slow link is known that a codec would relieve: all ranks are on one host
        no_gain, // codecs keep the budget, but none makes the call least_gain times as fast
        missed,  // no codec keeps the budget
    };
    double nmse = 0; // the budget: the largest error allowed
    Outcome outcome = Outcome::missed;
    // The fastest trial that keeps the budget; among trials within equal_time of the fastest, the
    // one with the least error. If no trial keeps the budget, the one with the least error.
    const CodecTrial *trial = nullptr;
};

struct Advice {
    Plan lossless;
    std::vector<CodecTrial> trials; // sorted by bits
    bool has_known_link = false;    // the rate between hosts is known
};

// Tries every codec that auto chooses from and that takes fewer bits than the plain values, on the
// network that `inputs` describes. Fails with invalid_argument if no error can be measured.
Result<Advice> try_codecs(ErrorMeter &meter, const PlannerInputs &inputs);

// The error budget used when the user names none; most trainings tolerate it.
inline constexpr double usual_nmse = 1e-3;

// Returns the advice for a budget. `advice` must outlive the result.
BudgetAdvice advise(const Advice &advice, double nmse);

// Returns the advice as one or two sentences.
std::string sentence_of(const Advice &advice, const BudgetAdvice &chosen);

// Returns the predicted speed-up of the trial over the lossless plan.
double gain(const Advice &advice, const CodecTrial &trial);

// ---- Lists of tensors

// Reads the list that `where` names:
// - a folder: each .npy file in it is a tensor with the name of the file;
// - a pattern of such files, "DIR/*.npy", in which %r means rank 0;
// - a text file ("-": standard input): one tensor per line with name, count and, unless it is
//   float, type, separated by blanks or commas; '#' begins a comment;
// - a JSON file: an array of objects with name, count or shape, and type ("float"), or an object
//   whose `tensors` is such an array.
// Returns the tensors in the order of the file or of the file names. The error (invalid_argument)
// names the file and what is wrong with it.
Result<std::vector<NamedTensor>> read_tensors(const std::string &where);

// Parses the content of a text or JSON file. Trusts none of the bytes.
Result<std::vector<NamedTensor>> parse_tensors(std::string_view text);

} // namespace qccl::perf
