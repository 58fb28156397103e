// The communicators that one qcclCommInitAll made. Detects a process whose only thread waits in one
// of them for a call that it would have to make itself. Any thread may use it.
#pragma once

#include "base/result.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace qccl {

class SiblingComms {
public:
    explicit SiblingComms(uint32_t size) : issued_(size) {}

    void issued(uint32_t rank, uint64_t call) {
        issued_[rank].call.store(call, std::memory_order_relaxed);
    }
    // Called by the thread that waits in the latest call of `rank`. Returns nothing if another
    // thread could still make the missing call; threads whose names begin with `threads_of_gpus`
    // make none.
    std::optional<Error> find_deadlock(uint32_t rank, std::string_view threads_of_gpus) const;

    // For a communicator of `size` ranks that some of these ranks make together. Ranks that pass
    // the same `number` and `eldest` get the same object.
    std::shared_ptr<SiblingComms> child_comm(uint64_t number, uint32_t eldest, uint32_t size);

private:
    struct alignas(64) Issued { // a cache line each: ranks write theirs in every call
        std::atomic<uint64_t> call{0};
    };
    std::vector<Issued> issued_;
    std::mutex mutex_;
    std::map<std::pair<uint64_t, uint32_t>, std::weak_ptr<SiblingComms>> children_;
};

} // namespace qccl
