// One all-gather in progress: which rank has contributed what. The local bootstrap and the
// rendezvous server use it. It does no I/O and takes no lock.
#pragma once

#include "base/result.hpp"
#include "bootstrap/missing.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

using Payload = std::shared_ptr<const std::vector<std::byte>>;

class Round {
public:
    explicit Round(uint32_t size) : came_(size) {}

    // Adds a rank's bytes. Refuses a rank that gives another number of bytes than the first one
    // (mismatch), and one that gives twice (invalid_usage).
    Done add(uint32_t rank, std::span<const std::byte> mine);

    bool has_begun() const { return count_ > 0; }
    bool is_complete() const { return count_ == came_.size(); }
    Missing missing() const { return missing_ranks(came_); }
    uint32_t first() const { return first_; } // the rank that began the round
    uint32_t lowest() const { return lowest_rank(came_); }
    // Returns the complete round's bytes in rank order; the next round begins.
    Payload take();

private:
    std::vector<bool> came_;
    std::vector<std::byte> gathered_;
    uint32_t first_ = 0;
    size_t bytes_ = 0;
    size_t count_ = 0;
};

} // namespace qccl
