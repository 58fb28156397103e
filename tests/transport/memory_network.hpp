// A network module between threads of one process, in memory: small messages are copied, large ones
// wait at their sender until they are pulled, and tests can cut peers off. Tests use it instead of
// a real network if nothing but the ranks shall run.
#pragma once

#include "transport/transport.hpp"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

namespace qccl {

struct RendezvousHandle {
    NetworkEnd *sender;
    uint64_t token;
    std::vector<NetworkPart> parts;
    size_t bytes;
};

struct NetworkEnd {
    struct Came {
        std::vector<std::byte> head, bytes;
        std::unique_ptr<RendezvousHandle> handle;
    };
    struct Sent {
        uint64_t token;
    };
    struct Pulled {
        uint64_t token;
    };
    struct Lost {
        uint32_t peer;
    };
    using News = std::variant<Came, Sent, Pulled, Lost>;

    NetworkEvents events{};
    std::vector<NetworkEnd *> peers;
    std::mutex mutex;
    std::deque<News> news;
    bool is_slow = false; // what is posted completes only in this end's next progress()
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    ~NetworkEnd() { close(bell); }
    void tell(News one) {
        const std::lock_guard guard(mutex);
        news.push_back(std::move(one));
        eventfd_write(bell, 1);
    }
};

} // namespace qccl

namespace qtest::memory_network {

using namespace qccl;

inline constexpr size_t eager_bytes = always_eager_bytes;

// Ends that still exist. A message to an end that is gone is refused.
struct Living {
    std::mutex mutex;
    std::map<NetworkEnd *, bool> ends;
};
inline Living &living() {
    static Living all;
    return all;
}

inline NetworkEnd *open(const NetworkSettings *settings, const NetworkEvents *events, char *,
                        size_t) {
    auto *const end = new NetworkEnd;
    end->events = *events;
    end->peers.resize(settings->peers);
    const std::lock_guard guard(living().mutex);
    living().ends[end] = true;
    return end;
}

inline void close(NetworkEnd *end) {
    const std::lock_guard guard(living().mutex);
    living().ends.erase(end);
    delete end;
}

inline size_t address(NetworkEnd *end, void *out, size_t capacity) {
    if (out) std::memcpy(out, &end, std::min(capacity, sizeof end));
    return sizeof end;
}

inline void add_peer(NetworkEnd *end, uint32_t peer, const void *address, size_t bytes) {
    std::memcpy(&end->peers[peer], address, std::min(bytes, sizeof end));
}

inline NetworkModule::Posted post(NetworkEnd *end, uint32_t peer, const void *head,
                                  size_t head_bytes, const NetworkPart *parts, size_t part_count,
                                  bool may_be_eager, uint64_t token) {
    const std::lock_guard guard(living().mutex);
    if (!living().ends.contains(end->peers[peer])) return NetworkModule::Posted::refused;
    NetworkEnd::Came came;
    const auto *const first = static_cast<const std::byte *>(head);
    came.head.assign(first, first + head_bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++) bytes += parts[i].bytes;
    const bool is_pushed = may_be_eager || bytes <= eager_bytes;
    if (!is_pushed)
        came.handle = std::make_unique<RendezvousHandle>(
            RendezvousHandle{end, token, {parts, parts + part_count}, bytes});
    for (size_t i = 0; i < part_count && is_pushed; i++) {
        const auto *const data = static_cast<const std::byte *>(parts[i].data);
        came.bytes.insert(came.bytes.end(), data, data + parts[i].bytes);
    }
    end->peers[peer]->tell(std::move(came));
    if (is_pushed && end->is_slow) end->tell(NetworkEnd::Sent{token});
    return is_pushed && !end->is_slow ? NetworkModule::Posted::done
                                      : NetworkModule::Posted::under_way;
}

inline void finish(RendezvousHandle *handle) {
    const std::unique_ptr<RendezvousHandle> owner(handle);
    if (living().ends.contains(handle->sender))
        handle->sender->tell(NetworkEnd::Sent{handle->token});
}

inline void pull(NetworkEnd *end, RendezvousHandle *handle, void *to, size_t, uint64_t token) {
    const std::lock_guard guard(living().mutex);
    auto *at = static_cast<std::byte *>(to);
    for (const NetworkPart &part : handle->parts) {
        std::memcpy(at, part.data, part.bytes);
        at += part.bytes;
    }
    finish(handle);
    end->tell(NetworkEnd::Pulled{token});
}

inline void discard(NetworkEnd *, RendezvousHandle *handle) {
    const std::lock_guard guard(living().mutex);
    finish(handle);
}

inline void tell(NetworkEnd &end, NetworkEnd::News &news) {
    const NetworkEvents &events = end.events;
    if (auto *const came = std::get_if<NetworkEnd::Came>(&news)) {
        const size_t bytes = came->handle ? came->handle->bytes : came->bytes.size();
        events.on_message(events.context, came->head.data(), came->head.size(),
                          came->handle ? nullptr : came->bytes.data(), bytes,
                          came->handle.release());
    } else if (const auto *const sent = std::get_if<NetworkEnd::Sent>(&news)) {
        events.on_sent(events.context, sent->token);
    } else if (const auto *const fetched = std::get_if<NetworkEnd::Pulled>(&news)) {
        events.on_pulled(events.context, fetched->token, true);
    } else {
        events.on_peer_lost(events.context, std::get<NetworkEnd::Lost>(news).peer, "cut off");
    }
}

inline bool progress(NetworkEnd *end) {
    std::deque<NetworkEnd::News> news;
    {
        const std::lock_guard guard(end->mutex);
        news.swap(end->news);
        eventfd_t ignored;
        eventfd_read(end->bell, &ignored);
    }
    for (NetworkEnd::News &one : news) tell(*end, one);
    return !news.empty();
}

// Leaves the news of what has been sent for a later look.
inline bool progress_without_sent(NetworkEnd *end) {
    std::vector<NetworkEnd::News> later;
    {
        const std::lock_guard guard(end->mutex);
        std::erase_if(end->news, [&](NetworkEnd::News &each) {
            const bool is_sent = std::holds_alternative<NetworkEnd::Sent>(each);
            if (is_sent) later.push_back(std::move(each));
            return is_sent;
        });
    }
    const bool has_moved = progress(end);
    for (NetworkEnd::News &each : later) end->tell(std::move(each));
    return has_moved;
}

inline bool arm(NetworkEnd *end) {
    const std::lock_guard guard(end->mutex);
    return end->news.empty();
}

inline constexpr NetworkModule module{
    .abi = NetworkModule::current_abi,
    .name = "memory",
    .open = open,
    .close = close,
    .address = address,
    .describe = [](NetworkEnd *, char *out,
                   size_t capacity) { std::snprintf(out, capacity, "memory"); },
    .add_peer = add_peer,
    .post = post,
    .pull = pull,
    .discard = discard,
    .progress = progress,
    .descriptor = [](NetworkEnd *end) { return end->bell; },
    .arm = arm};

} // namespace qtest::memory_network

namespace qtest {

// Returns options for several hosts that are all this machine.
inline qccl::RemoteOptions remote_options(const qccl::NetworkModule &network) {
    qccl::RemoteOptions remote;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(&remote.addresses.emplace_back(), &address, sizeof address);
    remote.network = &network;
    return remote;
}

} // namespace qtest
