// Bootstrap over an all-gather that the caller provides: MPI's, a torch Store's, PMIx's. A call
// blocks as long as the caller's function does.
#include "bootstrap/bootstrap.hpp"

#include <cstring>

namespace qccl {

namespace {

// As qcclOob_t documents: the function knows that another rank will not come.
constexpr int another_rank_is_refused = -static_cast<int>(Code::remote_error);

class OobBootstrap final : public Bootstrap {
public:
    OobBootstrap(uint32_t size, uint32_t rank, AllGatherFunction function, void *context)
        : size_(size), rank_(rank), function_(function), context_(context) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }

    Done all_gather(const void *mine, void *all, size_t bytes) override {
        const int status = function_(mine, all, bytes, context_);
        if (status == another_rank_is_refused)
            return Error::make(Code::remote_error,
                               "another rank will not come: it was refused for its arguments");
        if (status != 0)
            return Error::make(Code::system_error, "the caller's all-gather returned %d on rank %u",
                               status, rank_)
                .compared(0, status);
        // If the function numbers the ranks differently, the mistake would otherwise show up much
        // later, as a peer that answers for another.
        const auto *own = static_cast<const std::byte *>(all) + rank_ * bytes;
        if (bytes > 0 && std::memcmp(own, mine, bytes) != 0)
            return Error::make(Code::invalid_usage,
                               "the caller's all-gather put other bytes in the place of rank %u "
                               "than rank %u gave: does it number the ranks differently?",
                               rank_, rank_)
                .at_rank(rank_);
        return {};
    }

private:
    uint32_t size_;
    uint32_t rank_;
    AllGatherFunction function_;
    void *context_;
};

} // namespace

std::unique_ptr<Bootstrap> create_oob_bootstrap(uint32_t size, uint32_t rank,
                                                AllGatherFunction all_gather, void *context) {
    return std::make_unique<OobBootstrap>(size, rank, all_gather, context);
}

} // namespace qccl
