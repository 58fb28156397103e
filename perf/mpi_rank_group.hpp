// A RankGroup of the ranks that mpirun has started. MPI itself is in a module that is loaded here.
// Used by qccl-perf. Calls block until all ranks have called; one thread at a time.
#pragma once

#include "perf/rank_group.hpp"
#include "perf/mpi_module.hpp"

#include <memory>

namespace qccl::perf {

// Returns whether an MPI launcher has started this process.
bool is_under_mpi();

class MpiRankGroup final : public RankGroup {
public:
    // Loads the module and initializes MPI; the error says what is missing.
    static Result<std::unique_ptr<MpiRankGroup>> create();
    ~MpiRankGroup() override;

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override;
    void give_up() override; // does not return
    bool is_first_to_say(std::string_view) override { return true; }

    const MpiModule &module() const { return module_; }

private:
    MpiRankGroup(const MpiModule &module, uint32_t rank, uint32_t size)
        : module_(module), rank_(rank), size_(size) {}

    const MpiModule &module_;
    uint32_t rank_;
    uint32_t size_;
};

} // namespace qccl::perf
