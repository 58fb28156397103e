// Collects the calls of a thread's group, and checks each as it comes.
#include "api/group/call_group.hpp"

#include "api/group/entered_comm.hpp"
#include "api/group/group_run.hpp"
#include "api/group/layers.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace qccl {

static CallGroup *&current_group() {
    static constinit thread_local CallGroup *group = nullptr;
    return group;
}

CallGroup *CallGroup::current() { return current_group(); }

size_t CallGroup::calls_of(qcclComm_t handle) {
    const CallGroup *const open = current();
    if (!open || open->refused_) return 0;
    return static_cast<size_t>(std::ranges::count(open->kept_.calls, handle, &GroupedCall::handle));
}

void CallGroup::open() {
    if (!current_group()) current_group() = new CallGroup;
    current_group()->depth_++;
}

Done CallGroup::close() {
    CallGroup *const open = current_group();
    if (!open) return Error::make(Code::invalid_usage, "this thread has not called qcclGroupStart");
    if (--open->depth_ > 0) return {};
    const std::unique_ptr<CallGroup> group(std::exchange(current_group(), nullptr));
    return group->run();
}

template <class Checks> Done CallGroup::check(Checks &&checks) {
    const size_t latest = kept_.calls.size() - 1;
    const Done checked = exception_boundary(checks);
    if (checked) return checked;
    GroupedCall &call = kept_.calls[latest];
    call.layer.reset(); // the error names the layer
    if (!refused_) refused_ = kept_.named(call, checked.error());
    if (const auto comm = take_comm(call.handle)) (*comm)->note(checked.error());
    return checked;
}

GroupedCall &CallGroup::begin_call(qcclComm_t handle, Collective collective, qcclStream_t stream) {
    return kept_.calls.emplace_back(handle, collective, stream, ++begun_);
}

Done CallGroup::add(qcclComm_t handle, const CallArguments &given) {
    GroupedCall &call = begin_call(handle, given.collective, given.stream);
    return check([&]() -> Done {
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        QCCL_TRY(take_call_stream(entered.comm(), given.stream));
        if (has_layers(given)) return add_layers(entered.comm(), given);
        QCCL_TRY(call.ready, find_ready(entered.comm(), given));
        return add_state(call.ready.request.state.get());
    });
}

Done CallGroup::add_inside(Comm &comm, qcclComm_t handle, const CallArguments &given) {
    kept_.is_inside = true;
    QCCL_TRY(take_call_stream(comm, given.stream));
    begin_call(handle, given.collective, given.stream);
    return add_layers(comm, given);
}

Done CallGroup::add_layers(Comm &comm, const CallArguments &given) {
    uint32_t hash = 0;
    return split_into_layers(given, [&](size_t number, const CallArguments &layer) -> Done {
        if (number == 0) {
            hash = hash_layers(given);
        } else {
            const GroupedCall &first = kept_.calls.back();
            kept_.calls.emplace_back(first.handle, first.collective, first.stream, first.number);
        }
        GroupedCall &call = kept_.calls.back();
        call.layer = number;
        const auto ready = find_ready(comm, layer);
        if (!ready) return of_layer(number, ready.error());
        call.ready = *ready;
        call.ready.request.counts_hash = hash;
        const Done added = add_state(call.ready.request.state.get());
        return added ? added : of_layer(number, added.error());
    });
}

// The second call would begin before the caller could know that the first one has succeeded.
Done CallGroup::add_state(const FeedbackState *state) {
    if (!state || states_.insert(state).second) return {};
    return Error::make(Code::invalid_usage,
                       "config: state is that of an earlier call of the group or an earlier layer");
}

Done CallGroup::add(qcclComm_t handle, const MessageArguments &given) {
    GroupedCall &call = begin_call(handle, Collective::send, given.stream);
    return check([&]() -> Done {
        QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
        call.message = std::make_unique<const KeptMessage>(given, config);
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        return check_message_of_group(entered.comm(), given);
    });
}

Done CallGroup::add(qcclComm_t handle, const MessageArguments &to, const MessageArguments &from) {
    GroupedCall &call = begin_call(handle, Collective::send, to.stream);
    QCCL_TRY(check([&]() -> Done {
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        QCCL_TRY(call.copy, check_both(entered.comm(), to, from));
        return {};
    }));
    if (call.copy) return {};
    kept_.calls.pop_back();
    begun_--;
    QCCL_TRY(add(handle, to));
    return add(handle, from);
}

Done CallGroup::run() {
    if (refused_) return *refused_;
    if (kept_.calls.empty()) return {};
    return run_group(kept_);
}

Done CallGroup::run_inside() { return run_group(kept_); }

} // namespace qccl

using namespace qccl;

qcclResult_t qcclGroupStart(void) {
    return guarded([]() -> Done {
        CallGroup::open();
        return {};
    });
}
QCCL_TWIN(qcclGroupStart);

qcclResult_t qcclGroupEnd(void) {
    return guarded([] { return CallGroup::close(); });
}
QCCL_TWIN(qcclGroupEnd);
