// What this rank has to say where ranks agree.
#pragma once

#include "api/agreement.hpp"
#include "api/wishes.hpp"
#include "kernels/kernels.hpp"

#include <string>

namespace qccl {

// `host`: its identity. Warnings and calibration are the caller's to add.
Agreement agreement_of(const CommWishes &wishes, const Settings &settings, const CallPolicy &policy,
                       const std::string &host, Tier tier);

} // namespace qccl
