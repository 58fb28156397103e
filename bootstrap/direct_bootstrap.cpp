// The bootstraps that need no rendezvous. The local one is for ranks that are threads of one
// process: they exchange through memory that a mutex guards, each rank's object may be used by a
// thread of its own, and all_gather() blocks. The other one (oob) uses an all-gather that the
// caller provides, such as MPI's, a torch Store's or PMIx's: a call blocks as long as the caller's
// function does.

#include "base/clock.hpp"
#include "bootstrap/bootstraps.hpp"
#include "bootstrap/rendezvous_state.hpp"

#include <condition_variable>
#include <cstring>
#include <mutex>

namespace qccl {

// ---- Threads of one process

namespace {

class MeetingPlace {
public:
    MeetingPlace(uint32_t size, std::chrono::nanoseconds timeout)
        : size_(size), timeout_(timeout), left_(size), round_(size) {}

    uint32_t size() const { return size_; }
    Result<Payload> exchange(uint32_t rank, std::span<const std::byte> mine);
    void leave(uint32_t rank);

private:
    void fail(const Error &error) {
        if (!failure_) failure_ = error;
        changed_.notify_all();
    }
    // Fails a round that has begun if a rank has left: such a round can never be complete.
    void check_for_leavers();

    const uint32_t size_;
    const std::chrono::nanoseconds timeout_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<bool> left_;
    std::optional<Error> failure_;
    Round round_;
    uint64_t rounds_done_ = 0;
    Payload last_; // of the latest complete round; all ranks take it before the next is complete
};

Result<Payload> MeetingPlace::exchange(uint32_t rank, std::span<const std::byte> mine) {
    std::unique_lock lock(mutex_);
    if (failure_) return *failure_;
    if (const Done added = round_.add(rank, mine); !added) fail(added.error());
    check_for_leavers();
    if (round_.is_complete() && !failure_) {
        last_ = round_.take();
        rounds_done_++;
        changed_.notify_all();
        return last_;
    }

    const uint64_t wanted = rounds_done_ + 1;
    const TimePoint deadline = deadline_after(Clock::now(), timeout_);
    while (rounds_done_ < wanted && !failure_) {
        if (Clock::now() >= deadline)
            fail(late_error(round_.missing(), size_, timeout_));
        else if (deadline == TimePoint::max())
            changed_.wait(lock);
        else
            changed_.wait_until(lock, deadline);
    }
    if (rounds_done_ >= wanted) return last_;
    return *failure_;
}

void MeetingPlace::leave(uint32_t rank) {
    const std::lock_guard lock(mutex_);
    left_[rank] = true;
    check_for_leavers();
}

void MeetingPlace::check_for_leavers() {
    if (!round_.has_begun() || failure_) return;
    for (uint32_t rank = 0; rank < size_; rank++)
        if (left_[rank])
            return fail(Error::make(Code::peer_lost,
                                    "rank %u left before the exchange that rank %u waits in", rank,
                                    round_.first())
                            .at_rank(rank));
}

class LocalBootstrap final : public Bootstrap {
public:
    LocalBootstrap(std::shared_ptr<MeetingPlace> place, uint32_t rank)
        : place_(std::move(place)), rank_(rank) {}
    ~LocalBootstrap() override { place_->leave(rank_); }
    LocalBootstrap(const LocalBootstrap &) = delete;
    LocalBootstrap &operator=(const LocalBootstrap &) = delete;

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return place_->size(); }
    std::string means() const override { return "threads of this process"; }

    Done all_gather(const void *mine, void *all, size_t bytes) override {
        QCCL_TRY(const Payload gathered,
                 place_->exchange(rank_, {static_cast<const std::byte *>(mine), bytes}));
        if (bytes > 0) std::memcpy(all, gathered->data(), gathered->size());
        return {};
    }

private:
    std::shared_ptr<MeetingPlace> place_;
    uint32_t rank_;
};

} // namespace

std::vector<std::unique_ptr<Bootstrap>> create_local_bootstraps(uint32_t size,
                                                                std::chrono::nanoseconds timeout) {
    const auto place = std::make_shared<MeetingPlace>(size, timeout);
    std::vector<std::unique_ptr<Bootstrap>> ranks;
    for (uint32_t rank = 0; rank < size; rank++)
        ranks.push_back(std::make_unique<LocalBootstrap>(place, rank));
    return ranks;
}

// ---- The caller's all-gather

namespace {

// As qcclOob_t documents: the function knows that another rank will not come.
constexpr int another_rank_is_refused = -static_cast<int>(Code::remote_error);

class OobBootstrap final : public Bootstrap {
public:
    OobBootstrap(uint32_t size, uint32_t rank, AllGatherFunction function, void *context)
        : size_(size), rank_(rank), function_(function), context_(context) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return size_; }
    std::string means() const override { return "the caller's all-gather"; }

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
