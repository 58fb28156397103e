// An all-gather that no rank leaves half-way. Before each one the ranks exchange their status, so
// that all ranks learn of a failure at their next exchange instead of waiting for the rank that has
// failed. Used by creation, on one thread; it blocks until all ranks have come.
#pragma once

#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"

#include <vector>

namespace qccl {

class StatusAllGather {
public:
    explicit StatusAllGather(Bootstrap &bootstrap) : bootstrap_(bootstrap) {}

    // Gathers `bytes` bytes from each rank, equal on all ranks. If another rank has concluded with
    // an error, returns that error (remote_error).
    Done all_gather(const void *mine, void *all, size_t bytes);
    // Returns the value that rank 0 gives; other ranks' values are ignored.
    template <class Data> Result<Data> of_rank_0(const Data &mine) {
        std::vector<Data> all(bootstrap_.size());
        QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
        return all.front();
    }
    // Tells all ranks how this rank has fared since the last exchange, and returns the first
    // failure of any rank. After an error of all_gather every rank knows already, and this only
    // returns `mine`.
    Done conclude(const Done &mine);

private:
    Done agree(const Done &mine, uint64_t bytes);

    Bootstrap &bootstrap_;
    bool is_over_ = false; // all ranks know of a failure
};

} // namespace qccl
