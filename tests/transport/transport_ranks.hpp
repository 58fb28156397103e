// Runs the same body on every rank of a transport: as threads over inproc, as processes over shm.
// The ranks meet in memory that all of them map, which also carries their failed checks to the
// caller. For tests of the transport and the engine.
#pragma once

#include "memory_network.hpp"
#include "tests/kit/qtest.hpp"

#include "transport/network.hpp"
#include "transport/peer_info.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <sched.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace qtest {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

inline constexpr uint32_t most_ranks = 16;
inline constexpr auto patience = 60s; // for the test's own waits, never for what it measures

template <class Condition> void await(const Condition &condition) {
    const auto start = Clock::now();
    while (!condition()) {
        const auto waited = Clock::now() - start;
        if (waited > patience) throw Failure{"a rank of the test did not come"};
        // Ranks meet at the same moment while they yield. One that waits long leaves its core to
        // the others.
        if (waited < 1ms)
            sched_yield();
        else
            std::this_thread::sleep_for(100us);
    }
}

// A barrier and an all-gather for threads and processes alike.
class Meeting {
public:
    explicit Meeting(uint32_t size) : size_(size) {}

    uint32_t size() const { return size_; }

    void barrier() {
        const uint32_t round = round_.load();
        if (come_.fetch_add(1) + 1 == size_) {
            come_ = 0;
            round_++;
        }
        await([&] { return round_.load() != round; });
    }

    qccl::Done all_gather(uint32_t rank, const void *mine, void *all, size_t bytes) {
        CHECK(bytes <= sizeof table_[0]);
        std::memcpy(table_[rank], mine, bytes);
        barrier();
        for (uint32_t peer = 0; peer < size_; peer++)
            std::memcpy(static_cast<std::byte *>(all) + peer * bytes, table_[peer], bytes);
        barrier();
        return {};
    }

    // A failed check by rank; empty: none.
    char said[most_ranks][1024] = {};
    // For the bodies' own use.
    std::atomic<uint64_t> board[64] = {};
    char note[512] = {};

private:
    uint32_t size_;
    std::atomic<uint32_t> come_{0}, round_{0};
    std::byte table_[most_ranks][1024] = {};
};

// A T that forked children share.
template <class T> class Shared {
public:
    template <class... A> explicit Shared(A &&...arguments) {
        void *const base =
            mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(base != MAP_FAILED);
        held_ = new (base) T(std::forward<A>(arguments)...);
    }
    Shared(const Shared &) = delete;
    ~Shared() { munmap(held_, sizeof(T)); }
    T &operator*() const { return *held_; }
    T *operator->() const { return held_; }

private:
    T *held_;
};

// Ranks as threads or as processes: all on one host, each on a host of its own (apart), or two to a
// host (pairs). Between hosts, threads use a network in memory and processes use UCX.
enum class Kind { inproc, shm, inproc_apart, shm_apart, inproc_pairs, shm_pairs };

constexpr bool are_processes(Kind kind) {
    return kind == Kind::shm || kind == Kind::shm_apart || kind == Kind::shm_pairs;
}

constexpr bool is_one_host(Kind kind) { return kind == Kind::inproc || kind == Kind::shm; }

constexpr uint32_t ranks_per_host(Kind kind) {
    if (is_one_host(kind)) return ~uint32_t{0};
    return kind == Kind::inproc_apart || kind == Kind::shm_apart ? 1 : 2;
}

constexpr bool are_near(Kind kind, uint32_t a, uint32_t b) {
    return a / ranks_per_host(kind) == b / ranks_per_host(kind);
}

#ifdef QCCL_UCX_MODULE
inline qccl::RemoteOptions over_ucx() {
    const auto ucx = qccl::load_network_module(QCCL_UCX_MODULE);
    CHECK_OK(ucx);
    qccl::RemoteOptions remote = remote_options(**ucx);
    remote.devices = "lo"; // other interfaces may come and go
    return remote;
}
#endif

inline void make_hosts(Kind kind, qccl::TransportOptions &options) {
    const uint32_t ranks = ranks_per_host(kind);
    if (options.size <= ranks) return;
    for (uint32_t rank = 0; rank < options.size; rank++) options.hosts.push_back(rank / ranks);
    options.remote = remote_options(memory_network::module);
#ifdef QCCL_UCX_MODULE
    if (are_processes(kind)) options.remote = over_ucx();
#endif
}

// Returns sizes so small that rings run full and slots are used again.
inline qccl::TransportOptions small_options() {
    qccl::TransportOptions options;
    options.outbox_bytes = size_t{1} << 20;
    options.slots = 64;
    options.eager_slot_bytes = 4096;
    return options;
}

// Returns a free part of the inbox, for one message; empty if there is none.
inline qccl::RecvBuffer free_buffer(qccl::Transport &transport) {
    const std::span<std::byte> inbox = transport.inbox();
    const size_t bytes = inbox.size() / transport.slots();
    for (uint32_t slot = 0; slot < transport.slots() && !inbox.empty(); slot++)
        if (transport.is_free(transport.slots() + slot))
            return {transport.slots() + slot, inbox.subspan(slot * bytes, bytes)};
    return {};
}

// Returns the buffer for message `number` in an inbox that has a place of `bytes` for each.
inline qccl::RecvBuffer buffer_of_message(qccl::Transport &transport, uint32_t number,
                                          size_t bytes) {
    return {transport.slots() + number, transport.inbox().subspan(number * bytes, bytes)};
}

// What one rank's body is given.
struct Rank {
    uint32_t rank;
    uint32_t size;
    Kind kind;
    Meeting &meeting;
    qccl::TransportOptions options;

    qccl::Result<std::unique_ptr<qccl::Transport>> create() const {
        const auto all_gather = [this](const void *mine, void *all, size_t bytes) {
            return meeting.all_gather(rank, mine, all, bytes);
        };
        auto made = are_processes(kind) ? create_shm_transport(options, all_gather)
                                        : create_inproc_transport(options, all_gather);
        if (kind == Kind::shm) QCCL_TRY(tell_all(outcome(made), all_gather));
        return made;
    }

    // The caller of create_shm_transport tells all ranks of the last step's error; the errors of
    // earlier steps are the same on all ranks.
    qccl::Done tell_all(const qccl::Done &mine, const qccl::AllGather &all_gather) const {
        qccl::RankOutcome own;
        if (!mine) own.error = mine.error();
        std::vector<qccl::RankOutcome> all(size);
        QCCL_TRY(all_gather(&own, all.data(), sizeof own));
        const auto is_alike = [&](const qccl::RankOutcome &each) {
            return each.has_failed() == own.has_failed() &&
                   std::string_view(each.error.text) == own.error.text;
        };
        if (std::ranges::all_of(all, is_alike)) return mine;
        for (uint32_t peer = 0; peer < size; peer++) QCCL_TRY(all[peer].of_rank(peer));
        return {};
    }
};

// Returns the end in the memory network of a rank that has a host of its own. Such a rank adds all
// other ranks as peers, but not itself.
inline qccl::NetworkEnd &end_of(uint32_t rank) {
    const std::lock_guard guard(memory_network::living().mutex);
    for (const auto &[end, _] : memory_network::living().ends)
        if (!end->peers[rank]) return *end;
    throw Failure{"no such end"};
}

// Whether the end is that rank's. A network's callbacks ask so, because other ranks' ends go while
// a rank still looks at its own.
inline bool is_end_of(uint32_t rank, const qccl::NetworkEnd *end) {
    const std::lock_guard guard(memory_network::living().mutex);
    return !end->peers[rank];
}

using Body = std::function<void(const Rank &)>;
// Runs in the parent beside the rank processes; gets their pids by rank.
using Watch = std::function<void(const std::vector<pid_t> &)>;

inline void run_rank(const Rank &rank, const Body &body) {
    char *const said = rank.meeting.said[rank.rank];
    try {
        body(rank);
    } catch (const Failure &failure) {
        snprintf(said, sizeof rank.meeting.said[0], "rank %u: %s", rank.rank, failure.text.c_str());
    } catch (const std::exception &failure) {
        snprintf(said, sizeof rank.meeting.said[0], "rank %u: exception: %s", rank.rank,
                 failure.what());
    }
}

// Forks one process per rank; returns the wait statuses by rank.
inline std::vector<int>
run_processes(const std::vector<Rank> &ranks, const Body &body,
              const std::function<void(const std::vector<pid_t> &)> &watch) {
    std::vector<pid_t> pids;
    for (const Rank &rank : ranks) {
        const pid_t pid = fork();
        if (pid == 0) {
            run_rank(rank, body);
            _exit(rank.meeting.said[rank.rank][0] ? 1 : 0);
        }
        pids.push_back(pid);
    }
    try {
        if (watch) watch(pids);
    } catch (...) {
        for (const pid_t pid : pids) kill(pid, SIGKILL);
        throw;
    }
    std::vector<int> statuses;
    for (const pid_t pid : pids) {
        int status = 0;
        waitpid(pid, &status, 0);
        statuses.push_back(status);
    }
    return statuses;
}

inline void run_threads(const std::vector<Rank> &ranks, const Body &body) {
    std::vector<std::thread> threads;
    for (const Rank &rank : ranks) threads.emplace_back([&] { run_rank(rank, body); });
    for (std::thread &thread : threads) thread.join();
}

// Runs `body` on all ranks of the meeting and fails with the ranks' failures. Returns the wait
// statuses by rank if the ranks are processes.
inline std::vector<int> run_ranks(Meeting &meeting, Kind kind, const Body &body,
                                  qccl::TransportOptions options = small_options(),
                                  const Watch &watch = {}) {
    std::vector<Rank> ranks;
    options.size = meeting.size();
    make_hosts(kind, options);
    for (options.rank = 0; options.rank < options.size; options.rank++)
        ranks.push_back({options.rank, options.size, kind, meeting, options});
    std::vector<int> statuses;
    if (are_processes(kind))
        statuses = run_processes(ranks, body, watch);
    else
        run_threads(ranks, body);
    std::string said; // of all ranks, as one rank's failure may follow from another's
    for (const auto &one : meeting.said)
        if (one[0]) said += std::string(one) + "\n";
    if (!said.empty()) throw Failure{said};
    return statuses;
}

inline void run_ranks(Kind kind, uint32_t size, const Body &body,
                      const qccl::TransportOptions &options = small_options(),
                      const Watch &watch = {}) {
    const Shared<Meeting> meeting(size);
    run_ranks(*meeting, kind, body, options, watch);
}

} // namespace qtest

// Each macro makes one test for each of its kinds.
#define ON_BOTH(body) QTEST(body<Kind::inproc>), QTEST(body<Kind::shm>)
#ifdef QCCL_UCX_MODULE
#define OVER_UCX(body) , QTEST(body<Kind::shm_apart>), QTEST(body<Kind::shm_pairs>)
#define APART_OVER_UCX(body) , QTEST(body<Kind::shm_apart>)
#else
#define OVER_UCX(body)
#define APART_OVER_UCX(body)
#endif
#define ON_APART(body) QTEST(body<Kind::inproc_apart>) APART_OVER_UCX(body)
#define ON_ALL(body)                                                                               \
    ON_BOTH(body), QTEST(body<Kind::inproc_apart>), QTEST(body<Kind::inproc_pairs>) OVER_UCX(body)
