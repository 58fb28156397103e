// Finds peers through the store, and hands messages to links.
#include "messages/messenger.hpp"

#include "core/failure.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace qccl_torch {

namespace {

using Microseconds = std::chrono::microseconds;

// How often a rank that waits for a peer looks into the store: at once, then less and less.
constexpr Microseconds first_pause{200}, longest_pause{20000};
// Limits the creation of a link, for which both ranks are ready.
constexpr Milliseconds longest_connect{60000};

std::exception_ptr closed_error() {
    return std::make_exception_ptr(
        CallFailure(qcclRevoked, "the process group has been shut down"));
}

} // namespace

Messenger::Messenger(std::shared_ptr<GroupStore> store, std::string prefix, int rank,
                     std::vector<ProcessIdentity> processes, CommunicatorSettings settings)
    : given_store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank),
      processes_(std::move(processes)), settings_(std::move(settings)),
      board_(rank, static_cast<int>(processes_.size())) {}

Messenger::~Messenger() { close(Milliseconds{0}); }

PeerLink &Messenger::link_with(int peer) {
    std::unique_ptr<PeerLink> &link = links_[peer];
    if (!link) link = std::make_unique<PeerLink>(peer, board_);
    return *link;
}

// With the lock held. Throws std::system_error if the system refuses the thread.
void Messenger::seek_peers() {
    if (!seeker_.joinable()) seeker_ = std::thread([this] { look_for_peers(); });
    is_new_demand_ = true;
    has_changed_.notify_all();
}

void Messenger::send(const void *data, size_t bytes, int dest, int tag, Milliseconds limit,
                     Completion done) {
    PeerLink *link = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (!is_closed_) {
            link = &link_with(dest);
            if (!link->is_connecting()) seek_peers();
        }
    }
    if (link)
        link->send(data, bytes, tag, limit, std::move(done));
    else
        done(closed_error(), -1);
}

uint64_t Messenger::receive(void *buffer, size_t bytes, int source, int tag, Completion done) {
    PostedReceive receive{.number = board_.next_number(),
                          .buffer = buffer,
                          .bytes = bytes,
                          .source = source,
                          .tag = tag,
                          .done = std::move(done)};
    const uint64_t number = receive.number;
    std::optional<UnexpectedMessage> message;
    try {
        message = board_.post(receive);
    } catch (const std::exception &) {
        receive.done(std::current_exception(), -1);
        return number;
    }
    std::unique_lock lock(mutex_);
    if (message) {
        PeerLink &link = link_with(message->source);
        lock.unlock();
        link.deliver(std::move(*message), std::move(receive));
        return number;
    }
    if (is_closed_) {
        lock.unlock();
        cancel(number, closed_error());
        return number;
    }
    try {
        seek_peers();
    } catch (const std::system_error &error) {
        lock.unlock();
        cancel(number, std::make_exception_ptr(CallFailure(qcclSystemError, error.what())));
    }
    return number;
}

bool Messenger::cancel(uint64_t number, std::exception_ptr reason) {
    const std::optional<PostedReceive> receive = board_.cancel(number);
    if (receive) receive->done(std::move(reason), -1);
    return receive.has_value();
}

// ---- Finding peers

std::vector<int> Messenger::unlinked_peers() const {
    std::vector<int> peers;
    for (int peer = 0; peer < static_cast<int>(processes_.size()); peer++) {
        const auto found = links_.find(peer);
        if (peer != rank_ && (found == links_.end() || !found->second->is_connecting()))
            peers.push_back(peer);
    }
    return peers;
}

bool Messenger::needs_peers() const {
    const std::vector<int> peers = unlinked_peers();
    return std::any_of(peers.begin(), peers.end(), [this](int peer) {
        return links_.contains(peer) || board_.waits_for(peer);
    });
}

void Messenger::look_for_peers() {
    Microseconds pause = first_pause;
    std::unique_lock lock(mutex_);
    while (!is_closed_) {
        has_changed_.wait(lock, [this] { return is_closed_ || needs_peers(); });
        is_new_demand_ = false;
        lock.unlock();
        try {
            if (!store_) store_ = given_store_->connect_anew();
            poll_store();
        } catch (const std::exception &error) {
            fail_unlinked(error);
        }
        lock.lock();
        pause = is_new_demand_ ? first_pause : std::min(2 * pause, longest_pause);
        has_changed_.wait_for(lock, pause, [this] { return is_closed_ || is_new_demand_; });
    }
}

void Messenger::poll_store() {
    std::vector<int> to_announce, unlinked;
    {
        const std::lock_guard lock(mutex_);
        for (const auto &[peer, link] : links_)
            if (!announced_to_.contains(peer) && !link->is_connecting())
                to_announce.push_back(peer);
        announced_to_.insert(to_announce.begin(), to_announce.end());
        unlinked = unlinked_peers();
    }
    for (const int peer : to_announce) announce_to(peer);
    read_inbox();
    start_links();
    for (const int peer : unlinked) fail_if_ended(peer);
}

std::string Messenger::inbox_of(int rank, const std::string &entry) const {
    return prefix_ + "/inbox/" + std::to_string(rank) + "/" + entry;
}

std::string Messenger::id_key(int peer) const {
    return prefix_ + "/link/" + std::to_string(std::min(rank_, peer)) + "/" +
           std::to_string(std::max(rank_, peer));
}

void Messenger::announce_to(int peer) {
    const int64_t entry = store_->add(inbox_of(peer, "count"), 1);
    store_->set(inbox_of(peer, std::to_string(entry)), std::to_string(rank_));
}

void Messenger::read_inbox() {
    for (;;) {
        const std::string entry = inbox_of(rank_, std::to_string(inbox_entries_read_ + 1));
        if (!store_->has(entry)) return;
        const int peer = std::stoi(store_->get(entry));
        inbox_entries_read_++;
        const std::lock_guard lock(mutex_);
        announced_by_.insert(peer);
        link_with(peer);
        is_new_demand_ = true; // this rank answers at once
    }
}

// The lower rank knows that the higher one is ready when it finds it in its inbox; the higher rank
// knows it when the id is there.
void Messenger::start_links() {
    std::vector<int> candidates;
    {
        const std::lock_guard lock(mutex_);
        for (const auto &[peer, link] : links_)
            if (!link->is_connecting() && (peer < rank_ || announced_by_.contains(peer)))
                candidates.push_back(peer);
    }
    for (const int peer : candidates) {
        if (peer < rank_ && !store_->has(id_key(peer))) continue;
        PeerLink *link = nullptr;
        {
            const std::lock_guard lock(mutex_);
            link = &link_with(peer);
        }
        link->connect([this, peer](const std::atomic<bool> &is_given_up) {
            return connect_to(peer, is_given_up);
        });
    }
}

// Runs on the link's thread.
PeerLink::Channels Messenger::connect_to(int peer, const std::atomic<bool> &is_given_up) {
    CommunicatorSettings settings = settings_;
    settings.name = settings_.name.empty() ? "" : settings_.name + " messages";
    settings.timeout = std::min(settings_.timeout, longest_connect);
    PeerLink::Channels channels;
    channels.own_rank = rank_ < peer ? 0 : 1;
    qcclUniqueId id{};
    if (rank_ < peer) {
        check(qcclGetUniqueId(&id));
        store_->set(id_key(peer), std::string(id.internal, sizeof id.internal));
    } else {
        const std::string bytes = store_->get(id_key(peer));
        if (bytes.size() != sizeof id.internal)
            throw CallFailure(qcclDamagedData, "the store has no id of a communicator");
        std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    }
    const auto check_stop = [&is_given_up] {
        if (is_given_up)
            throw CallFailure(qcclRevoked,
                              "the process group was shut down before the ranks were connected");
    };
    auto first = std::make_unique<Communicator>(id, channels.own_rank, 2, settings, check_stop);
    auto second = std::make_unique<Communicator>(*first, settings, check_stop);
    channels.outgoing = std::move(rank_ < peer ? first : second);
    channels.incoming = std::move(rank_ < peer ? second : first);
    return channels;
}

void Messenger::fail_if_ended(int peer) {
    if (!processes_[static_cast<size_t>(peer)].has_ended()) return;
    PeerLink *link = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (!links_.contains(peer) && !board_.waits_for(peer)) return;
        link = &link_with(peer);
    }
    link->fail(std::make_exception_ptr(CallFailure(
        qcclPeerLost, "rank " + std::to_string(peer) + " (pid " +
                          std::to_string(processes_[static_cast<size_t>(peer)].process) +
                          ") has ended")));
}

void Messenger::fail_unlinked(const std::exception &error) {
    const auto reason = std::make_exception_ptr(
        CallFailure(qcclSystemError, "the ranks of the process group cannot find each other, "
                                     "because the store fails: " +
                                         std::string(error.what())));
    std::vector<PeerLink *> links;
    {
        const std::lock_guard lock(mutex_);
        for (const int peer : unlinked_peers()) links.push_back(&link_with(peer));
    }
    for (PeerLink *const link : links) link->fail(reason);
}

std::vector<PeerLink *> Messenger::refuse_later_calls() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    has_changed_.notify_all();
    std::vector<PeerLink *> links;
    for (const auto &[peer, link] : links_) links.push_back(link.get());
    return links;
}

void Messenger::close(Milliseconds patience) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + patience;
    refuse_later_calls();
    if (seeker_.joinable()) seeker_.join(); // it may have made another link
    const std::vector<PeerLink *> links = refuse_later_calls();
    for (PeerLink *const link : links) link->start_closing();
    for (PeerLink *const link : links) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
        link->close(std::max(left, Milliseconds{0}));
    }
    for (const PostedReceive &receive : board_.take_all()) receive.done(closed_error(), -1);
}

void Messenger::abort() {
    for (PeerLink *const link : refuse_later_calls()) link->abort();
}

} // namespace qccl_torch
