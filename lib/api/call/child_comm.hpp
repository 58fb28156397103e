// What the functions share that make a communicator of ranks of another one: the settings of the
// new one, and waits that end when the task is aborted that makes it.
#pragma once

#include "api/call/comm_task.hpp"
#include "comm/comm.hpp"
#include "comm/creation/child_creation.hpp"

#include <cinttypes>
#include <cstdint>

namespace qccl {

// The settings of a new communicator. Those of the environment are read on the caller's thread.
struct ChildSettings {
    CommConfig comm_config;
    EnvSettings env_settings = read_env_settings();
};

// Runs a wait for calls of `parent`. If the task is aborted meanwhile, the parent fails, because
// the other ranks would wait for this one.
template <class Wait> auto wait_in(Comm &parent, CommTask *task, Wait &&wait) {
    if (!task) return exception_boundary(wait);
    const auto fail = [&parent] {
        parent.fail(Error::make(Code::revoked,
                                "rank %" PRIu32 " aborted a communicator before the ranks had "
                                "agreed to make it from this one",
                                parent.rank())
                        .at_rank(parent.rank()));
    };
    return task->interruptible(fail, wait);
}

// Ends the waits of the new communicator's ranks.
inline CancelCheck cancel_check_of(const CommTask *task, uint32_t rank, const char *what) {
    if (!task) return {};
    return [=]() -> Done {
        if (!task->is_cancelled()) return {};
        return Error::make(Code::revoked,
                           "%s: rank %" PRIu32 " aborted the communicator while it was made", what,
                           rank)
            .at_rank(rank);
    };
}

} // namespace qccl
