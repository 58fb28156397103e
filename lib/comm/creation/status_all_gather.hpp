// An all-gather that no rank leaves half-way. Each one carries the status of every rank, so that
// all ranks learn of a failure at their next exchange instead of waiting for the rank that has
// failed. Used by creation. One thread uses it, and it blocks until all ranks have come.
#pragma once

#include "base/result.hpp"
#include "net/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

class StatusAllGather {
public:
    explicit StatusAllGather(Bootstrap &bootstrap) : bootstrap_(bootstrap) {}

    // Gathers `bytes` bytes from each rank, equal on all ranks. If another rank has concluded with
    // an error, returns that error (remote_error). Takes one all-gather of the bootstrap for up to
    // most_in_one bytes, and two for more.
    static constexpr size_t most_in_one = 2048;
    Done all_gather(const void *mine, void *all, size_t bytes);
    // Returns the value that rank 0 gives; other ranks' values are ignored.
    template <class Data> Result<Data> of_rank_0(const Data &mine) {
        std::vector<Data> all(bootstrap_.size());
        QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
        return all.front();
    }
    // Tells all ranks how this rank has fared since the last exchange. Returns `mine` if it is an
    // error, or that of the rank that it says is lost; else the error of the lowest rank that has
    // failed. After an error of all_gather every rank knows already, and this only returns `mine`.
    Done conclude(const Done &mine);

private:
    // Exchanges the status of all ranks and, if they fit, the bytes of an all-gather.
    Done agree(const Done &mine, const void *data, void *all, uint64_t bytes);

    Bootstrap &bootstrap_;
    bool is_over_ = false; // all ranks know of a failure
};

} // namespace qccl
