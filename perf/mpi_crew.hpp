// The ranks that mpirun has started, as a crew; MPI itself lives in a module that is loaded here.
#pragma once

#include "perf/crew.hpp"
#include "perf/mpi_module.hpp"

#include <memory>

namespace qccl::perf {

// Whether a launcher of MPI processes has started this one, with others.
bool is_under_mpi();

class MpiCrew final : public Crew {
public:
    // Loads the module and starts MPI; the error says what is missing.
    static Result<std::unique_ptr<MpiCrew>> create();
    ~MpiCrew() override;

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    Done allgather(const void *mine, void *all, size_t bytes) override;
    Done barrier() override;
    void give_up() override; // does not return
    bool is_first_to_say(std::string_view) override { return true; }

    const MpiModule &module() const { return module_; }

private:
    MpiCrew(const MpiModule &module, uint32_t rank, uint32_t size)
        : module_(module), rank_(rank), size_(size) {}

    const MpiModule &module_;
    uint32_t rank_;
    uint32_t size_;
};

} // namespace qccl::perf
