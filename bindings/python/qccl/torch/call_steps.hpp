// A collective of the process group as steps that the CallQueue runs: fill copies, make QCCL's
// calls, copy back. Calls that are coalesced take each step together, with QCCL's calls in one
// group.
//
// QcclBackend makes them on the program's thread. The queue runs them, and the steps hold their
// tensors until then.
#pragma once

#include <qccl/qccl.h>

#include <functional>
#include <memory>
#include <vector>

namespace qccl_torch {

// Where a call goes, and its settings.
struct CallTarget {
    qcclComm_t communicator = nullptr;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
};

struct CallSteps {
    std::function<void()> prepare; // may be null
    std::function<void(const CallTarget &)> launch;
    std::function<void()> finish; // may be null
    // `launch` makes several calls of QCCL, which run as a group.
    bool is_group = false;
    // Calls of `launch` follow from the results of earlier ones, so no group can hold them.
    bool is_stepwise = false;
};

// The steps of several calls of one kind, which run as a group. `Part` is one of them, with `load`,
// `launch` and `store`.
template <class Part> CallSteps steps_of(const std::shared_ptr<std::vector<Part>> &parts) {
    return {.prepare =
                [parts] {
                    for (Part &each : *parts) each.load();
                },
            .launch =
                [parts](const CallTarget &target) {
                    for (const Part &each : *parts) each.launch(target);
                },
            .finish =
                [parts] {
                    for (const Part &each : *parts) each.store();
                },
            .is_group = parts->size() > 1};
}

} // namespace qccl_torch
