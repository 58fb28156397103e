// Asks the library how it would perform a call, as far as a benchmark shows it. Used by Point. A
// call does not communicate.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "perf/operation.hpp"

#include <qccl/qccl.h>

#include <optional>
#include <string>

namespace qccl::perf {

struct PlanInfo {
    std::string algorithm;
    std::string transport;
    Codec codec; // the codec that values travel with, which differs from the requested one if the
                 // planner chooses
    std::optional<double>
        nmse_predicted; // nothing for integers, and for operations other than sums
};

// `algorithm` is empty if the library chooses.
Result<PlanInfo> plan_of(qcclComm_t comm, const Operation &operation, const Codec &codec,
                         const std::string &algorithm);

} // namespace qccl::perf
