// Implements rank_group.hpp: the RankGroup over shared memory, the reporting of errors, the opening
// of a rank's GPU and its stream, and copies between host memory and the device.
#include "perf/run/rank_group.hpp"

#include "device/loader.hpp"
#include "topology/sources/calibration_source.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

namespace qccl::perf {

// ---- Group

static constexpr size_t page_bytes = 4096;
static constexpr size_t slot_bytes = size_t{16} << 10; // of one rank, in one round of an all-gather

static size_t board_bytes(uint32_t ranks) { return page_bytes + ranks * slot_bytes; }

Result<std::unique_ptr<Board>> Board::create(uint32_t ranks) {
    void *const memory = mmap(nullptr, board_bytes(ranks), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error::make(Code::system_error, "no memory for %u ranks to share", ranks);
    new (memory) Head{};
    return std::unique_ptr<Board>(new Board(memory, ranks));
}

Board::~Board() { munmap(memory_, board_bytes(ranks_)); }

std::byte *Board::slot(uint32_t rank) const {
    return static_cast<std::byte *>(memory_) + page_bytes + rank * slot_bytes;
}

void Board::give_up() { head().given_up = true; }

// Ranks may outnumber cores, and one rank may compute for seconds while the others wait. So a rank
// spins briefly for the common case and then leaves the core to other ranks.
static void wait_a_little(uint32_t turn) {
    static constexpr uint32_t spins = 200, yields = 2000;
    if (turn < spins) return;
    if (turn < yields) {
        sched_yield();
        return;
    }
    const timespec pause{0, 50'000};
    nanosleep(&pause, nullptr);
}

class ShmRankGroup final : public RankGroup {
public:
    ShmRankGroup(Board &board, uint32_t rank) : board_(board), rank_(rank) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return board_.ranks_; }
    void give_up() override { board_.give_up(); }

    bool is_first_to_say(std::string_view sentence) override {
        const uint64_t mine = std::hash<std::string_view>()(sentence) | 1;
        for (std::atomic<uint64_t> &slot : board_.head().said) {
            uint64_t said = 0;
            if (slot.compare_exchange_strong(said, mine)) return true;
            if (said == mine) return false;
        }
        return true;
    }

    Done barrier() override {
        Board::Head &head = board_.head();
        if (head.given_up) return Error::make(Code::peer_lost, "%s", given_up);
        const uint32_t round = head.round;
        if (head.arrived.fetch_add(1) + 1 == size()) {
            head.arrived = 0;
            head.round = round + 1;
        }
        for (uint32_t turn = 0; head.round == round; turn++) {
            if (head.given_up) return Error::make(Code::peer_lost, "%s", given_up);
            wait_a_little(turn);
        }
        return {};
    }

    Done allgather(const void *mine, void *all, size_t bytes) override {
        for (size_t done = 0; done < bytes; done += slot_bytes) {
            const size_t piece = std::min(slot_bytes, bytes - done);
            std::memcpy(board_.slot(rank_), static_cast<const std::byte *>(mine) + done, piece);
            QCCL_TRY(barrier());
            for (uint32_t peer = 0; peer < size(); peer++)
                std::memcpy(static_cast<std::byte *>(all) + peer * bytes + done, board_.slot(peer),
                            piece);
            QCCL_TRY(barrier()); // a slot may be overwritten only after all ranks have read it
        }
        return {};
    }

private:
    Board &board_;
    uint32_t rank_;
};

bool is_given_up(const Error &error) { return std::string_view(error.text) == RankGroup::given_up; }

int complain(RankGroup &rank_group, const Error &error) {
    if (!is_given_up(error) && rank_group.is_first_to_say(error.text))
        std::fprintf(stderr, "rank %u: %s\n", rank_group.rank(), error.text);
    return EXIT_FAILURE;
}

Done settle(RankGroup &rank_group, const Done &mine) {
    QCCL_TRY(const auto all, gather(rank_group, mine ? Code::success : mine.error().code));
    for (uint32_t rank = 0; rank < rank_group.size(); rank++)
        if (all[rank] != Code::success)
            return rank == rank_group.rank() ? mine.error()
                                             : Error::make(all[rank], "%s", RankGroup::given_up);
    return {};
}

std::unique_ptr<RankGroup> Board::join(uint32_t rank) {
    return std::make_unique<ShmRankGroup>(*this, rank);
}

// ---- Device

Result<RankDevice> RankDevice::open(const std::string &name) {
    RankDevice device(name);
    QCCL_TRY(device.gpu_, open_gpu(name));
    if (device.gpu_) {
        QCCL_TRY(device.stream_, OwnStream::create(device.gpu_, StreamPriority::usual));
    }
    return Result<RankDevice>(std::move(device));
}

std::string RankDevice::model() const { return gpu_ ? gpu_->traits().model : processor_name(); }

qcclStream_t RankDevice::stream() const {
    return enqueues() ? static_cast<qcclStream_t>(stream_.get()) : QCCL_STREAM_SYNC;
}

Done RankDevice::wait() const { return gpu_ ? gpu_->synchronize(stream_.get()) : Done(); }

Done RankDevice::copy(void *to, const void *from, size_t bytes) const {
    if (bytes == 0) return {};
    if (!gpu_) {
        std::memcpy(to, from, bytes);
        return {};
    }
    QCCL_TRY(gpu_->copy(stream_.get(), to, from, bytes));
    return wait();
}

} // namespace qccl::perf
