// The calls that a group keeps, and the names that errors give to them.
#pragma once

#include "api/call/collective_call.hpp"
#include "api/call/message_call.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace qccl {

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

// A collective, one layer of it, a message, or a copy within the rank.
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

// In the order in which the caller made them.
struct GroupedCalls {
    std::deque<GroupedCall> calls{}; // a vector would move them as it grows
    bool is_inside = false;          // those of one call, whose thread is inside the communicator

    // Returns the error of the call, or of `count` calls that ran as one, as one of the group: its
    // sentence names them.
    Error named(const GroupedCall &call, const Error &error) const;
    Error named(const GroupedCall &first, const GroupedCall &last, size_t count,
                const Error &error) const;
};

} // namespace qccl
