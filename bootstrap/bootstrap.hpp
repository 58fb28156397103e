// How ranks find each other before there is a transport: one all-gather is all that creation asks
// for. Knows no transports, no devices and no communicators.
#pragma once

#include "base/result.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qccl {

class Bootstrap {
public:
    virtual ~Bootstrap() = default;

    virtual uint32_t rank() const = 0;
    virtual uint32_t size() const = 0;
    // Every rank gives `bytes` bytes, the same number everywhere, and gets size() times as many, in
    // rank order. Each call is bounded by the timeout the bootstrap was made with (0: for ever); an
    // error names the rank that did not come where that is known, and is final.
    virtual Done all_gather(const void *mine, void *all, size_t bytes) = 0;
    // An error if a rank is known to come to no all-gather any more. Between all-gathers.
    virtual Done check() { return {}; }
};

using Clock = std::chrono::steady_clock;
using Warn = std::function<void(const char *sentence)>;

// local: the ranks are threads of this process. One object for each rank.
std::vector<std::unique_ptr<Bootstrap>> create_local_bootstraps(uint32_t size,
                                                                std::chrono::nanoseconds timeout);

// oob: the caller's own all-gather; returns 0 on success, as qcclOob_t documents.
using AllGatherFunction = int (*)(const void *mine, void *all, size_t bytes, void *context);
std::unique_ptr<Bootstrap> create_oob_bootstrap(uint32_t size, uint32_t rank,
                                                AllGatherFunction all_gather, void *context);

// unique_id: a TCP rendezvous. The id carries the address of the process that made it and a secret;
// who cannot prove the secret with a keyed hash is turned away without disturbing anyone.
inline constexpr size_t unique_id_bytes = 128;
using UniqueId = std::array<std::byte, unique_id_bytes>;

struct RendezvousOptions {
    std::string interface; // where to listen, as choose_endpoints() has it; empty: on all
    std::chrono::nanoseconds timeout{std::chrono::seconds(1800)};
    std::chrono::nanoseconds warn_after{std::chrono::seconds(5)};
    // For so long after a rendezvous has failed, or by a launcher's variables is complete, its
    // server tells who comes late what became of it.
    std::chrono::nanoseconds linger{std::chrono::seconds(10)};
    // Gets one sentence about late ranks, on one of the ranks that wait for them; one on each rank
    // that does not get in; and on rank 0, by a launcher's variables and from another thread, one
    // about a process that has another secret.
    Warn warn;
};

// Starts to serve the rendezvous in the background of this process; it ends by itself once every
// rank has left, or when ranks stay away for `timeout`. Uses neither warn_after nor warn.
Result<UniqueId> create_unique_id(const RendezvousOptions &options);
// Blocks until every rank has joined. Refuses an id of another version, a rank or size that does
// not fit, and a rank that another peer already holds: every rank that waits learns it at once, so
// do not refuse such a rank before it gets here. Uses no interface.
Result<std::unique_ptr<Bootstrap>> join_unique_id(const UniqueId &id, uint32_t size, uint32_t rank,
                                                  const RendezvousOptions &options);

// environment: rank, size and meeting place as a launcher's variables say (launcher.hpp has the
// table). Rank 0 serves the rendezvous; ranks may come in any order, and come again, together, for
// the next communicator. Who may join is whoever knows what the variables say, or holds the secret.
struct EnvironmentOptions {
    RendezvousOptions rendezvous;
    std::optional<uint16_t> port; // where rank 0 listens, if it is not to follow from the variables
    std::string secret_file;      // empty: none
};
Result<std::unique_ptr<Bootstrap>> join_environment(const char *const *environment,
                                                    const EnvironmentOptions &options);

} // namespace qccl
