// How the ranks of a communicator find each other before there is a transport. Communicator
// creation needs a single operation, an all-gather; `bootstrap` implements it in several ways
// (bootstrap/bootstraps.hpp). One thread at a time may use a Bootstrap; all_gather() blocks.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace qccl {

class Bootstrap {
public:
    virtual ~Bootstrap() = default;

    virtual uint32_t rank() const = 0;
    virtual uint32_t size() const = 0;
    // Returns how the ranks meet, for the log: "unique id, rendezvous at 127.0.0.1:4711".
    virtual std::string means() const = 0;
    // Each rank contributes `bytes` bytes, the same number on every rank, and receives size() *
    // bytes bytes in rank order. The timeout that the bootstrap was made with bounds each call (0:
    // no limit). An error names the missing rank if it is known, and is final.
    virtual Done all_gather(const void *mine, void *all, size_t bytes) = 0;
    // Returns an error if some rank is known to join no further all-gather. Call it between
    // all-gathers.
    virtual Done check() { return {}; }
};

} // namespace qccl
