// Creates a context of UCX from a network's settings. Used by the UCX module when it opens an end
// of the network.
#pragma once

#include "transport/network_module.hpp"

#include <cstddef>

#include <ucp/api/ucp.h>

namespace qccl {

// Writes "what: " and UCX's text for the status into `error`. Returns false.
bool refuse(char *error, size_t error_bytes, const char *what, ucs_status_t status);

// Creates `context`. None of its transports shares memory, it handles no signals, and it prints
// nothing unless UCX_LOG_LEVEL is set. On failure, returns false and writes the reason into
// `error`.
bool open_ucx(const NetworkSettings &settings, ucp_context_h &context, char *error,
              size_t error_bytes);

} // namespace qccl
