// What was found out about one case: one collective of one size with one codec and algorithm. Plain
// data; those who print it know its meaning.
#pragma once

#include "codec/codec.hpp"
#include "perf/operation.hpp"
#include "perf/statistics.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl::perf {

// Of the time of a call, as the library's own counters have it, on average over the ranks.
struct TimeShares {
    double encode = 0;
    double copy = 0;    // decode, reduce and copy
    double network = 0; // over sockets the system's TCP
    double wait = 0;    // and handing over
};

struct Measurement {
    bool is_known = true;                      // false: there is none, and columns have a dash
    std::vector<double> iterations_us;         // of the rank that took longest in each
    std::vector<std::vector<double>> ranks_us; // the same of every rank
    Statistics time_us; // of the rank that is asked for (usually the slowest)
    // Of a call, the median: until it returned, which it does before it is done on a GPU's stream.
    std::optional<double> enqueue_us;
    // Of one of the calls in a row, by the mean of the rank that needed longest: what a program
    // gets that makes them so. A root that waits for nobody runs ahead, which distorts medians.
    double sustained_us = 0;
    double shown_us = 0;           // the mean, or CPU time where that is asked for
    std::optional<uint64_t> wrong; // nothing: not checked
    uint64_t overflowed = 0;       // results that may be beyond what the type holds
    std::optional<double> nmse;
    std::optional<double> max_abs_err;
    std::optional<bool> ranks_agree;
    uint64_t wire_bytes = 0;          // the most that a rank sends in one call
    std::optional<TimeShares> shares; // of one call; nothing: it is too small to be timed
    std::optional<double>
        ratio; // of a lossless call on the same schedule to this one, in wire bytes
    std::optional<double> speedup;     // over the lossless case of this run
    std::optional<double> baseline_us; // the median
};

// Of the iterations behind the first few, which caches and links may have slowed down.
inline Statistics iteration_statistics(const Measurement &measurement, size_t skipped) {
    const std::span<const double> all = measurement.iterations_us;
    return statistics(all.subspan(std::min(skipped, all.size())));
}

// Whether values were to travel with a codec and have not, for their number alone.
inline bool is_unpaid(const Codec &asked, const Codec &used) {
    return !asked.is_lossless() && !asked.is_auto() && !asked.min_bytes && used.is_lossless();
}
inline std::string unpaid_note(const Codec &codec) {
    return spec(codec) + " does not pay in some sizes, or the rate between hosts is unknown: they "
                         "travel as they are; its key min=0 has them encoded all the same";
}

struct Row {
    Operation operation;
    Codec codec;      // as it was asked for
    Codec used_codec; // that values travelled with

    // As for algorithms, the one that ran where it was left to the library, or to rules.
    const Codec &shown_codec() const {
        return codec.is_auto() || codec.is_lossless() ? used_codec : codec;
    }

    std::string algorithm; // that ran, where "auto" was asked for too
    std::string transport;
    std::vector<std::string> devices; // one for each rank
    std::string baseline;             // its name; empty without one
    std::optional<double> nmse_predicted;
    Measurement out_of_place;
    Measurement in_place;
};

} // namespace qccl::perf
