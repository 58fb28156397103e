// The communicators that one qcclCommInitAll made: sees when the process has only one thread and
// that thread waits in one of them for a call that it would have to make itself.
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

class Family {
public:
    explicit Family(uint32_t size) : issued_(size) {}

    void issued(uint32_t rank, uint64_t call) {
        issued_[rank].call.store(call, std::memory_order_relaxed);
    }
    // For the thread that waits in the latest call of `rank`. Silent where another thread could
    // still make the call that is missing, which none whose name begins so would.
    std::optional<Error> find_deadlock(uint32_t rank, std::string_view threads_of_gpus) const;

    // Of a communicator that some of these ranks make together: the same for all who ask with the
    // same number and eldest.
    std::shared_ptr<Family> offspring(uint64_t number, uint32_t eldest, uint32_t size);

private:
    struct alignas(64) Issued { // a cache line each: ranks write theirs in every call
        std::atomic<uint64_t> call{0};
    };
    std::vector<Issued> issued_;
    std::mutex mutex_;
    std::map<std::pair<uint64_t, uint32_t>, std::weak_ptr<Family>> offspring_;
};

} // namespace qccl
