// The ways in which ranks meet: as threads of one process, through the caller's own all-gather,
// through a unique id, or through a launcher's environment variables. The C functions that create
// communicators use them. What blocks says so.
#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "net/bootstrap.hpp"

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

using Clock = std::chrono::steady_clock;
using Warn = std::function<void(const char *sentence)>;

// local: the ranks are threads of this process. Returns one object for each rank.
std::vector<std::unique_ptr<Bootstrap>> create_local_bootstraps(uint32_t size,
                                                                std::chrono::nanoseconds timeout);

// oob: the caller's own all-gather function. It returns 0 on success, as qcclOob_t documents, and
// gets `context` unchanged.
using AllGatherFunction = int (*)(const void *mine, void *all, size_t bytes, void *context);
std::unique_ptr<Bootstrap> create_oob_bootstrap(uint32_t size, uint32_t rank,
                                                AllGatherFunction all_gather, void *context);

// unique_id: a TCP rendezvous. The id holds the address of the process that made it and a secret.
// The server turns away a peer that cannot prove the secret with a keyed hash; the ranks do not
// notice.
inline constexpr size_t unique_id_bytes = 128;
using UniqueId = std::array<std::byte, unique_id_bytes>;

struct RendezvousOptions {
    std::string interface; // where to listen, in the form of choose_endpoints(); empty: on all
    std::chrono::nanoseconds timeout{std::chrono::seconds(1800)};
    std::chrono::nanoseconds warn_after{std::chrono::seconds(5)};
    // After a rendezvous has failed or, with a launcher's variables, is complete, its server still
    // tells late ranks the outcome for this long.
    std::chrono::nanoseconds linger{std::chrono::seconds(10)};
    // Receives one sentence about late ranks, on one of the ranks that wait for them; one on each
    // rank that does not get in; and, with a launcher's variables, one on rank 0 about a process
    // that has another secret. That last call comes from another thread.
    Warn warn;
    // A rank that waits calls it; after an error the rank leaves, and the others learn of that.
    CancelCheck cancel_check{};
};

// Starts to serve the rendezvous on a background thread of this process. The thread ends once every
// rank has left, or if ranks stay away for `timeout`. Uses neither warn_after nor warn. Errors:
// invalid_argument if the interface does not fit, system_error.
Result<UniqueId> create_unique_id(const RendezvousOptions &options);
// Blocks until every rank has joined. Refuses an id of another version, a rank or size that does
// not fit, and a rank that another peer already holds. All waiting ranks learn of a refusal at
// once, so the caller must not refuse such a rank itself before this call. Uses no interface.
Result<std::unique_ptr<Bootstrap>> join_unique_id(const UniqueId &id, uint32_t size, uint32_t rank,
                                                  const RendezvousOptions &options);

// environment: a launcher's variables give rank, size and the address of the rendezvous
// (launcher.cpp has the table). Rank 0 serves the rendezvous. The ranks may come in any order, and
// all of them may meet again for the next communicator. A process may join if it knows the values
// of the variables; with `secret_file` it must also hold that secret.
struct EnvironmentOptions {
    RendezvousOptions rendezvous;
    std::optional<uint16_t> port; // where rank 0 listens; nothing: it follows from the variables
    std::string secret_file;      // empty: none
};
Result<std::unique_ptr<Bootstrap>> join_environment(const char *const *environment,
                                                    const EnvironmentOptions &options);

} // namespace qccl
