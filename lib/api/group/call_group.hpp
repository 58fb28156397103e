// Calls that are collected and then made together, so that none of them waits for another one's
// turn: those between qcclGroupStart and qcclGroupEnd, and the two halves of a qcclSendRecv.
// Collectives of one communicator keep their order, and so do the messages of two ranks in one
// direction; all else goes on at the same time. A group belongs to one thread. run() blocks until
// the calls without a stream are done, and until channels exist for all messages.
#pragma once

#include "api/call/collective_call.hpp"
#include "api/call/message_call.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace qccl {

class CallGroup {
public:
    // Returns the group that this thread has open, or null.
    static CallGroup *current();
    // Returns how many of the communicator's calls this thread's open group has.
    static size_t calls_of(qcclComm_t handle);
    // Groups may be nested; the outermost end makes the calls.
    static void open();
    static Done close();

    // Check the arguments and keep the call; of a call with layers one for each of them. After an
    // error the group makes no call.
    Done add(qcclComm_t handle, const CallArguments &given);
    Done add(qcclComm_t handle, const MessageArguments &given);
    // Both halves of a qcclSendRecv.
    Done add(qcclComm_t handle, const MessageArguments &to, const MessageArguments &from);
    // Returns the error of the first call that failed; its sentence names the call.
    Done run();

    // The same for a group of one call with layers, made by the thread that is inside `comm`. The
    // group may run more than once.
    Done add_inside(Comm &comm, qcclComm_t handle, const CallArguments &given);
    Done run_inside();

private:
    // The group's end looks at the config, and the caller's own may be gone by then.
    struct KeptMessage : MessageArguments {
        KeptMessage(const MessageArguments &given, const qcclCollConfig_t &taken)
            : MessageArguments(given), own_algorithm(taken.algorithm ? taken.algorithm : ""),
              own_config(taken) {
            if (taken.algorithm) own_config.algorithm = own_algorithm.c_str();
            config = &own_config;
        }
        KeptMessage(const KeptMessage &) = delete;
        const std::string own_algorithm;
        qcclCollConfig_t own_config;
    };
    struct GroupedCall {
        GroupedCall(qcclComm_t comm, Collective called, qcclStream_t on, size_t of_group)
            : handle(comm), collective(called), stream(on), number(of_group) {}

        qcclComm_t handle;
        Collective collective;
        qcclStream_t stream;
        size_t number;                 // of the caller's call, from 1; its layers share it
        std::optional<size_t> layer{}; // which of the call's layers this is; nothing: it has none
        // What the call is: one of these is set.
        ReadyCall ready{}; // a collective's
        std::unique_ptr<const KeptMessage> message{};
        std::function<Done()> copy{}; // within the rank

        bool is_collective() const { return !message && !copy; }
        bool is_layer_of(const GroupedCall &other) const {
            return layer && other.layer && number == other.number;
        }
    };
    class GroupRun;

    // Begins the caller's next call, and returns its first part.
    GroupedCall &begin_call(qcclComm_t handle, Collective collective, qcclStream_t stream);
    // Runs the checks of the latest call. If it is wrong, the group is refused.
    template <class Checks> Done check(Checks &&checks);
    // Fills the latest call, which is the first layer, and appends the others.
    Done add_layers(Comm &comm, const CallArguments &given);

    Done add_state(const FeedbackState *state);
    // What errors call a call, and calls that run as one.
    std::string name_of(const GroupedCall &call) const;
    std::string name_of(const GroupedCall &first, const GroupedCall &last, size_t calls) const;

    std::deque<GroupedCall> calls_;          // a vector would move them as it grows
    size_t begun_ = 0;                       // the caller's calls
    std::set<const FeedbackState *> states_; // of the calls
    std::optional<Error> refused_;
    uint32_t depth_ = 0;
    bool is_inside_ = false; // a group of one call, whose thread is inside the communicator
};

} // namespace qccl
