// Owns one QCCL communicator from its creation to its end. The process group has one communicator
// for collectives on the host, and each PeerLink has two.
//
// Creation blocks until all ranks have joined, and can be given up from another thread. One thread
// at a time makes calls on the handle, as QCCL requires; `abort` may be called by any thread.
#pragma once

#include <qccl/qccl.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace qccl_torch {

using Milliseconds = std::chrono::milliseconds;

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
    // Joins as `rank` of `ranks`. Throws CallFailure; also when `is_given_up` becomes true.
    Communicator(const qcclUniqueId &id, int rank, int ranks, const CommunicatorSettings &settings,
                 const std::atomic<bool> &is_given_up);
    // Makes a communicator of the same ranks, which all call this function.
    Communicator(const Communicator &other, const CommunicatorSettings &settings,
                 const std::atomic<bool> &is_given_up);
    // Makes a communicator of the ranks of `other` that are left, without those of `excluded`. Each
    // of them calls this function. `flags` are those of qcclCommShrink.
    Communicator(const Communicator &other, const std::vector<int> &excluded, int flags,
                 const CommunicatorSettings &settings, const std::atomic<bool> &is_given_up);
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    // Aborts a communicator that has not ended.
    ~Communicator();

    qcclComm_t handle() const { return handle_; }
    int rank() const;
    int size() const;
    // Ends all calls on this communicator with qcclRevoked, on every rank.
    void abort() noexcept;
    // Frees the communicator when the other ranks have begun the calls that this rank has made.
    // Waits for them as long as `patience`, and then aborts. No thread is inside.
    void end(Milliseconds patience) noexcept;

private:
    void await_creation(const std::atomic<bool> &is_given_up);

    qcclComm_t handle_ = nullptr;
    std::atomic<bool> has_ended_{false};
};

} // namespace qccl_torch
