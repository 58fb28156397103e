// The ranks that a launcher, or somebody by hand, has started with environment variables that say
// who is who: a crew over the bootstrap that qcclCommInitEnv has.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "perf/crew.hpp"

#include <memory>

namespace qccl::perf {

class EnvironmentCrew final : public Crew {
public:
    static Result<std::unique_ptr<EnvironmentCrew>> join();

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override { return allgather(nullptr, nullptr, 0); }
    // The others hear that this rank has left.
    void give_up() override { bootstrap_.reset(); }
    bool is_first_to_say(std::string_view) override { return true; }

private:
    explicit EnvironmentCrew(std::unique_ptr<Bootstrap> bootstrap)
        : rank_(bootstrap->rank()), size_(bootstrap->size()), bootstrap_(std::move(bootstrap)) {}

    uint32_t rank_;
    uint32_t size_;
    std::unique_ptr<Bootstrap> bootstrap_;
};

} // namespace qccl::perf
