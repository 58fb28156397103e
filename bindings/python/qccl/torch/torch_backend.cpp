// Creation, end and coalescing of the process group, and how its calls enter the queue.
#include <Python.h> // has to come before the standard library's headers

#include "torch_backend.hpp"

#include "backend_resources.hpp"
#include "core/failure.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/pybind11.h>

#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <system_error>
#include <thread>

namespace qccl_torch {

namespace {

constexpr auto id_key = "qccl/id";

// Limits how long a group that the program drops without shutdown waits for other ranks.
constexpr Milliseconds patience_of_destructor{10000};

std::string hex(const std::array<unsigned char, 16> &bytes) {
    std::string text;
    for (const unsigned char byte : bytes) {
        constexpr auto digits = "0123456789abcdef";
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

// Looks whether the program's user has pressed Ctrl-C while a group is made, on the thread of
// Python that makes it. Throws Python's exception.
class InterruptCheck {
public:
    void operator()() {
        const auto now = std::chrono::steady_clock::now();
        if (now < next_ || !Py_IsInitialized()) return;
        next_ = now + Milliseconds(50);
        const pybind11::gil_scoped_acquire locked;
        if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    }

private:
    std::chrono::steady_clock::time_point next_{};
};

// Rank 0 makes the id and puts it into the store. An id that cannot be made is told to the others,
// which would wait for it.
qcclUniqueId make_or_get_id(GroupStore &store, int rank, Milliseconds limit) {
    qcclUniqueId id{};
    if (rank == 0) {
        const qcclResult_t made = qcclGetUniqueId(&id);
        const std::string sentence = made == qcclSuccess ? "" : qcclGetLastError(nullptr);
        store.set(id_key, made == qcclSuccess ? std::string(id.internal, sizeof id.internal)
                                              : "rank 0 cannot make an id: " + sentence);
        check(made);
        return id;
    }
    if (!store.await_key(id_key, std::chrono::steady_clock::now() + limit, InterruptCheck()))
        throw CallFailure(qcclTimeout, "rank 0 has not put an id into the store");
    const std::string bytes = store.get(id_key);
    if (bytes.size() != sizeof id.internal) throw CallFailure(qcclRemoteError, bytes);
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    return id;
}

// What the ranks tell each other when they have a communicator.
struct MemberInfo {
    ProcessIdentity process = ProcessIdentity::of_this_process();
    std::array<unsigned char, 16> nonce{};
};

std::vector<MemberInfo> introduce(const Communicator &communicator) {
    MemberInfo own;
    std::random_device random;
    for (unsigned char &byte : own.nonce) byte = static_cast<unsigned char>(random());
    std::vector<MemberInfo> all(static_cast<size_t>(communicator.size()));
    check(qcclAllGather(&own, all.data(), sizeof own, qcclUint8, communicator.handle(), nullptr));
    return all;
}

CommunicatorSettings settings_of(const QcclOptions &options) {
    return {.device = "host",
            .codec = options.codec,
            .algorithm = options.algorithm,
            .name = options.name.empty() ? "torch-" + options.group_name : options.name,
            .reproducible = options.reproducible,
            .timeout = options.timeout};
}

c10::intrusive_ptr<QcclOptions> own_options(const c10::intrusive_ptr<c10d::Backend::Options> &given,
                                            const QcclOptions &fallback) {
    auto own = c10::dynamic_intrusive_pointer_cast<QcclOptions>(given);
    if (!own) own = c10::make_intrusive<QcclOptions>(fallback);
    if (given) {
        own->timeout = given->timeout;
        own->group_name = given->group_name;
        own->global_ranks_in_group = given->global_ranks_in_group;
    }
    return own;
}

CallDescription creation_of(const QcclOptions &options) {
    return {.title = "qccl:init", .timeout = options.timeout};
}

} // namespace

// ---- Ends

// Lets other threads have Python's lock while this one waits for them, if this one has it: Python
// drops a group with the lock held, and the group's threads need the lock to free tensors.
class PythonUnlocked {
public:
    PythonUnlocked() {
        if (Py_IsInitialized() && PyGILState_Check()) state_ = PyEval_SaveThread();
    }
    PythonUnlocked(const PythonUnlocked &) = delete;
    PythonUnlocked &operator=(const PythonUnlocked &) = delete;
    ~PythonUnlocked() {
        if (state_) PyEval_RestoreThread(state_);
    }

private:
    PyThreadState *state_ = nullptr;
};

struct LiveGroups {
    std::mutex mutex;
    std::vector<std::weak_ptr<QcclBackend::Resources>> groups;
};

// Lasts until the process ends, because a group may outlive the static objects.
LiveGroups &live_groups() {
    static auto *const groups = new LiveGroups;
    return *groups;
}

void QcclBackend::Resources::close(Milliseconds patience) {
    if (getpid() != process) return;
    is_closed = true;
    const std::lock_guard lock(closing);
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + patience;
    const auto left = [deadline] {
        const auto time = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
        return std::max(time, Milliseconds{0});
    };
    if (!queue.drain(patience)) communicator->abort();
    queue.close();
    messenger->close(left());
    communicator->end(left());
    callbacks->drain(left());
    callbacks->end_threads();
}

void QcclBackend::Resources::abort() {
    is_closed = true;
    communicator->abort();
    messenger->abort();
    callbacks->stop_waiting();
}

void QcclBackend::close_all(Milliseconds patience) {
    std::vector<std::shared_ptr<Resources>> groups;
    {
        const std::lock_guard lock(live_groups().mutex);
        for (const auto &each : live_groups().groups)
            if (auto group = each.lock()) groups.push_back(std::move(group));
    }
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + patience;
    for (const auto &group : groups) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
        group->close(std::max(left, Milliseconds{0}));
    }
}

QcclBackend::QcclBackend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                         c10::intrusive_ptr<QcclOptions> options)
    : QcclBackend(meet_in(store, rank, size, *options), options) {}

std::shared_ptr<QcclBackend::Resources>
QcclBackend::meet_in(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                     const QcclOptions &options) {
    auto own = std::make_shared<Resources>();
    own->store = std::make_shared<StoreAdapter>(store);
    try {
        const qcclUniqueId id = make_or_get_id(*own->store, rank, options.timeout);
        own->communicator =
            std::make_unique<Communicator>(id, rank, size, settings_of(options), InterruptCheck());
        if (rank == 0) own->store->remove(id_key);
    } catch (const std::exception &) {
        std::rethrow_exception(torch_error(creation_of(options), std::current_exception()));
    }
    return own;
}

QcclBackend::QcclBackend(std::shared_ptr<Resources> resources,
                         c10::intrusive_ptr<QcclOptions> options)
    : Backend(resources->communicator->rank(), resources->communicator->size()),
      options_(std::move(options)), resources_(std::move(resources)),
      limit_ms_(options_->timeout.count()) {
    try {
        const std::vector<MemberInfo> all = introduce(*resources_->communicator);
        // No other group has this prefix, also if a program uses a store again.
        resources_->store_prefix = "qccl/" + hex(all.front().nonce);
        std::vector<ProcessIdentity> processes;
        for (const MemberInfo &each : all) processes.push_back(each.process);
        resources_->messenger =
            std::make_shared<Messenger>(resources_->store, resources_->store_prefix, rank_,
                                        std::move(processes), settings_of(*options_));
    } catch (const std::exception &) {
        std::rethrow_exception(torch_error(creation_of(*options_), std::current_exception()));
    }
    init();
    const std::lock_guard lock(live_groups().mutex);
    std::erase_if(live_groups().groups, [](const auto &group) { return group.expired(); });
    live_groups().groups.push_back(resources_);
}

QcclBackend::~QcclBackend() {
    if (getpid() != resources_->process) {
        // The parent's threads do not exist here: waiting for them would never end.
        new std::shared_ptr<Resources>(std::move(resources_));
        return;
    }
    const PythonUnlocked unlocked;
    end(patience_of_destructor);
}

// The end of a group waits for callbacks. A callback that drops or ends its group cannot wait for
// itself, so another thread waits. Without that thread the group ends when its last user does.
void QcclBackend::end(Milliseconds patience) {
    if (!resources_->callbacks->is_own_thread()) return resources_->close(patience);
    try {
        std::thread([own = resources_, patience] { own->close(patience); }).detach();
    } catch (const std::system_error &) {
        resources_->abort();
    }
}

void QcclBackend::shutdown() {
    const PythonUnlocked unlocked;
    end(limit_for(c10d::kUnsetTimeout));
}

void QcclBackend::abort() {
    const PythonUnlocked unlocked;
    if (getpid() != resources_->process) return;
    resources_->abort();
    end(Milliseconds{0});
}

void QcclBackend::setTimeout(std::chrono::milliseconds limit) {
    options_->timeout = limit;
    limit_ms_ = limit.count();
}

c10d::ErrorType QcclBackend::getError() {
    switch (resources_->failure) {
    case qcclSuccess: return c10d::ErrorType::SUCCESS;
    case qcclTimeout: return c10d::ErrorType::TIMEOUT;
    case qcclRemoteError: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
    }
}

c10::intrusive_ptr<c10d::Backend> QcclBackend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                     const std::vector<int> &ranks,
                                                     const c10::intrusive_ptr<Options> &opts) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return nullptr;
    return c10::make_intrusive<QcclBackend>(store, static_cast<int>(found - ranks.begin()),
                                            static_cast<int>(ranks.size()),
                                            own_options(opts, *options_));
}

c10::intrusive_ptr<c10d::Backend> QcclBackend::merge(const c10::intrusive_ptr<c10d::Store> &store,
                                                     const c10::intrusive_ptr<Options> &opts,
                                                     const int &rank, const int &size) {
    return c10::make_intrusive<QcclBackend>(store, rank, size, own_options(opts, *options_));
}

c10::intrusive_ptr<c10d::Backend> QcclBackend::shrink(const std::vector<int64_t> &ranks_to_exclude,
                                                      int shrink_flags,
                                                      const c10::intrusive_ptr<Options> &opts) {
    check_usable();
    const PythonUnlocked unlocked;
    const std::vector<int> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
    const auto options = own_options(opts, *options_);
    auto left = std::make_shared<Resources>();
    left->store = resources_->store;
    // Without the flag the group's earlier calls come first.
    if ((shrink_flags & QCCL_SHRINK_ABORT) == 0) resources_->queue.drain(limit_for(kNoTimeout));
    try {
        left->communicator =
            std::make_unique<Communicator>(*resources_->communicator, excluded, shrink_flags,
                                           settings_of(*options), InterruptCheck());
    } catch (const std::exception &) {
        const CallDescription call{.title = "qccl:shrink", .timeout = options->timeout};
        std::rethrow_exception(torch_error(call, std::current_exception()));
    }
    const int expected = size_ - static_cast<int>(excluded.size());
    TORCH_CHECK_WITH(DistBackendError, left->communicator->size() == expected,
                     "qccl:shrink: ", left->communicator->size(),
                     " ranks are left, but the call "
                     "leaves out only those that make ",
                     expected,
                     ": it has to name all ranks that "
                     "have ended");
    return c10::make_intrusive<QcclBackend>(std::move(left), options);
}

// ---- Calls

void QcclBackend::check_usable() const {
    TORCH_CHECK_WITH(DistBackendError, getpid() == resources_->process,
                     "qccl: this process was forked from the one that made the process group. A "
                     "forked process has to make a group of its own");
    TORCH_CHECK_WITH(DistBackendError, !resources_->is_closed,
                     "qccl: the process group has been shut down or aborted");
}

// A callback that makes a call may wait for it, and so may not hold up other callbacks.
void QcclBackend::begin_call() const {
    check_usable();
    resources_->callbacks->let_others_pass();
}

Milliseconds QcclBackend::limit_for(std::chrono::milliseconds asked) const {
    return asked > kNoTimeout ? asked : Milliseconds(limit_ms_);
}

Reduction QcclBackend::reduction(const c10d::ReduceOp &op, at::ScalarType type) const {
    return {op, type, resources_->communicator->handle()};
}

QcclBackend::WorkRef QcclBackend::submit(CallSteps call, CallDescription description) {
    begin_call();
    description.timeout = limit_for(description.timeout);
    const bool is_async = description.is_async;
    auto work = c10::make_intrusive<QcclWork>(rank_, ++sequence_number_, std::move(description),
                                              resources_->callbacks);
    {
        const std::lock_guard lock(coalescing_mutex_);
        if (coalesced_ && is_async && !call.is_stepwise) {
            coalesced_->push_back({std::move(call), work});
            return work;
        }
    }
    run_later({{std::move(call), work}}, is_async);
    return work;
}

// The task refers to the resources alone, because it may run when the backend is gone. The queue is
// one of them, so they last longer than the task.
void QcclBackend::run_later(std::vector<CoalescedCall> calls, bool is_async) {
    auto task = [own = resources_.get(), calls = std::move(calls)] { own->run(calls); };
    const bool is_taken = is_async ? resources_->queue.post(std::move(task))
                                   : resources_->queue.run_or_post(std::move(task));
    if (!is_taken) check_usable(); // says that the group has been closed meanwhile
}

void QcclBackend::Resources::make_calls(const std::vector<CoalescedCall> &calls) const {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    CallTarget target{.communicator = communicator->handle()};
    const Milliseconds limit = calls.front().work->call().timeout;
    target.config.timeout = std::chrono::duration<double>(limit).count();
    for (const CoalescedCall &each : calls)
        if (each.call.prepare) each.call.prepare();
    const bool is_group = calls.size() > 1 || calls.front().call.is_group;
    if (is_group) check(qcclGroupStart());
    try {
        for (const CoalescedCall &each : calls) each.call.launch(target);
    } catch (...) {
        if (is_group) qcclGroupEnd(); // makes no call, because one was refused
        throw;
    }
    if (is_group) check(qcclGroupEnd());
    for (const CoalescedCall &each : calls)
        if (each.call.finish) each.call.finish();
}

void QcclBackend::Resources::run(const std::vector<CoalescedCall> &calls) {
    std::exception_ptr error;
    try {
        make_calls(calls);
    } catch (const CallFailure &caught) {
        error = std::current_exception();
        const bool is_refusal =
            caught.code() == qcclInvalidArgument || caught.code() == qcclInvalidUsage;
        if (!is_refusal) failure = caught.code();
    } catch (...) { // of torch: the communicator is as it was
        error = std::current_exception();
    }
    for (const CoalescedCall &each : calls) each.work->complete(error);
}

// ---- Coalescing

void QcclBackend::startCoalescing() {
    check_usable();
    const std::lock_guard lock(coalescing_mutex_);
    TORCH_CHECK(!coalesced_, "qccl: calls of this process group are being coalesced already");
    coalesced_.emplace();
}

// The Work that this function returns is done when all calls between are done.
QcclBackend::WorkRef QcclBackend::endCoalescing() {
    begin_call();
    std::vector<CoalescedCall> calls;
    std::vector<c10::intrusive_ptr<QcclWork>> parts;
    {
        const std::lock_guard lock(coalescing_mutex_);
        TORCH_CHECK(coalesced_, "qccl: no calls of this process group are being coalesced");
        calls = std::move(*coalesced_);
        coalesced_.reset();
        parts.swap(coalesced_messages_);
    }
    for (const CoalescedCall &each : calls) parts.push_back(each.work);
    struct Whole {
        c10::intrusive_ptr<QcclWork> work;
        std::atomic<size_t> left;
        std::mutex mutex;
        std::exception_ptr error;
    };
    CallDescription description{.type = c10d::OpType::COALESCED,
                                .title = "qccl:coalesced",
                                .timeout = Milliseconds(limit_ms_)};
    auto whole = std::make_shared<Whole>();
    whole->left = parts.size() + 1;
    whole->work = c10::make_intrusive<QcclWork>(rank_, ++sequence_number_, std::move(description),
                                                resources_->callbacks);
    const auto count_down = [whole] {
        if (--whole->left == 0) whole->work->complete(whole->error);
    };
    for (const auto &part : parts)
        part->when_complete([whole, count_down](const std::exception_ptr &error) {
            if (error) {
                const std::lock_guard lock(whole->mutex);
                if (!whole->error) whole->error = error;
            }
            count_down();
        });
    if (!calls.empty()) run_later(std::move(calls), true);
    count_down();
    return whole->work;
}

} // namespace qccl_torch
