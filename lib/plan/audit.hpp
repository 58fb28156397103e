// What codecs would make of a job's calls: what samples of the calls have shown, and what follows
// from it for the error and, by the planner's figures, for the time. Pure: samples are taken
// elsewhere (api/call_audit.hpp); one thread at a time.
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

struct AuditedShape {
    uint64_t tag = 0;
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;

    auto operator<=>(const AuditedShape &) const = default;
    // Whether a codec other than a cast can have it.
    bool is_encodable() const;
};

// Of one codec.
struct AuditTally {
    SampledLoss input, result;
    // Of the sample that was worst.
    Loss worst;
    double worst_cancellation = 1;
};

// Calls of one shape.
struct AuditEntry {
    uint64_t calls = 0, samples = 0;
    double own_square = 0, sum_square = 0; // squares at the same places; of sums
    std::vector<AuditTally> tallies;       // by codec

    // One call's, of each codec. `result` is empty where nothing is summed.
    void add_sample(std::span<const SampledLoss> input, std::span<const SampledLoss> result,
                    double ranks, bool divides);
};

struct AuditFinding {
    double bits = 0;                // of a value on the wire
    double nmse = 0, worst = 0;     // of the result, by all samples and by the worst
    double lossless_ns = 0, ns = 0; // of a call, predicted
    std::string algorithm;          // by which it would go
};

// What is known of calls of one shape when a communicator ends.
struct AuditRow {
    std::string comm; // name, or how it was made, and ranks
    AuditedShape shape;
    uint64_t calls = 0, samples = 0;
    uint64_t bytes = 0;                 // of a call's vector
    double guessed_bytes_per_ns = 0;    // between hosts, where the rate is unknown; 0: it is known
    bool has_hosts = false;             // else memory is the bound, of which codecs save little
    std::vector<AuditFinding> findings; // by codec
};

// By the planner of the communicator, whose ranks and their places `usual` has; `forced` as in
// choose.
Result<AuditRow> audit_row(const AuditedShape &shape, const AuditEntry &entry,
                           std::span<const Codec> codecs, const Problem &usual,
                           const Tables &tables, const Algorithm &forced);

// The same shape of communicators that were made alike: calls are added up, samples count by their
// number, and the worst stays.
void merge(AuditRow &into, const AuditRow &row);

struct AuditHead {
    uint32_t rank = 0, ranks = 1; // of the first communicator
    int64_t pid = 0;
    std::string host{}, library{};
    std::vector<Codec> codecs{};
    uint64_t other_calls = 0; // that no codec is for, or that found no room
};

// A line for each tag and codec, and which codecs are safe under which error.
std::string audit_table(const AuditHead &head, std::span<const AuditRow> rows);
// All rows; "qccl_audit" is the version.
std::string audit_json(const AuditHead &head, std::span<const AuditRow> rows);

} // namespace qccl
