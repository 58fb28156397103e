// What samples of calls show about the error of their results. The error of a result is estimated
// from samples of one rank's values and of the result in two ways: expected_nmse() says how far the
// result will probably be off, and estimated_nmse() is cautious, for callers who must not lose more
// than they allow.
//
// GuardState decides when calls with a guard go lossless, and when they use their codec again.
// Every rank notes the same errors of the same calls, so all ranks decide alike.
//
// Audits are the findings of QCCL_AUDIT: what samples of a job's calls show about each audited
// codec, and what follows for the error of results and, by the planner's figures, for the time of
// calls.
//
// Used by the guards and audits of communicators, which take the samples. Pure; one thread at a
// time for each object, nothing blocks.
#pragma once

#include "codec/error_model.hpp"
#include "plan/planner.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- Estimates

// How often a plan encodes values on their way, and with which codecs.
struct EncodeCounts {
    Codec codec, inner_codec;
    NoiseMoments encodes = {}, inner_encodes = {};
    double summands = 1;
    // How many of `encodes` are of the complete result; depends on the collective. Nothing: there
    // is no part of the vector that one rank sums and adds its own values to without encoding them.
    std::optional<double> result_encodes = {};

    bool loses() const;
};
EncodeCounts encode_counts(const Plan &plan, Collective collective);

// What samples of one call, or of many, show. Losses are those of one encode.
struct SampledValues {
    Loss loss, inner_loss;
    // How many times stronger a sum of independent values like this rank's would be than the result
    // is. Above 1, ranks cancel each other out, so that errors weigh more.
    double cancellation = 1;
};

// Estimates the NMSE of the result so that it is not too low; guards and the audit's worst samples
// use it. Each encode loses what one loses in the samples, composed as in predicted_nmse(). Ranks
// that resemble each other make the result stronger, and their errors too if the errors resemble
// each other as much. The estimate assumes that they do, so that it is not too low for such data.
// The estimate also assumes that the other ranks' values are about as large as this rank's.
double estimated_nmse(const EncodeCounts &counts, const SampledValues &values);

// What samples of many calls show about the sums, or what whole vectors show. Losses are those of
// one encode: of the ranks' values, and of the results.
struct SumStatistics {
    Loss input, result;
    Loss inner_input = {}, inner_result = {}; // with the inner tiers' codec
    // The ranks' mean squares together in units of the result's: 1 for independent ranks, 1 / ranks
    // for equal ones, more than 1 for ranks that cancel each other out.
    double power_ratio = 1;
    // The part of the ranks' squares that no rank encodes before the sum: those of each rank in the
    // parts of the vector that it sums itself. By `direct` these are part r of rank r, and by
    // `tree` everything that the root has. Nothing: 1 / ranks, that of ranks and parts that are
    // equally strong.
    std::optional<double> own_share = {};
};

// Returns the NMSE that is expected of the result. The estimate assumes that the ranks' values are
// equally large, but for those of `own_share`, of which a rank encodes nothing: the more of
// the squares the ranks sum themselves, the smaller are the sums that they encode. The estimate
// also assumes that any two ranks resemble each other as much as any other two. Then `power_ratio`
// says how large every partial sum is, and its encode loses that part of what one encode loses: as
// one of inputs does if it holds one contribution, as one of results does if it holds all. Equal
// ranks lose what one encode loses, since they round alike. The estimate is meant to be within 15 %
// of the error. It is too high, in rings by half and more, where a sum is hardly rounded anew at
// each rank: of 16 ranks and more that resemble each other closely, and of ranks whose large values
// lie in different places.
double expected_nmse(const EncodeCounts &counts, const SumStatistics &statistics);

// Returns SumStatistics::power_ratio from the sums of squares of this rank's values and of the
// result at the same places; 1 if `own` is 0.
double power_ratio_of(double own, double result, double summands);

// Returns SampledValues::cancellation. `own` is the sum of squares of this rank's values; for 0 the
// function returns 1. `result` is the sum of squares of the result at the same places.
double cancellation_of(double own, double result, double summands);

// Returns the one that loses more.
Loss greater(const Loss &a, const Loss &b);

// ---- Guards

// The state of calls of one shape and tag.
class GuardState {
public:
    enum class Change : uint8_t { none, falls_back, returns };

    // Notes a call of which samples were taken, and returns what changes for later calls. `nmse` is
    // the largest error that a rank has estimated for the codec, whether or not the call used it.
    // `budget`: the largest error that the guard allows. An error of 0, which samples of zeros
    // alone show, is no evidence that a codec is safe.
    Change note(double nmse, double budget);

    bool is_lossless() const { return is_lossless_; }
    double latest() const { return latest_; } // NMSE
    // Returns how many samples in a row have to stay within half of the budget before the codec
    // returns. The number doubles each time that calls go lossless, up to `most_to_return`.
    uint32_t samples_to_return() const { return to_return_; }

    static constexpr uint32_t fewest_to_return = 16, most_to_return = 1024;

private:
    bool is_lossless_ = false;
    double latest_ = 0;
    uint32_t to_return_ = fewest_to_return / 2, good_ = 0;
};

// ---- Audits

// Calls that are audited together: one tag, and the same arguments.
struct AuditedShape {
    uint64_t tag = 0;
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;

    auto operator<=>(const AuditedShape &) const = default;
    // Returns whether a codec other than a cast can encode such a call.
    bool is_encodable() const;
};

// What samples show about one codec.
struct AuditTally {
    SampledLoss input, result;
    // The sample with the largest error.
    Loss worst;
    double worst_cancellation = 1;
};

// Counts and sampled losses of the calls of one shape.
struct AuditEntry {
    uint64_t calls = 0, samples = 0;
    double own_square = 0, sum_square = 0; // sums of squares at the same places; reductions only
    std::vector<AuditTally> by_codec;      // by codec

    // Adds the samples of one call; `input` and `result` have an element for each codec. `result`
    // is empty if the call does not reduce. `ranks` counts the summands; `divides`: the result is a
    // mean.
    void add_sample(std::span<const SampledLoss> input, std::span<const SampledLoss> result,
                    double ranks, bool divides);
};

struct AuditFinding {
    double bits = 0;                // per value on the wire
    double nmse = 0;                // of the result, as expected of all samples together
    double worst = 0;               // of the worst sample, cautiously
    double lossless_ns = 0, ns = 0; // of a call, predicted
    std::string algorithm;          // that the planner chooses with the codec
};

// The audit's findings about the calls of one shape, made when a communicator ends.
struct AuditRow {
    std::string comm; // the communicator's name, or how it was created, and its number of ranks
    AuditedShape shape;
    uint64_t calls = 0, samples = 0;
    uint64_t bytes = 0;              // of a call's vector
    double guessed_bytes_per_ns = 0; // assumed between hosts; 0: the rate is known
    bool has_hosts = false;          // false: memory is the bottleneck, which codecs hardly relieve
    std::vector<AuditFinding> findings; // by codec
};

// Evaluates an entry with the communicator's planner. `usual` has the ranks and their places;
// `forced`: as in choose(). Returns the errors of choose().
Result<AuditRow> audit_row(const AuditedShape &shape, const AuditEntry &entry,
                           std::span<const Codec> codecs, const Problem &usual,
                           const PlannerInputs &inputs, const Algorithm &forced);

// Adds `row` to `into`, which is the same shape in a communicator that was created alike: calls are
// added up, mean errors are weighted by the number of samples, and the worst error stays.
void merge(AuditRow &into, const AuditRow &row);

struct AuditHead {
    uint32_t rank = 0, ranks = 1; // of the first communicator
    int64_t pid = 0;
    std::string host{}, library{};
    std::vector<Codec> codecs{};
    uint64_t other_calls = 0; // calls that no codec applies to, or that the table had no space for
};

// Returns a line for each tag and codec, and which codecs are safe up to which error.
std::string audit_table(const AuditHead &head, std::span<const AuditRow> rows);
// Returns all rows as JSON; the member "qccl_audit" is the version of the format.
std::string audit_json(const AuditHead &head, std::span<const AuditRow> rows);

} // namespace qccl
