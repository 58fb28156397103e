// Completes futures before works: a thread that waits for the work may then read the future.
#include "qccl_work.hpp"

#include "core/failure.hpp"

#include <c10/util/Exception.h>

namespace qccl_torch {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> future_for(const CallDescription &call) {
    c10::TypePtr type = c10::ListType::ofTensors();
    if (call.outputs.size() > 1) type = c10::ListType::create(type);
    return c10::make_intrusive<c10::ivalue::Future>(type);
}

c10::IValue value_of(const CallDescription &call) {
    if (call.outputs.size() > 1) return call.outputs;
    return call.outputs.empty() ? std::vector<at::Tensor>{} : call.outputs.front();
}

} // namespace

std::exception_ptr torch_error(const CallDescription &call, const std::exception_ptr &error) {
    try {
        std::rethrow_exception(error);
    } catch (const CallFailure &failure) {
        std::string text = std::string(call.title) + ": ";
        if (failure.code() == qcclTimeout)
            text += "Timed out waiting " + std::to_string(call.timeout.count()) + "ms: ";
        text += failure.what();
        text += std::string(" (") + qcclGetErrorString(failure.code()) + ")";
        const c10::SourceLocation here{__func__, __FILE__, __LINE__};
        return std::make_exception_ptr(c10::DistBackendError(here, text));
    } catch (...) {
        return std::current_exception();
    }
}

QcclWork::QcclWork(int rank, uint64_t sequence_number, CallDescription call,
                   std::shared_ptr<CallbackRunner> callbacks)
    : Work(rank, call.type, call.title, call.inputs), call_(std::move(call)),
      sequence_number_(sequence_number), callbacks_(std::move(callbacks)) {}

std::vector<at::Tensor> QcclWork::result() {
    TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result().");
    TORCH_CHECK(call_.outputs.size() <= 1,
                "The call has several lists of outputs: get_future().value() gives them.");
    return call_.outputs.empty() ? std::vector<at::Tensor>{} : call_.outputs.front();
}

void QcclWork::abort() {
    TORCH_CHECK(false, call_.title, ": one call cannot be aborted; the process group can be");
}

c10::intrusive_ptr<c10::ivalue::Future> QcclWork::getFuture() {
    const std::lock_guard lock(completing_mutex_);
    if (!future_) {
        future_ = future_for(call_);
        if (is_complete_) complete_future(); // it has no callbacks yet
    }
    return future_;
}

void QcclWork::when_complete(Listener listener) {
    {
        const std::lock_guard lock(completing_mutex_);
        if (!is_complete_) {
            listeners_.push_back(std::move(listener));
            return;
        }
    }
    listener(error_);
}

void QcclWork::complete(std::exception_ptr error) {
    std::vector<Listener> listeners;
    bool has_future = false;
    {
        const std::lock_guard lock(completing_mutex_);
        if (is_complete_) return;
        is_complete_ = true;
        error_ = error ? torch_error(call_, error) : nullptr;
        listeners.swap(listeners_);
        has_future = future_ != nullptr;
    }
    for (const Listener &listener : listeners) listener(error_);
    if (!has_future) return finish(error_);
    callbacks_->post([self = c10::intrusive_ptr<QcclWork>::reclaim_copy(this)] {
        self->complete_future();
        self->finish(self->error_);
    });
}

// A callback that throws must not end the thread, which has other callbacks to run.
void QcclWork::complete_future() noexcept {
    try {
        if (error_)
            future_->setError(error_);
        else
            future_->markCompleted(value_of(call_));
    } catch (const std::exception &thrown) {
        TORCH_WARN(call_.title, ": a callback of the call's future has thrown: ", thrown.what());
    }
}

int MessageWork::sourceRank() const { return source_; }

void MessageWork::complete_from(int source, std::exception_ptr error) {
    source_ = source;
    complete(std::move(error));
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
    const auto limit = timeout == kNoTimeout ? call().timeout : timeout;
    bool is_in_time = true;
    {
        std::unique_lock lock(mutex_);
        is_in_time = cv_.wait_for(lock, limit, [this] { return completed_; });
    }
    if (!is_in_time) {
        CallDescription waited = call();
        waited.timeout = limit;
        const auto late = torch_error(
            waited, std::make_exception_ptr(CallFailure(
                        qcclTimeout, "the other rank has not made its part of the message")));
        if (cancel_) cancel_(late);
        std::rethrow_exception(late);
    }
    return QcclWork::wait(kNoTimeout);
}

} // namespace qccl_torch
