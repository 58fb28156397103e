// An all-gather that cannot be left half-way: in front of each the ranks tell whether they are
// still well, so that one that has failed is heard by all at their next exchange instead of missed.
#pragma once

#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"

#include <vector>

namespace qccl {

class Exchange {
public:
    explicit Exchange(Bootstrap &bootstrap) : bootstrap_(bootstrap) {}

    // Of `bytes` bytes, equal on all ranks; an error that another rank has concluded with is ours.
    Done all_gather(const void *mine, void *all, size_t bytes);
    // What rank 0 gives; others' counts for nothing.
    template <class Data> Result<Data> of_rank_0(const Data &mine) {
        std::vector<Data> all(bootstrap_.size());
        QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
        return all.front();
    }
    // Tells all how this rank fared since the last exchange, and gives the first failure of any.
    // After an error of all_gather's own every rank knows already, and this only forwards it.
    Done conclude(const Done &mine);

private:
    Done agree(const Done &mine, uint64_t bytes);

    Bootstrap &bootstrap_;
    bool is_over_ = false; // a failure is known to all
};

} // namespace qccl
