// A communicator falls into others, for C: all ranks tell their colors in a call like any other,
// and those of one color meet beside the calls.
#include "api/entry.hpp"
#include "api/offspring.hpp"

#include <algorithm>

namespace qccl {

namespace {

// Where a rank wants to be.
struct Place {
    int32_t color = QCCL_SPLIT_NOCOLOR;
    int32_t key = 0;
};

std::vector<uint32_t> ranks_of(int32_t color, const std::vector<Place> &places) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < places.size(); rank++)
        if (places[rank].color == color) ranks.push_back(rank);
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](uint32_t a, uint32_t b) { return places[a].key < places[b].key; });
    return ranks;
}

// Null where this rank wants to be nowhere.
Result<std::shared_ptr<Comm>> split(Comm &parent, const Place &mine, const CommWishes &wishes) {
    QCCL_TRY(const Turns::Hold hold, parent.hold_calls());
    const auto timeout = timeout_of(parent, wishes);
    std::vector<Place> places(parent.size());
    const auto call = contained(
        [&] { return parent.gather(comm_split, &mine, places.data(), sizeof mine, timeout); });
    if (!call && is_refusal(call.error())) return call.error();
    if (!call) return parent.abandon(comm_split, call.error());
    if (mine.color == QCCL_SPLIT_NOCOLOR) return std::shared_ptr<Comm>();
    Circle circle{.topic = 2 * *call, // of shrinking it is odd
                  .members = ranks_of(mine.color, places),
                  .timeout = timeout,
                  .what = "qcclCommSplit",
                  .is_called_off = [&parent] { return parent.is_closed(); }};
    return create_offspring(parent, circle, wishes, "split");
}

} // namespace
} // namespace qccl

using namespace qccl;

qcclResult_t qcclCommSplit(qcclComm_t comm, int color, int key, qcclComm_t *comm_out,
                           const qcclConfig_t *config) {
    return inside(comm, [=](Comm &parent) -> Done {
        if (color < 0 && color != QCCL_SPLIT_NOCOLOR)
            return Error::make(Code::invalid_argument,
                               "color is %d; possible are 0 and more, and QCCL_SPLIT_NOCOLOR (%d)",
                               color, QCCL_SPLIT_NOCOLOR)
                .compared(QCCL_SPLIT_NOCOLOR, color);
        if (!comm_out) return Error::make(Code::invalid_argument, "comm_out is NULL");
        QCCL_TRY(const CommWishes wishes, take_wishes(parent, config));
        QCCL_TRY(auto made, split(parent, {color, key}, wishes));
        if (made) return make_handle(std::move(made), comm_out);
        *comm_out = nullptr;
        return {};
    });
}
QCCL_TWIN(qcclCommSplit);
