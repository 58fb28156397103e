// Makes the two communicators of a pair of ranks, the one of the lower rank first, and applies what
// happens to a communicator to all of its channels.
#include "comm/pair_channels.hpp"

#include "comm/creation.hpp"

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

void PairChannels::Watch::look() const {
    Comm *const made = channel.load(std::memory_order_acquire);
    if (!made) return;
    Comm &comm = pairs.comm_;
    const CommParts &parts = made->parts();
    if (parts.siblings && !parts.comm_config.idle.function && !comm.failure())
        if (const auto deadlock =
                parts.siblings->find_deadlock(made->rank(), parts.device.threads()))
            comm.fail(pairs.in_own_ranks(peer, *deadlock));
    if (comm.failure()) made->fail(of_failed_comm());
}

Error PairChannels::in_own_ranks(uint32_t peer, const Error &of_channel) const {
    const uint32_t lower = std::min(comm_.rank(), peer), upper = std::max(comm_.rank(), peer);
    Error error = reworded(
        of_channel, "between rank %" PRIu32 " (0 here) and rank %" PRIu32 " (1 here): %.260s",
        lower, upper, of_channel.text);
    if (of_channel.rank != Error::no_rank) error.at_rank(of_channel.rank == 0 ? lower : upper);
    return error;
}

Result<const PairChannel *> PairChannels::open(uint32_t peer, bool sends, Timeout timeout) {
    if (!pairs_.contains(peer)) {
        QCCL_TRY(ChannelPair pair, create(peer, timeout));
        by_peer_.resize(comm_.size());
        const std::lock_guard lock(mutex_);
        by_peer_[peer] = &pairs_.emplace(peer, std::move(pair)).first->second;
    }
    return find(peer, sends);
}

Result<PairChannels::ChannelPair> PairChannels::create(uint32_t peer, Timeout timeout) {
    ChannelPair pair{.up_watch = std::unique_ptr<Watch>(new Watch{*this, peer}),
                     .down_watch = std::unique_ptr<Watch>(new Watch{*this, peer})};
    QCCL_TRY(pair.up.comm, create_one(peer, true, timeout, *pair.up_watch));
    QCCL_TRY(pair.down.comm, create_one(peer, false, timeout, *pair.down_watch));
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

Result<std::shared_ptr<Comm>> PairChannels::create_one(uint32_t peer, bool goes_up, Timeout timeout,
                                                       Watch &watch) {
    const CommParts &parts = comm_.parts();
    const uint32_t lower = std::min(comm_.rank(), peer), upper = std::max(comm_.rank(), peer);
    CommConfig comm_config = parts.comm_config;
    comm_config.name += (comm_config.name.empty() ? "ranks " : ", ranks ") +
                        std::to_string(goes_up ? lower : upper) + " to " +
                        std::to_string(goes_up ? upper : lower);
    comm_config.codec.reset();
    comm_config.algorithm = {};
    MemberGroup group{.topic = first_topic + (uint64_t{lower} * comm_.size() + upper) * 2 +
                               (goes_up ? 0 : 1),
                      .members = {lower, upper},
                      .timeout = timeout,
                      .what = creation_name,
                      .is_called_off = [this] { return comm_.is_closed(); },
                      .cancel_check = [this, peer] { return check_creation(peer); },
                      .is_apart = true};
    auto created = create_child(
        comm_, group, comm_config, read_env_settings(),
        {.how = "pair", .most_arena_bytes = most_arena_bytes, .watch = [&watch] { watch.look(); }});
    if (!created) {
        // What the peer has reported names ranks of the channel; other errors name those of the
        // communicator, over which the two meet.
        const bool is_of_channel = created.error().code == Code::remote_error;
        return is_of_channel ? in_own_ranks(peer, created.error()) : created.error();
    }
    const std::shared_ptr<Comm> made = std::move(*created);
    watch.channel.store(made.get(), std::memory_order_release);
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
