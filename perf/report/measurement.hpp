// One call and what was measured of it. An Operation is one collective in the terms of nccl-tests:
// the elements of each buffer for a size in bytes, the positions of in-place buffers, and the
// conversion from time to bandwidth. A sweep lists the calls that a command line selects, by types,
// sizes and roots. A Row holds the results for one case: one Operation with one codec and
// algorithm; Point fills it in and the reports print it. Used by the commands that measure,
// simulate or explain calls. Any thread; nothing blocks.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/report/part_counts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl::perf {

// ---- Statistics

// All zero if there are no values.
struct Statistics {
    double mean = 0;
    double median = 0; // for an even number of values: the mean of the middle two
    double p95 = 0;    // nearest rank, as in nccl-tests
    double p99 = 0;
    double min = 0;
    double max = 0;
    double deviation = 0; // of the whole population
};

Statistics statistics(std::span<const double> values);

// ---- One call

// What mulsum multiplies the values of a rank by.
inline constexpr uint32_t most_scalar = 3;
constexpr uint32_t scalar_of(uint32_t rank) { return 1 + rank % most_scalar; }

struct Operation {
    Collective collective = Collective::all_reduce;
    Pattern pattern = Pattern::collective;
    uint32_t group = 0; // as in PerfArguments
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint32_t ranks = 1;
    uint64_t count = 0; // the count argument of the call, of each one in a group
    Skew skew = Skew::equal;
    std::shared_ptr<const PartCounts> parts = nullptr; // of a v-form

    bool operator==(const Operation &) const = default;
    CallKind kind() const { return {collective, pattern}; }
    uint32_t calls() const { return std::max(group, 1U); }
    // Elements of one call: the most that any rank has, and those of one rank.
    uint64_t send_count() const;
    uint64_t recv_count() const; // of a rank that has a result
    uint64_t send_count(uint32_t rank) const { return parts ? parts->sent(rank) : send_count(); }
    uint64_t recv_count(uint32_t rank) const {
        return parts ? parts->received(rank) : recv_count();
    }
    // Of collectives with a part for or of each rank: the elements that `giver` has for `taker`,
    // and where they start in the giver's send buffer.
    uint64_t part_count(uint32_t giver, uint32_t taker) const {
        return parts ? parts->of(giver, taker) : count;
    }
    uint64_t part_start(uint32_t giver, uint32_t taker) const;
    // In place is impossible if the rank receives while it sends the same values, or if parts of
    // different lengths take each other's places.
    bool has_in_place() const;
    bool has_result(uint32_t rank) const;
    // The size column: bytes of the larger buffer, of all calls of a group. Each call has its part
    // of both buffers: of as many elements as it sends, and as the larger of its two buffers has.
    uint64_t bytes() const;
    uint64_t send_part() const { return send_count(); }
    uint64_t recv_part() const { return std::max(send_count(), recv_count()); }
    // In place, the rank's part starts here in the larger buffer.
    uint64_t send_in_place_start(uint32_t rank) const;
    uint64_t recv_in_place_start(uint32_t rank) const;

    double algbw(double seconds) const; // GB/s, GB = 1e9
    double busbw(double seconds) const;
};

// Returns the largest call whose buffers have at most `bytes` bytes. All-gather and reduce-scatter
// give each rank a multiple of 16 bytes, as nccl-tests does.
Operation operation_of(Collective collective, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes);
// The same of what the arguments name. Each call of a group has that size.
Operation operation_of(const PerfArguments &arguments, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes);
// Whether each rank's result has the parts of all ranks, and whether it has a part for or of every
// rank, so that the size is a multiple of the number of ranks.
bool gathers(const CallKind &kind);
bool has_part_per_rank(const CallKind &kind);
bool has_root(const CallKind &kind);

// ---- The calls of a sweep

// Returns the requested types; by default float, or the type of the input files.
std::vector<DataType> sweep_types(const PerfArguments &arguments);
std::vector<uint64_t> sweep_sizes(const PerfArguments &arguments);
std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks);
// Returns the number of points in a cycle, for ProgressListener::progress.
uint64_t sweep_points(const PerfArguments &arguments);

// ---- Results

// The shares of a call's time by the library's own counters, averaged over the ranks.
struct TimeShares {
    double encode = 0;
    double copy = 0;    // decode, reduce and copy
    double network = 0; // over sockets: time in the system's TCP
    double wait = 0;    // waiting and handing over
};

struct Measurement {
    bool is_known = true;                      // false: not measured; its columns show a dash
    std::vector<double> iterations_us;         // of the slowest rank in each iteration
    std::vector<std::vector<double>> ranks_us; // the same for every rank
    Statistics time_us; // of the rank that -a selects (by default the slowest)
    // Median time until a call returned. On a GPU's stream a call returns before it is complete.
    std::optional<double> enqueue_us;
    // Time of one call in a sequence of calls, by the mean of the slowest rank: what a program gets
    // that makes such calls in a row. A root that does not wait for the other ranks runs ahead,
    // which distorts medians.
    double sustained_us = 0;
    double shown_us = 0;           // the mean, or CPU time if requested
    std::optional<uint64_t> wrong; // nothing: not checked
    uint64_t overflowed = 0;       // results that may exceed the range of the type
    std::optional<double> nmse;
    std::optional<double> max_abs_err;
    std::optional<bool> ranks_agree;
    uint64_t wire_bytes = 0;          // the most that any rank sends in one call
    std::optional<TimeShares> shares; // of one call; nothing: the call is too small to be timed
    std::optional<double>
        ratio; // wire bytes of a lossless call on the same schedule, divided by those of this call
    std::optional<double> speedup;     // over the lossless case of this run
    std::optional<double> baseline_us; // the baseline's median
    double baseline_sustained_us = 0;  // the baseline's, as `sustained_us`
};

// Statistics of the iterations after the first `skipped` ones, which cold caches and links may have
// slowed down.
inline Statistics iteration_statistics(const Measurement &measurement, size_t skipped) {
    const std::span<const double> all = measurement.iterations_us;
    return statistics(all.subspan(std::min(skipped, all.size())));
}

// Returns whether a codec was requested by name but was not used, only because of the number of
// values.
inline bool is_unpaid(const Codec &asked, const Codec &used) {
    return !asked.is_lossless() && !asked.is_auto() && !asked.min_bytes && used.is_lossless();
}
inline std::string unpaid_note(const Codec &codec) {
    return spec(codec) + " does not pay in some sizes, or the rate between hosts is unknown: they "
                         "travel as they are; its key min=0 has them encoded all the same";
}

struct Row {
    Operation operation;
    Codec codec;      // as requested
    Codec used_codec; // used for the values

    // Like `algorithm`, shows what was used if the choice was left to the library or to rules.
    const Codec &shown_codec() const {
        return codec.is_auto() || codec.is_lossless() ? used_codec : codec;
    }

    std::string algorithm; // the one that ran, also if "auto" was requested
    std::string transport;
    std::vector<std::string> devices; // one for each rank
    std::string baseline;             // its name; empty: no baseline
    std::optional<double> nmse_predicted;
    Measurement out_of_place;
    Measurement in_place;
};

} // namespace qccl::perf
