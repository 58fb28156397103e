// UCX's context as a network's settings want it. Knows neither workers nor messages.
#pragma once

#include "transport/network_module.hpp"

#include <cstddef>

#include <ucp/api/ucp.h>

namespace qccl {

// Writes "what: UCX's word for the status" and returns false.
bool refuse(char *error, size_t error_bytes, const char *what, ucs_status_t status);

// None of its transports shares memory, it takes no signals, and it is silent unless UCX_LOG_LEVEL
// says otherwise. False: `error` holds the reason.
bool open_ucx(const NetworkSettings &settings, ucp_context_h &context, char *error,
              size_t error_bytes);

} // namespace qccl
