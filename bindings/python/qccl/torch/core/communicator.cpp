// Makes communicators with QCCL's nonblocking creation, so that a process group that is shut down
// meanwhile can abort the creation.
#include "core/communicator.hpp"

#include "core/failure.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace qccl_torch {

namespace {

qcclConfig_t config_of(const CommunicatorSettings &settings) {
    const auto text_or_default = [](const std::string &text) {
        return text.empty() ? nullptr : text.c_str();
    };
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.device = settings.device.c_str();
    config.codec = text_or_default(settings.codec);
    config.algorithm = text_or_default(settings.algorithm);
    config.name = text_or_default(settings.name);
    config.reproducible = settings.reproducible ? 1 : 0;
    config.timeout = std::chrono::duration<double>(settings.timeout).count();
    config.nonblocking = 1;
    return config;
}

void check_begun(qcclResult_t result) {
    if (result != qcclInProgress) check(result);
}

} // namespace

void check(qcclResult_t result) {
    if (result == qcclSuccess) return;
    const std::string sentence = qcclGetLastError(nullptr);
    throw CallFailure(result, sentence.empty() ? qcclGetErrorString(result) : sentence);
}

Communicator::Communicator(const qcclUniqueId &id, int rank, int ranks,
                           const CommunicatorSettings &settings,
                           const std::atomic<bool> &is_given_up) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommInitRankConfig(&handle_, ranks, &id, rank, &config));
    await_creation(is_given_up);
}

Communicator::Communicator(const Communicator &other, const CommunicatorSettings &settings,
                           const std::atomic<bool> &is_given_up) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommDup(other.handle(), &handle_, &config));
    await_creation(is_given_up);
}

Communicator::Communicator(const Communicator &other, const std::vector<int> &excluded, int flags,
                           const CommunicatorSettings &settings,
                           const std::atomic<bool> &is_given_up) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommShrink(other.handle(), excluded.data(), static_cast<int>(excluded.size()),
                               &handle_, &config, flags));
    await_creation(is_given_up);
}

int Communicator::rank() const {
    int rank = 0;
    check(qcclCommUserRank(handle_, &rank));
    return rank;
}

int Communicator::size() const {
    int size = 0;
    check(qcclCommCount(handle_, &size));
    return size;
}

// A constructor that throws runs no destructor, so this function ends the handle itself.
void Communicator::await_creation(const std::atomic<bool> &is_given_up) {
    auto pause = std::chrono::microseconds(50);
    qcclResult_t state = qcclInProgress;
    while (state == qcclInProgress && !is_given_up) {
        check(qcclCommGetAsyncError(handle_, &state));
        if (state != qcclInProgress) break;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(2000));
    }
    if (state == qcclSuccess) return;
    const std::string sentence = state == qcclInProgress
                                     ? "the process group was shut down before all ranks had joined"
                                     : qcclGetLastError(handle_);
    qcclCommAbort(handle_);
    throw CallFailure(state == qcclInProgress ? qcclRevoked : state, sentence);
}

Communicator::~Communicator() { abort(); }

void Communicator::abort() noexcept {
    if (!has_ended_.exchange(true)) qcclCommAbort(handle_);
}

void Communicator::end(Milliseconds patience) noexcept {
    if (has_ended_.exchange(true)) return;
    std::mutex mutex;
    std::condition_variable changed;
    bool is_freed = false;
    std::thread destroyer([&] {
        qcclCommDestroy(handle_); // its failures concern calls that have already reported theirs
        const std::lock_guard lock(mutex);
        is_freed = true;
        changed.notify_one();
    });
    {
        std::unique_lock lock(mutex);
        if (!changed.wait_for(lock, patience, [&] { return is_freed; })) {
            lock.unlock();
            qcclCommAbort(handle_); // makes the other thread's qcclCommDestroy return
        }
    }
    destroyer.join();
}

} // namespace qccl_torch
