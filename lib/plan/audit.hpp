// The findings of QCCL_AUDIT: what samples of a job's calls show about each audited codec, and what
// follows for the error of results and, by the planner's figures, for the time of calls.
// api/call_audit.hpp takes the samples and uses this file. Pure; one thread at a time, nothing
// blocks.
#pragma once

#include "codec/sampled_loss.hpp"
#include "plan/sampled_error.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace qccl {

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
    double nmse = 0, worst = 0;     // of the result: over all samples, and of the worst one
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
