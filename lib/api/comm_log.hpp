// The log of a communicator: where its settings and its creator want it. Called by creation.
#pragma once

#include "api/wishes.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"

#include <memory>

namespace qccl {

// As both say; the callback's context is kept as long as the log.
Result<std::shared_ptr<const Log>> create_log(const CommWishes &wishes, const Settings &settings,
                                              uint32_t rank);

} // namespace qccl
