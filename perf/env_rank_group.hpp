// A RankGroup of ranks that a launcher, or a user by hand, has started with environment variables
// that give each its rank. Uses the same bootstrap as qcclCommInitEnv. Calls block until all ranks
// have called; one thread at a time.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "perf/rank_group.hpp"

#include <memory>

namespace qccl::perf {

class EnvRankGroup final : public RankGroup {
public:
    static Result<std::unique_ptr<EnvRankGroup>> join();

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override { return allgather(nullptr, nullptr, 0); }
    // The other ranks learn that this rank has left.
    void give_up() override { bootstrap_.reset(); }
    bool is_first_to_say(std::string_view) override { return true; }

private:
    explicit EnvRankGroup(std::unique_ptr<Bootstrap> bootstrap)
        : rank_(bootstrap->rank()), size_(bootstrap->size()), bootstrap_(std::move(bootstrap)) {}

    uint32_t rank_;
    uint32_t size_;
    std::unique_ptr<Bootstrap> bootstrap_;
};

} // namespace qccl::perf
