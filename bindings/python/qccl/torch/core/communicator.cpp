// Makes communicators with QCCL's nonblocking creation, so that a creation can be given up, and
// ends them with nonblocking qcclCommFinalize, so that the end needs no thread to limit its time.
#include "core/communicator.hpp"

#include "core/failure.hpp"

#include <algorithm>
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

// Between two looks at a communicator: short at first, then longer.
class Pause {
public:
    void sleep() {
        std::this_thread::sleep_for(length_);
        length_ = std::min(length_ * 2, std::chrono::microseconds(2000));
    }

private:
    std::chrono::microseconds length_{50};
};

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
                           const CommunicatorSettings &settings, const StopCheck &check_stop) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommInitRankConfig(&handle_, ranks, &id, rank, &config));
    await_creation(check_stop);
}

Communicator::Communicator(const Communicator &other, const CommunicatorSettings &settings,
                           const StopCheck &check_stop) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommDup(other.handle(), &handle_, &config));
    await_creation(check_stop);
}

Communicator::Communicator(const Communicator &other, const std::vector<int> &excluded, int flags,
                           const CommunicatorSettings &settings, const StopCheck &check_stop) {
    const qcclConfig_t config = config_of(settings);
    check_begun(qcclCommShrink(other.handle(), excluded.data(), static_cast<int>(excluded.size()),
                               &handle_, &config, flags));
    await_creation(check_stop);
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
void Communicator::await_creation(const StopCheck &check_stop) {
    Pause pause;
    qcclResult_t state = qcclInProgress;
    try {
        for (;;) {
            check(qcclCommGetAsyncError(handle_, &state));
            if (state != qcclInProgress) break;
            check_stop();
            pause.sleep();
        }
        if (state != qcclSuccess) throw CallFailure(state, qcclGetLastError(handle_));
    } catch (...) {
        qcclCommAbort(handle_);
        throw;
    }
}

Communicator::~Communicator() { abort(); }

void Communicator::abort() noexcept { qcclCommAbort(handle_); }

// Returns true when other ranks have begun this rank's calls, or the communicator has failed: then
// qcclCommDestroy does not wait for them.
bool Communicator::is_finalized_within(Milliseconds patience) const noexcept {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    const qcclResult_t begun = qcclCommFinalize(handle_);
    qcclResult_t state = begun;
    for (Pause pause;; pause.sleep()) {
        // A handle is refused if another thread has aborted meanwhile.
        if (qcclCommGetAsyncError(handle_, &state) != qcclSuccess) return false;
        if (state != qcclInProgress) return begun == qcclInProgress || state != qcclSuccess;
        if (std::chrono::steady_clock::now() >= deadline) return false;
    }
}

// The failures concern calls that have already reported theirs.
void Communicator::end(Milliseconds patience) noexcept {
    if (is_ending_.exchange(true)) return;
    if (is_finalized_within(patience))
        qcclCommDestroy(handle_);
    else
        qcclCommAbort(handle_);
}

} // namespace qccl_torch
