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

// Topics of the survivor exchange: splits and shrinks use small numbers.
static constexpr uint64_t first_topic = uint64_t{1} << 62;

void PairChannels::Watch::call(void *context) {
    const auto *const watch = static_cast<const Watch *>(context);
    Comm *const channel = watch->channel.load(std::memory_order_acquire);
    if (channel)
        if (const auto failure = watch->parent.failure()) channel->fail(failure->error);
    if (watch->idle.function) watch->idle.function(watch->idle.context);
}

const PairChannel *PairChannels::find(uint32_t peer, bool sends) const {
    const auto found = pairs_.find(peer);
    if (found == pairs_.end()) return nullptr;
    const bool goes_up = (comm_.rank() < peer) == sends;
    return goes_up ? &found->second.up : &found->second.down;
}

Result<const PairChannel *> PairChannels::open(uint32_t peer, bool sends, Timeout timeout) {
    if (!pairs_.contains(peer)) {
        QCCL_TRY(ChannelPair pair, create(peer, timeout));
        const std::lock_guard lock(mutex_);
        pairs_.emplace(peer, std::move(pair));
    }
    return find(peer, sends);
}

Result<PairChannels::ChannelPair> PairChannels::create(uint32_t peer, Timeout timeout) {
    const qcclIdle_t idle = comm_.parts().comm_config.idle;
    ChannelPair pair{.up_watch = std::unique_ptr<Watch>(new Watch{comm_, idle}),
                     .down_watch = std::unique_ptr<Watch>(new Watch{comm_, idle})};
    QCCL_TRY(pair.up.comm, create_one(peer, true, timeout, *pair.up_watch));
    QCCL_TRY(pair.down.comm, create_one(peer, false, timeout, *pair.down_watch));
    outgoing(peer, pair)->registrations().add_all(comm_.registrations());
    return pair;
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
    comm_config.idle.function = Watch::call;
    comm_config.idle.context = &watch;
    MemberGroup group{.topic = first_topic + (uint64_t{lower} * comm_.size() + upper) * 2 +
                               (goes_up ? 0 : 1),
                      .members = {lower, upper},
                      .timeout = timeout,
                      .what = "qcclSend or qcclRecv",
                      .is_called_off = [this] { return comm_.is_closed(); },
                      .cancel_check = [this]() -> Done {
                          if (const auto failure = comm_.failure()) return failure->error;
                          return {};
                      },
                      .is_apart = true};
    QCCL_TRY(auto made, create_child(comm_, group, comm_config, "pair", read_env_settings(),
                                     most_arena_bytes));
    watch.channel.store(made.get(), std::memory_order_release);
    // After this call the peer has read all that this rank has published for the creation, so that
    // this rank may publish something else.
    uint32_t mine = comm_.rank(), both[2] = {};
    QCCL_TRY(outcome(made->gather(comm_split, &mine, both, sizeof mine, timeout)));
    return made;
}

std::vector<std::shared_ptr<Comm>> PairChannels::all() const {
    std::vector<std::shared_ptr<Comm>> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[peer, pair] : pairs_)
        found.insert(found.end(), {pair.up.comm, pair.down.comm});
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
    for (const auto &channel : all()) {
        const Done done = visit(*channel);
        if (!done && first) first = done.error();
    }
    return first;
}

void PairChannels::give_up() {
    const Error over = Error::make(Code::revoked, "the communicator of this channel has failed");
    (void)each([&](Comm &channel) -> Done {
        channel.fail(over);
        return {};
    });
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
    return !each([](Comm &channel) -> Done {
        if (channel.is_busy()) return Error::make(Code::in_progress, "busy");
        return {};
    });
}

Counts PairChannels::counts() const {
    Counts sum;
    for (const auto &channel : all()) sum += channel->counts();
    return sum;
}

void PairChannels::close() {
    (void)each([](Comm &channel) -> Done {
        channel.close();
        return {};
    });
}

} // namespace qccl
