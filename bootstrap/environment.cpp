// Bootstrap from a launcher's variables. Rank 0 serves a rendezvous at the address that all ranks
// expect, once for each communicator, one after the other. join_environment() blocks until all
// ranks have joined.
#include "bootstrap/launcher.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_protocol.hpp"
#include "net/addresses.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include <netdb.h>
#include <sodium.h>

namespace qccl {

using namespace std::chrono_literals;

// A finished rendezvous releases the port at once. If the port stays in use for longer than this,
// another program holds it.
static constexpr auto longest_in_use = 15s;
static constexpr auto look_again = 50ms;

namespace {

// What a rank needs to join: the addresses and the secret, and on rank 0 where to listen.
struct RendezvousPlan {
    IdFields fields;
    std::vector<Endpoint> listen_at;
};

// Lets the server's thread warn while this rank is joining. Later the caller's function may no
// longer exist, so the thread's warnings are dropped.
class WarnWhileJoining {
public:
    explicit WarnWhileJoining(const Warn &warn) : lent_(std::make_shared<Lent>()) {
        lent_->warn = warn;
    }
    ~WarnWhileJoining() {
        const std::lock_guard lock(lent_->mutex);
        lent_->warn = nullptr;
    }
    WarnWhileJoining(const WarnWhileJoining &) = delete;

    Warn lend() const {
        return [lent = lent_](const char *sentence) {
            const std::lock_guard lock(lent->mutex);
            if (lent->warn) lent->warn(sentence);
        };
    }

private:
    struct Lent {
        std::mutex mutex;
        Warn warn;
    };
    const std::shared_ptr<Lent> lent_;
};

// Keeps the process manager's answer: a process can ask its manager only once, but may create
// several communicators.
class ManagerMemory {
public:
    Result<RendezvousPlan> recall(const LauncherInfo &mine, const RendezvousOptions &options) {
        const std::lock_guard lock(mutex_);
        if (!plan_) {
            QCCL_TRY(plan_, ask(mine, options));
        }
        return *plan_;
    }

private:
    static Result<RendezvousPlan> ask(const LauncherInfo &mine, const RendezvousOptions &options);

    std::mutex mutex_;
    std::optional<RendezvousPlan> plan_;
};

} // namespace

static std::string to_hex(const UniqueId &id) {
    std::string text(2 * id.size() + 1, '\0');
    sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char *>(id.data()),
                   id.size());
    text.pop_back(); // the terminating zero
    return text;
}

static Result<IdFields> from_hex(const std::string &text) {
    UniqueId id{};
    size_t bytes = 0;
    if (sodium_hex2bin(reinterpret_cast<unsigned char *>(id.data()), id.size(), text.data(),
                       text.size(), nullptr, &bytes, nullptr) != 0 ||
        bytes != id.size())
        return Error::make(Code::system_error, "the process manager gives rank 0's text damaged");
    return unpack(id);
}

Result<RendezvousPlan> ManagerMemory::ask(const LauncherInfo &mine,
                                          const RendezvousOptions &options) {
    RendezvousPlan plan;
    std::string text;
    if (mine.rank == 0) {
        QCCL_TRY(plan.listen_at, choose_endpoints(options.interface));
        for (Endpoint &endpoint : plan.listen_at) endpoint.port = mine.port;
        // Only finds a free port: these listeners close again here, and rank 0 listens once all is
        // known.
        QCCL_TRY(const auto listeners, open_listeners(plan.listen_at));
        IdFields fields{plan.listen_at, {}};
        randombytes_buf(fields.secret.data(), fields.secret.size());
        text = to_hex(pack(fields));
    }
    QCCL_TRY(text, spread_through_manager(mine.manager, mine.rank, text,
                                          deadline_after(Clock::now(), options.timeout)));
    QCCL_TRY(plan.fields, from_hex(text));
    return plan;
}

static Result<std::vector<Endpoint>> resolve(const LauncherInfo &mine, TimePoint deadline) {
    std::string host = mine.host;
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *list = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    int problem = 0;
    while ((problem = getaddrinfo(host.c_str(), nullptr, &hints, &list)) == EAI_AGAIN &&
           Clock::now() < deadline)
        std::this_thread::sleep_for(look_again);
    if (problem != 0)
        return invalid_argument("%s: no address of \"%.80s\" is known: %s",
                                mine.host_variable.c_str(), host.c_str(), gai_strerror(problem));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    std::vector<Endpoint> endpoints;
    for (const addrinfo *entry = list; entry; entry = entry->ai_next) {
        if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
        endpoints.push_back(to_endpoint(entry->ai_addr));
        endpoints.back().port = mine.port;
    }
    return endpoints;
}

static bool is_loopback(const Endpoint &endpoint) {
    if (endpoint.family == AddressFamily::ipv4) return endpoint.address[0] == std::byte{127};
    return endpoint.is_same_host(*parse_address("::1"));
}

// Does not resolve the name: many hosts give their own name a loopback address.
static bool means_this_host(const std::string &host) {
    const auto address = parse_address(host);
    return host == "localhost" || (address && is_loopback(*address));
}

// Returns the endpoints at which rank 0 listens, whatever name the other ranks use for its host.
static Result<std::vector<Endpoint>> listen_endpoints_of(const LauncherInfo &mine,
                                                         const std::vector<Endpoint> &endpoints,
                                                         const std::string &interface) {
    std::vector<Endpoint> listen_at;
    if (!interface.empty()) {
        QCCL_TRY(listen_at, choose_endpoints(interface));
    } else if (means_this_host(mine.host)) {
        listen_at = endpoints;
    } else {
        listen_at = {*parse_address("0.0.0.0"), *parse_address("::")};
    }
    for (Endpoint &endpoint : listen_at) endpoint.port = mine.port;
    return listen_at;
}

static Result<RendezvousPlan> arrange(const LauncherInfo &mine, const RendezvousOptions &options) {
    static ManagerMemory memory; // one per process, like the PMI connection
    if (mine.manager >= 0) return memory.recall(mine, options);
    RendezvousPlan plan;
    // All ranks know this text; ranks of another job that comes to the same port do not.
    const std::string what_all_know =
        "qccl environment, port " + std::to_string(mine.port) + ", job " + mine.job;
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(what_all_know))};
    plan.fields.secret = keyed_hash(Key{}, parts);
    QCCL_TRY(plan.fields.endpoints, resolve(mine, deadline_after(Clock::now(), options.timeout)));
    if (mine.rank == 0) {
        QCCL_TRY(plan.listen_at,
                 listen_endpoints_of(mine, plan.fields.endpoints, options.interface));
    }
    return plan;
}

static Done take_secret_file(const std::string &path, Secret &secret) {
    if (path.empty()) return {};
    const auto read = read_secret_file(path);
    if (!read) return Error::make(read.error().code, "QCCL_SECRET_FILE: %.400s", read.error().text);
    const std::span<const std::byte> parts[] = {secret};
    secret = keyed_hash(*read, parts);
    return {};
}

// Returns the endpoints through which rank 0 reaches its own listeners, or the process that holds
// their port.
static std::vector<Endpoint> from_inside(std::vector<Endpoint> listen_at) {
    for (Endpoint &endpoint : listen_at) {
        if (!is_unspecified(endpoint)) continue;
        const bool is_ipv4 = endpoint.family == AddressFamily::ipv4;
        const uint16_t port = endpoint.port;
        endpoint = *parse_address(is_ipv4 ? "127.0.0.1" : "::1");
        endpoint.port = port;
    }
    return listen_at;
}

static Result<std::vector<Socket>> open_patiently(RendezvousPlan &plan, uint32_t size,
                                                  const RendezvousOptions &options) {
    const TimePoint start = Clock::now();
    TimePoint warn_at = deadline_after(start, options.warn_after);
    const TimePoint deadline =
        std::min(start + longest_in_use, deadline_after(start, options.timeout));
    for (;;) {
        auto listeners = open_listeners(plan.listen_at);
        if (listeners) return listeners;
        const Error &problem = listeners.error();
        if (problem.got != EADDRINUSE) return problem;
        QCCL_TRY(ask_for_room({from_inside(plan.listen_at), plan.fields.secret}, size, options));
        if (Clock::now() >= deadline)
            return Error::make(Code::system_error, "%.150s; QCCL_PORT chooses another port",
                               problem.text)
                .at_rank(0);
        if (Clock::now() >= warn_at && options.warn) {
            options.warn(problem.text);
            warn_at = TimePoint::max();
        }
        if (options.cancel_check) QCCL_TRY(options.cancel_check());
        std::this_thread::sleep_for(look_again);
    }
}

Result<std::unique_ptr<Bootstrap>> join_environment(const char *const *environment,
                                                    const EnvironmentOptions &options) {
    QCCL_TRY(prepare_secrets());
    QCCL_TRY(const LauncherInfo mine, read_launcher_info(environment, options.port));
    if (mine.size == 1)
        return std::move(create_local_bootstraps(1, options.rendezvous.timeout).front());
    QCCL_TRY(RendezvousPlan plan, arrange(mine, options.rendezvous));
    QCCL_TRY(take_secret_file(options.secret_file, plan.fields.secret));
    const WarnWhileJoining warn(options.rendezvous.warn);
    if (mine.rank == 0) {
        QCCL_TRY(auto listeners, open_patiently(plan, mine.size, options.rendezvous));
        RendezvousOptions served = options.rendezvous;
        served.warn = warn.lend();
        served.cancel_check = {}; // of this rank alone
        QCCL_TRY(serve_rendezvous(std::move(listeners), plan.fields.secret, served,
                                  Afterwards::make_room));
        plan.fields.endpoints = from_inside(plan.listen_at);
    }
    return join_rendezvous(plan.fields, mine.size, mine.rank, options.rendezvous,
                           Patience::until_timeout);
}

} // namespace qccl
