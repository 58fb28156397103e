// Makes the two communicators of a pair of ranks, the one of the lower rank first, and applies what
// happens to a communicator to all of its channels.
#include "comm/pair_channels.hpp"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// A channel carries one message at a time, and many ranks may have many channels.
static constexpr uint64_t most_arena_bytes = uint64_t{1} << 20;

static constexpr const char *creation_name = "qcclSend or qcclRecv";

// Topics of the survivor exchange: splits and shrinks use small numbers.
static constexpr uint64_t first_topic = uint64_t{1} << 62;

// What the peer hears, perhaps before it hears of the failure itself.
static Error of_failed_comm() {
    return Error::make(Code::revoked, "the communicator of this channel has failed");
}

static int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- The communicator as a channel sees it

PairChannels::Owner::Owner(const PairChannels &pairs, uint32_t peer, bool goes_up)
    : pairs_(pairs), peer_(peer),
      ends_(goes_up == (pairs.comm_.rank() < peer) ? MessageEnds{pairs.comm_.rank(), peer}
                                                   : MessageEnds{peer, pairs.comm_.rank()}) {}

void PairChannels::Owner::look() {
    Comm *const channel = channel_.load(std::memory_order_acquire);
    if (!channel) return;
    Comm &comm = pairs_.comm_;
    const CommParts &parts = channel->parts();
    if (parts.siblings && !parts.comm_config.idle.function && !comm.failure())
        if (const auto deadlock =
                parts.siblings->find_deadlock(channel->rank(), parts.device.threads()))
            comm.fail(pairs_.in_own_ranks(peer_, *deadlock));
    if (comm.failure()) channel->fail(of_failed_comm());
}

void PairChannels::Owner::waits(int64_t since_ns, int64_t now_ns) {
    const bool sends = ends_.sender != peer_;
    pairs_.comm_.parts().transport->message_waits({.peer = peer_, .sends = sends}, since_ns,
                                                  now_ns);
}

void PairChannels::Owner::wait_done() { pairs_.comm_.parts().transport->message_wait_done(); }

std::vector<RankState> PairChannels::Owner::states(int64_t now_ns) const {
    return pairs_.comm_.parts().transport->states(now_ns);
}

// ---- Channels

// Whether the sentence is FailureDetector's, about ranks of the communicator.
static bool has_own_ranks(const Error &of_channel) {
    return of_channel.code == Code::timeout || of_channel.code == Code::peer_lost ||
           of_channel.code == Code::mismatch;
}

Error PairChannels::in_own_ranks(uint32_t peer, const Error &of_channel) const {
    const MessageEnds ends{comm_.rank(), peer}; // in either order
    Error error = of_channel;
    if (!has_own_ranks(of_channel))
        error = reworded(of_channel,
                         "between rank %" PRIu32 " (0 here) and rank %" PRIu32 " (1 here): %.260s",
                         ends.rank_of(0), ends.rank_of(1), of_channel.text);
    if (of_channel.rank != Error::no_rank)
        error.at_rank(ends.rank_of(static_cast<uint32_t>(of_channel.rank)));
    return error;
}

Result<const PairChannel *> PairChannels::open(uint32_t peer, bool sends, Timeout timeout) {
    if (!pairs_.contains(peer)) {
        QCCL_TRY(ChannelPair pair, create(peer, sends, timeout));
        by_peer_.resize(comm_.size());
        const std::lock_guard lock(mutex_);
        by_peer_[peer] = &pairs_.emplace(peer, std::move(pair)).first->second;
    }
    return find(peer, sends);
}

Result<PairChannels::ChannelPair> PairChannels::create(uint32_t peer, bool sends, Timeout timeout) {
    ChannelPair pair{.up_owner = std::make_unique<Owner>(*this, peer, true),
                     .down_owner = std::make_unique<Owner>(*this, peer, false)};
    QCCL_TRY(pair.up.comm, create_one(peer, sends, timeout, *pair.up_owner));
    QCCL_TRY(pair.down.comm, create_one(peer, sends, timeout, *pair.down_owner));
    outgoing(peer, pair)->registrations().add_all(comm_.registrations());
    return pair;
}

Done PairChannels::check_creation(uint32_t peer) const {
    if (const auto failure = comm_.failure()) return failure->error;
    const CommParts &parts = comm_.parts();
    if (!parts.siblings) return {};
    const auto deadlock =
        SiblingComms::find_deadlock(comm_.rank(), peer, creation_name, parts.device.threads());
    return deadlock ? Done(*deadlock) : Done();
}

Result<std::shared_ptr<Comm>> PairChannels::create_one(uint32_t peer, bool sends, Timeout timeout,
                                                       Owner &owner) {
    const CommParts &parts = comm_.parts();
    const MessageEnds ends = owner.ends();
    const uint32_t lower = ends.rank_of(0), upper = ends.rank_of(1);
    CommConfig comm_config = parts.comm_config;
    comm_config.name +=
        (comm_config.name.empty() ? "messages from rank " : ", messages from rank ") +
        std::to_string(ends.sender) + " to rank " + std::to_string(ends.receiver);
    comm_config.codec.reset();
    comm_config.algorithm = {};
    const MessageWait wait{.peer = peer, .sends = sends};
    MemberGroup group{.topic = first_topic + (uint64_t{lower} * comm_.size() + upper) * 2 +
                               (ends.sender == lower ? 0 : 1),
                      .members = {lower, upper},
                      .timeout = timeout,
                      .what = creation_name,
                      .is_called_off = [this] { return comm_.is_closed(); },
                      .cancel_check =
                          [this, peer, wait, since = now_ns()] {
                              comm_.parts().transport->message_waits(wait, since, now_ns());
                              return check_creation(peer);
                          },
                      .is_apart = true};
    auto created =
        parts.create_child(comm_, group, comm_config, read_env_settings(),
                           {.how = "pair", .most_arena_bytes = most_arena_bytes, .owner = &owner});
    if (!created) {
        Error error = created.error();
        if (error.code == Code::timeout) error = explained(error, owner.states(now_ns()));
        owner.wait_done();
        // What the peer has reported names ranks of the channel; other errors name those of the
        // communicator, over which the two meet.
        return error.code == Code::remote_error ? in_own_ranks(peer, error) : error;
    }
    owner.wait_done();
    const std::shared_ptr<Comm> made = std::move(*created);
    owner.set_channel(*made);
    // After this call the peer has read all that this rank has published for the creation, so that
    // this rank may publish something else.
    uint32_t mine = comm_.rank(), both[2] = {};
    const auto gathered = made->gather(comm_split, &mine, both, sizeof mine, timeout);
    if (!gathered) return in_own_ranks(peer, gathered.error());
    return made;
}

std::vector<std::pair<uint32_t, std::shared_ptr<Comm>>> PairChannels::all() const {
    std::vector<std::pair<uint32_t, std::shared_ptr<Comm>>> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[peer, pair] : pairs_) {
        found.emplace_back(peer, pair.up.comm);
        found.emplace_back(peer, pair.down.comm);
    }
    return found;
}

const std::shared_ptr<Comm> &PairChannels::outgoing(uint32_t peer, const ChannelPair &pair) const {
    return (comm_.rank() < peer ? pair.up : pair.down).comm;
}

std::vector<std::shared_ptr<Comm>> PairChannels::outgoing() const {
    std::vector<std::shared_ptr<Comm>> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[peer, pair] : pairs_) found.push_back(outgoing(peer, pair));
    return found;
}

void PairChannels::share(const Registrations &registrations) {
    for (const auto &channel : outgoing()) channel->registrations().add_all(registrations);
}

void PairChannels::deregister(const void *handle) {
    for (const auto &channel : outgoing()) (void)channel->registrations().remove(handle);
}

void PairChannels::deregister_all() {
    for (const auto &channel : outgoing()) channel->registrations().clear();
}

// Returns the first error of any channel.
template <class Visitor> Done PairChannels::each(Visitor visit) const {
    Done first;
    for (const auto &[peer, channel] : all()) {
        const Done done = visit(*channel);
        if (!done && first) first = in_own_ranks(peer, done.error());
    }
    return first;
}

void PairChannels::give_up() {
    for (const auto &[peer, channel] : all()) channel->fail(of_failed_comm());
}

// In the order of peers: two ranks could wait for each other only if each had the other's channel
// behind one that waits, and the lowest such pair cannot.
Done PairChannels::finalize() {
    return each([](Comm &channel) { return channel.finalize(); });
}

Done PairChannels::conclude() {
    return each([](Comm &channel) { return channel.conclude(); });
}

bool PairChannels::is_busy() const {
    return std::ranges::any_of(all(), [](const auto &each) { return each.second->is_busy(); });
}

bool PairChannels::is_running_here() const {
    return std::ranges::any_of(all(),
                               [](const auto &each) { return each.second->is_running_here(); });
}

Counts PairChannels::counts() const {
    Counts sum;
    for (const auto &[peer, channel] : all()) sum += channel->counts();
    return sum;
}

void PairChannels::close() {
    for (const auto &[peer, channel] : all()) channel->close();
}

} // namespace qccl
