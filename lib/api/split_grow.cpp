// C functions that make a communicator of ranks of another one; they block until these ranks have
// joined it, unless its config is nonblocking.
// qcclCommSplit: all ranks exchange their colors in a call of the parent, and the ranks of one
// color create a communicator over the parent's SurvivorExchange. qcclCommDup: the same with one
// color.
// qcclCommGrow: the ranks exchange the unique id, by which they and new ranks join.

#include "api/call/child_comm.hpp"
#include "api/call/entry.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

namespace qccl {

// ---- Split

namespace {

enum class ChildFunction : int32_t { split = 0, dup = 1, grow = 2 };

// What a rank passes to qcclCommSplit. In the other functions all ranks have one color, and in
// qcclCommGrow the key is the number of ranks.
struct ColorKey {
    int32_t color = QCCL_SPLIT_NOCOLOR;
    int32_t key = 0;
    ChildFunction called = ChildFunction::split;

    const char *function() const {
        switch (called) {
        case ChildFunction::grow: return "qcclCommGrow";
        case ChildFunction::dup: return "qcclCommDup";
        default: return "qcclCommSplit";
        }
    }
};

// Returns the color of the rank's host, which no caller can name.
int32_t color_of_host(const Comm &comm) {
    const RankTopology *const places = comm.parts().places.get();
    const uint32_t host = places ? places->hosts().group_of(comm.rank()) : 0;
    return INT32_MIN + static_cast<int32_t>(host);
}

// All ranks know all places, so that all get the same error.
Done check_alike(const std::vector<ColorKey> &places) {
    for (uint32_t rank = 0; rank < places.size(); rank++)
        if (places[rank].called != places[0].called)
            return Error::make(Code::mismatch, "rank %" PRIu32 " calls %s, rank 0 %s", rank,
                               places[rank].function(), places[0].function())
                .at_rank(rank);
    return {};
}

std::vector<uint32_t> ranks_of(int32_t color, const std::vector<ColorKey> &places) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < places.size(); rank++)
        if (places[rank].color == color) ranks.push_back(rank);
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](uint32_t a, uint32_t b) { return places[a].key < places[b].key; });
    return ranks;
}

// Even; those of shrinks are odd.
uint64_t topic_of_split(uint64_t call) { return 2 * call; }

// Fails the parent because its call for this split has failed here. On other ranks that call may
// have succeeded: they wait for this rank in an exchange.
Error give_up_split(Comm &parent, uint64_t call, const Error &error) {
    const Error failed = parent.abandon(comm_split, error);
    MemberGroup all{.topic = topic_of_split(call)};
    for (uint32_t rank = 0; rank < parent.size(); rank++) all.members.push_back(rank);
    parent.parts().transport->survivor_exchange().abandon(all, failed);
    return failed;
}

// The ranks tell each other what they ask for. Returns the number of that call.
Result<uint64_t> exchange_colors(Comm &parent, const ColorKey &mine, std::vector<ColorKey> &places,
                                 std::chrono::nanoseconds timeout, CommTask *task) {
    places.resize(parent.size());
    const uint64_t before = parent.last_call();
    const auto call = wait_in(parent, task, [&] {
        return parent.gather(comm_split, &mine, places.data(), sizeof mine, timeout);
    });
    if (!call) {
        if (is_refusal(call.error())) return call.error();
        if (parent.last_call() == before) return parent.abandon(comm_split, call.error());
        return give_up_split(parent, parent.last_call(), call.error());
    }
    QCCL_TRY(check_alike(places));
    return call;
}

// Returns null if this rank joins no communicator. `task`: the one that splits; null: none does.
Result<std::shared_ptr<Comm>> split(Comm &parent, const ColorKey &mine,
                                    const ChildSettings &settings, CommTask *task) {
    QCCL_TRY(const CallSequencer::Hold hold,
             wait_in(parent, task, [&] { return parent.hold_calls(); }));
    const auto timeout = timeout_of(parent, settings.comm_config);
    std::vector<ColorKey> places;
    QCCL_TRY(const uint64_t call, exchange_colors(parent, mine, places, timeout, task));
    if (mine.color == QCCL_SPLIT_NOCOLOR) return std::shared_ptr<Comm>();
    MemberGroup group{.topic = topic_of_split(call),
                      .members = ranks_of(mine.color, places),
                      .timeout = timeout,
                      .what = mine.function(),
                      .is_called_off = [&parent] { return parent.is_closed(); },
                      .cancel_check = cancel_check_of(task, parent.rank(), mine.function())};
    return create_child(parent, group, settings.comm_config, settings.env_settings,
                        {.how = "split"});
}

Done split_or_later(Comm &parent, const ColorKey &mine, const ChildSettings &settings,
                    qcclComm_t *comm_out, LaterWork &later) {
    const auto create = [&parent, mine, settings](CommTask *task) {
        return split(parent, mine, settings, task);
    };
    return make_child_comm(settings.comm_config, mine.color != QCCL_SPLIT_NOCOLOR, comm_out, later,
                           create);
}

// ---- Grow

// The id of the new communicator, which at least one rank passes.
struct IdOffer {
    qcclUniqueId id{};
    int32_t has_id = 0;
};

struct GrowOrder {
    int32_t nranks;
    IdOffer offer;
    ChildSettings settings;
};

// All ranks know what all have passed, so that all get the same error.
Done check_sizes(const std::vector<ColorKey> &places) {
    for (uint32_t rank = 0; rank < places.size(); rank++)
        if (places[rank].key != places[0].key)
            return Error::make(Code::mismatch,
                               "nranks is %" PRId32 " on rank %" PRIu32 ", but %" PRId32
                               " on rank 0",
                               places[rank].key, rank, places[0].key)
                .at_rank(rank)
                .compared(places[0].key, places[rank].key);
    return {};
}

Result<qcclUniqueId> take_id(const std::vector<IdOffer> &offers) {
    std::optional<uint32_t> first;
    for (uint32_t rank = 0; rank < offers.size(); rank++) {
        if (offers[rank].has_id == 0) continue;
        if (!first) first = rank;
        if (std::memcmp(&offers[rank].id, &offers[*first].id, sizeof offers[rank].id) != 0)
            return Error::make(Code::mismatch,
                               "rank %" PRIu32 " passes another id than rank %" PRIu32, rank,
                               *first)
                .at_rank(rank);
    }
    if (first) return offers[*first].id;
    return invalid_argument("id is NULL on all ranks of comm; one of them makes it with "
                            "qcclGetUniqueId and passes it");
}

// `split`: the number of the call before, in which the ranks have agreed to grow.
Result<qcclUniqueId> exchange_ids(Comm &parent, uint64_t split, const GrowOrder &order,
                                  std::chrono::nanoseconds timeout, CommTask *task) {
    std::vector<IdOffer> offers(parent.size());
    const auto call = wait_in(parent, task, [&] {
        return parent.gather(comm_split, &order.offer, offers.data(), sizeof order.offer, timeout);
    });
    if (!call) return give_up_split(parent, split, call.error());
    return take_id(offers);
}

// Ranks that wait for the rendezvous look every 20 ms whether one of them has given up.
constexpr std::chrono::milliseconds time_to_hear(200);

// The ranks of the parent tell each other over it if one of them cannot join: the rendezvous does
// not know a rank that it has refused, or that has died before it came.
Result<std::shared_ptr<Comm>> join_with(Comm &parent, const MemberGroup &group,
                                        const JoinOrder &order, const CommTask *task) {
    SurvivorExchange &others = parent.parts().transport->survivor_exchange();
    auto made = exception_boundary([&] {
        return join(order, task, [&]() -> Done {
            if (parent.is_closed())
                return Error::make(Code::revoked, "rank %" PRIu32 " aborted the old communicator",
                                   parent.rank());
            return others.check(group);
        });
    });
    if (made) return made;
    others.abandon(group, Error::make(Code::remote_error, "rank %" PRIu32 " could not join: %.400s",
                                      parent.rank(), made.error().text)
                              .at_rank(parent.rank()));
    // The caller's next call may publish something else in the same place.
    std::this_thread::sleep_for(time_to_hear);
    return made;
}

Result<std::shared_ptr<Comm>> grow(Comm &parent, const GrowOrder &order, CommTask *task) {
    QCCL_TRY(const CallSequencer::Hold hold,
             wait_in(parent, task, [&] { return parent.hold_calls(); }));
    const auto timeout = timeout_of(parent, order.settings.comm_config);
    const ColorKey mine{.color = 0, .key = order.nranks, .called = ChildFunction::grow};
    std::vector<ColorKey> places;
    QCCL_TRY(const uint64_t call, exchange_colors(parent, mine, places, timeout, task));
    QCCL_TRY(check_sizes(places));
    QCCL_TRY(const qcclUniqueId id, exchange_ids(parent, call, order, timeout, task));
    const MemberGroup group{.topic = topic_of_split(call),
                            .members = ranks_of(mine.color, places),
                            .timeout = timeout,
                            .what = mine.function()};
    return join_with(parent, group,
                     {.nranks = order.nranks,
                      .rank = static_cast<int>(parent.rank()),
                      .id = id,
                      .comm_config = order.settings.comm_config,
                      .env_settings = order.settings.env_settings,
                      .origin = origin_of_child(parent, "grow")},
                     task);
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCommSplit(qcclComm_t comm, int color, int key, qcclComm_t *comm_out,
                           const qcclConfig_t *config) {
    return inside_or_later(comm, [=](Comm &parent, LaterWork &later) -> Done {
        if (color < 0 && color != QCCL_SPLIT_NOCOLOR && color != QCCL_SPLIT_NODE)
            return invalid_argument("color is %d; possible are 0 and more, QCCL_SPLIT_NOCOLOR (%d) "
                                    "and QCCL_SPLIT_NODE (%d)",
                                    color, QCCL_SPLIT_NOCOLOR, QCCL_SPLIT_NODE)
                .compared(QCCL_SPLIT_NOCOLOR, color);
        if (!comm_out) return invalid_argument("comm_out is NULL");
        QCCL_TRY(const CommConfig comm_config, parse_config(parent, config));
        const int32_t taken = color == QCCL_SPLIT_NODE ? color_of_host(parent) : color;
        return split_or_later(parent, {taken, key}, {comm_config}, comm_out, later);
    });
}
QCCL_TWIN(qcclCommSplit);

qcclResult_t qcclCommDup(qcclComm_t comm, qcclComm_t *comm_out, const qcclConfig_t *config) {
    return inside_or_later(comm, [=](Comm &parent, LaterWork &later) -> Done {
        if (!comm_out) return invalid_argument("comm_out is NULL");
        QCCL_TRY(const CommConfig comm_config, parse_config(parent, config));
        return split_or_later(parent, {.color = 0, .key = 0, .called = ChildFunction::dup},
                              {comm_config}, comm_out, later);
    });
}
QCCL_TWIN(qcclCommDup);

qcclResult_t qcclCommGrow(qcclComm_t comm, int nranks, const qcclUniqueId *id, int rank,
                          qcclComm_t *comm_out, const qcclConfig_t *config) {
    if (!comm) return pqcclCommInitRankConfig(comm_out, nranks, id, rank, config);
    return inside_or_later(comm, [=](Comm &parent, LaterWork &later) -> Done {
        if (nranks <= static_cast<int>(parent.size()))
            return invalid_argument("nranks is %d, but comm has %" PRIu32 " ranks already", nranks,
                                    parent.size())
                .compared(parent.size() + 1, nranks);
        if (rank != -1)
            return invalid_argument("rank is %d; a rank of comm keeps its number and passes -1",
                                    rank)
                .compared(-1, rank);
        if (!comm_out) return invalid_argument("comm_out is NULL");
        GrowOrder order{.nranks = nranks, .offer = {}, .settings = {}};
        QCCL_TRY(order.settings.comm_config, parse_config(parent, config));
        if (id) order.offer = {.id = *id, .has_id = 1};
        return make_child_comm(
            order.settings.comm_config, true, comm_out, later,
            [&parent, order](CommTask *task) { return grow(parent, order, task); });
    });
}
QCCL_TWIN(qcclCommGrow);
