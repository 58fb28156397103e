// What a call of the process group returns: torch's Work, with a future if the program asks for
// one.
//
// The program's threads wait for it and ask it; the thread that made the call completes it, once.
// That thread runs no code of the program: futures have callbacks, so the CallbackRunner completes
// them.
#pragma once

#include "core/callback_runner.hpp"
#include "core/communicator.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qccl_torch {

// What a call is called, reads and writes.
struct CallDescription {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char *title = nullptr; // in profiles and errors: "qccl:all_reduce"
    std::vector<at::Tensor> inputs{};
    std::vector<std::vector<at::Tensor>> outputs{};
    Milliseconds timeout{0};
    bool is_async = true;
};

class QcclWork : public c10d::Work {
public:
    using Listener = std::function<void(const std::exception_ptr &error)>;

    QcclWork(int rank, uint64_t sequence_number, CallDescription call,
             std::shared_ptr<CallbackRunner> callbacks);

    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return sequence_number_; }
    void abort() override;

    // `error`: null, or the exception of a C++ call, which becomes one of torch's.
    void complete(std::exception_ptr error);
    // Calls the listener on the thread that completes the call, or at once. It must not block.
    void when_complete(Listener listener);
    const CallDescription &call() const { return call_; }

private:
    void complete_future() noexcept;

    const CallDescription call_;
    const uint64_t sequence_number_;
    const std::shared_ptr<CallbackRunner> callbacks_;

    std::mutex completing_mutex_;                    // the base class has one for what waits
    c10::intrusive_ptr<c10::ivalue::Future> future_; // null until the program asks for it
    std::vector<Listener> listeners_;
    bool is_complete_ = false;
    std::exception_ptr error_; // of the complete call
};

// A send or a receive. Waiting for it ends after the group's timeout, because nothing else limits
// how long a peer may take to post its part.
class MessageWork final : public QcclWork {
public:
    using Cancel = std::function<void(std::exception_ptr reason)>;

    using QcclWork::QcclWork;
    bool wait(std::chrono::milliseconds timeout) override;
    int sourceRank() const override;

    // `cancel` takes the receive back if no message has come for it; null for a send.
    void set_cancel(Cancel cancel) { cancel_ = std::move(cancel); }
    void complete_from(int source, std::exception_ptr error);

private:
    Cancel cancel_;
    std::atomic<int> source_{-1};
};

// Converts a CallFailure to torch's exception for `title`; others stay what they are.
std::exception_ptr torch_error(const CallDescription &call, const std::exception_ptr &error);

} // namespace qccl_torch
