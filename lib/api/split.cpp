// qcclCommSplit: all ranks exchange their colors in a call of the parent, and the ranks of one
// color create a communicator over the parent's SurvivorExchange.
#include "api/entry.hpp"
#include "api/child_comm.hpp"

#include <algorithm>

namespace qccl {

namespace {

// What a rank passes to qcclCommSplit.
struct ColorKey {
    int32_t color = QCCL_SPLIT_NOCOLOR;
    int32_t key = 0;
};

std::vector<uint32_t> ranks_of(int32_t color, const std::vector<ColorKey> &places) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < places.size(); rank++)
        if (places[rank].color == color) ranks.push_back(rank);
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](uint32_t a, uint32_t b) { return places[a].key < places[b].key; });
    return ranks;
}

// Returns null if this rank joins no communicator.
Result<std::shared_ptr<Comm>> split(Comm &parent, const ColorKey &mine,
                                    const CommConfig &comm_config) {
    QCCL_TRY(const CallSequencer::Hold hold, parent.hold_calls());
    const auto timeout = timeout_of(parent, comm_config);
    std::vector<ColorKey> places(parent.size());
    const auto call = exception_boundary(
        [&] { return parent.gather(comm_split, &mine, places.data(), sizeof mine, timeout); });
    if (!call && is_refusal(call.error())) return call.error();
    if (!call) return parent.abandon(comm_split, call.error());
    if (mine.color == QCCL_SPLIT_NOCOLOR) return std::shared_ptr<Comm>();
    MemberGroup group{.topic = 2 * *call, // even; odd for shrink
                      .members = ranks_of(mine.color, places),
                      .timeout = timeout,
                      .what = "qcclCommSplit",
                      .is_called_off = [&parent] { return parent.is_closed(); }};
    return create_child(parent, group, comm_config, "split");
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
        QCCL_TRY(const CommConfig comm_config, parse_config(parent, config));
        QCCL_TRY(auto made, split(parent, {color, key}, comm_config));
        if (made) return make_handle(std::move(made), comm_out);
        *comm_out = nullptr;
        return {};
    });
}
QCCL_TWIN(qcclCommSplit);
