// Owns one QCCL communicator from its creation to its end. The process group has one communicator
// for collectives on the host, and each PeerLink has two.
//
// Creation blocks until all ranks have joined, or the caller gives it up. One thread at a time
// makes calls on the handle, as QCCL requires. Any thread may call `abort`, also while another one
// ends the communicator.
#pragma once

#include <qccl/qccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace qccl_torch {

using Milliseconds = std::chrono::milliseconds;

// Called again and again while a creation waits. Throws to give the creation up.
using StopCheck = std::function<void()>;

// What the user of the process group has chosen; empty strings stand for QCCL's defaults.
struct CommunicatorSettings {
    std::string device = "host";
    std::string codec{};
    std::string algorithm{};
    std::string name{};
    bool reproducible = false;
    Milliseconds timeout{0};
};

class Communicator {
public:
    // Joins as `rank` of `ranks`. Throws CallFailure, and what `check_stop` throws.
    Communicator(const qcclUniqueId &id, int rank, int ranks, const CommunicatorSettings &settings,
                 const StopCheck &check_stop);
    // Makes a communicator of the same ranks, which all call this function.
    Communicator(const Communicator &other, const CommunicatorSettings &settings,
                 const StopCheck &check_stop);
    // Makes a communicator of the ranks of `other` that are left, without those of `excluded`. Each
    // of them calls this function. `flags` are those of qcclCommShrink.
    Communicator(const Communicator &other, const std::vector<int> &excluded, int flags,
                 const CommunicatorSettings &settings, const StopCheck &check_stop);
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    // Aborts a communicator that has not ended.
    ~Communicator();

    qcclComm_t handle() const { return handle_; }
    int rank() const;
    int size() const;
    // Ends all calls on this communicator with qcclRevoked, on every rank, and a running `end`.
    void abort() noexcept;
    // Frees the communicator when the other ranks have begun the calls that this rank has made.
    // Waits for them as long as `patience`, and then aborts. No thread is inside.
    void end(Milliseconds patience) noexcept;

private:
    void await_creation(const StopCheck &check_stop);
    bool is_finalized_within(Milliseconds patience) const noexcept;

    // QCCL gives no number twice, so the handle of a communicator that has ended is only refused.
    qcclComm_t handle_ = nullptr;
    std::atomic<bool> is_ending_{false};
};

} // namespace qccl_torch
