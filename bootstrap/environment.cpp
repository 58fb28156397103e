// Bootstrap from a launcher's variables: rank 0 serves the rendezvous where all expect it, once for
// each communicator, one after the other.
#include "bootstrap/handshake.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/process_manager.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/secret_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include <netdb.h>
#include <sodium.h>

namespace qccl {

using namespace std::chrono_literals;

// A rendezvous that is served makes room at once; whoever holds the port longer is another program.
static constexpr auto longest_in_use = 15s;
static constexpr auto look_again = 50ms;

namespace {

// What it takes to meet: where to go, and for rank 0 where to listen.
struct Meeting {
    IdFields fields;
    std::vector<Endpoint> doors;
};

// Lets the thread that serves the rendezvous warn while this rank is joining it. Later the function
// that is warned by may be gone.
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

// A process can ask its manager once, and may make several communicators.
class ManagerMemory {
public:
    Result<Meeting> recall(const Placement &mine, const RendezvousOptions &options) {
        const std::lock_guard lock(mutex_);
        if (!meeting_) {
            QCCL_TRY(meeting_, ask(mine, options));
        }
        return *meeting_;
    }

private:
    static Result<Meeting> ask(const Placement &mine, const RendezvousOptions &options);

    std::mutex mutex_;
    std::optional<Meeting> meeting_;
};

} // namespace

static std::string to_hex(const UniqueId &id) {
    std::string text(2 * id.size() + 1, '\0');
    sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char *>(id.data()),
                   id.size());
    text.pop_back(); // its closing zero
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

Result<Meeting> ManagerMemory::ask(const Placement &mine, const RendezvousOptions &options) {
    Meeting meeting;
    std::string text;
    if (mine.rank == 0) {
        QCCL_TRY(meeting.doors, choose_endpoints(options.interface));
        for (Endpoint &door : meeting.doors) door.port = mine.port;
        // Looks for a port that is free now, and opens it when all is known.
        QCCL_TRY(const auto listeners, open_listeners(meeting.doors));
        IdFields fields{meeting.doors, {}};
        randombytes_buf(fields.secret.data(), fields.secret.size());
        text = to_hex(pack(fields));
    }
    QCCL_TRY(text, spread_through_manager(mine.manager, mine.rank, text,
                                          deadline_after(Clock::now(), options.timeout)));
    QCCL_TRY(meeting.fields, from_hex(text));
    return meeting;
}

static Result<std::vector<Endpoint>> resolve(const Placement &mine, TimePoint deadline) {
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
        return Error::make(Code::invalid_argument, "%s: no address of \"%.80s\" is known: %s",
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

// Not by what the name resolves to: many hosts give their own name a loopback address.
static bool means_this_host(const std::string &host) {
    const auto address = parse_address(host);
    return host == "localhost" || (address && is_loopback(*address));
}

// Where rank 0 listens, whatever name the others call it by.
static Result<std::vector<Endpoint>> doors_of(const Placement &mine,
                                              const std::vector<Endpoint> &endpoints,
                                              const std::string &interface) {
    std::vector<Endpoint> doors;
    if (!interface.empty()) {
        QCCL_TRY(doors, choose_endpoints(interface));
    } else if (means_this_host(mine.host)) {
        doors = endpoints;
    } else {
        doors = {*parse_address("0.0.0.0"), *parse_address("::")};
    }
    for (Endpoint &door : doors) door.port = mine.port;
    return doors;
}

static Result<Meeting> arrange(const Placement &mine, const RendezvousOptions &options) {
    static ManagerMemory memory; // of the process, as the wire is
    if (mine.manager >= 0) return memory.recall(mine, options);
    Meeting meeting;
    // What all ranks know, and ranks of another job that comes to the same port do not.
    const std::string what_all_know =
        "qccl environment, port " + std::to_string(mine.port) + ", job " + mine.job;
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(what_all_know))};
    meeting.fields.secret = keyed_hash(Key{}, parts);
    QCCL_TRY(meeting.fields.endpoints,
             resolve(mine, deadline_after(Clock::now(), options.timeout)));
    if (mine.rank == 0) {
        QCCL_TRY(meeting.doors, doors_of(mine, meeting.fields.endpoints, options.interface));
    }
    return meeting;
}

static Done take_secret_file(const std::string &path, Secret &secret) {
    if (path.empty()) return {};
    const auto read = read_secret_file(path);
    if (!read) return Error::make(read.error().code, "QCCL_SECRET_FILE: %.400s", read.error().text);
    const std::span<const std::byte> parts[] = {secret};
    secret = keyed_hash(*read, parts);
    return {};
}

// Rank 0 reaches itself, or who is there in its place, by any of its doors.
static std::vector<Endpoint> from_inside(std::vector<Endpoint> doors) {
    for (Endpoint &door : doors) {
        if (!is_unspecified(door)) continue;
        const bool is_ipv4 = door.family == AddressFamily::ipv4;
        const uint16_t port = door.port;
        door = *parse_address(is_ipv4 ? "127.0.0.1" : "::1");
        door.port = port;
    }
    return doors;
}

static Result<std::vector<Socket>> open_patiently(Meeting &meeting, uint32_t size,
                                                  const RendezvousOptions &options) {
    const TimePoint start = Clock::now();
    TimePoint warn_at = deadline_after(start, options.warn_after);
    const TimePoint deadline =
        std::min(start + longest_in_use, deadline_after(start, options.timeout));
    for (;;) {
        auto listeners = open_listeners(meeting.doors);
        if (listeners) return listeners;
        const Error &problem = listeners.error();
        if (problem.got != EADDRINUSE) return problem;
        QCCL_TRY(ask_for_room({from_inside(meeting.doors), meeting.fields.secret}, size, options));
        if (Clock::now() >= deadline)
            return Error::make(Code::system_error, "%.150s; QCCL_PORT chooses another port",
                               problem.text)
                .at_rank(0);
        if (Clock::now() >= warn_at && options.warn) {
            options.warn(problem.text);
            warn_at = TimePoint::max();
        }
        std::this_thread::sleep_for(look_again);
    }
}

Result<std::unique_ptr<Bootstrap>> join_environment(const char *const *environment,
                                                    const EnvironmentOptions &options) {
    QCCL_TRY(prepare_secrets());
    QCCL_TRY(const Placement mine, read_placement(environment, options.port));
    if (mine.size == 1)
        return std::move(create_local_bootstraps(1, options.rendezvous.timeout).front());
    QCCL_TRY(Meeting meeting, arrange(mine, options.rendezvous));
    QCCL_TRY(take_secret_file(options.secret_file, meeting.fields.secret));
    const WarnWhileJoining warn(options.rendezvous.warn);
    if (mine.rank == 0) {
        QCCL_TRY(auto listeners, open_patiently(meeting, mine.size, options.rendezvous));
        RendezvousOptions served = options.rendezvous;
        served.warn = warn.lend();
        QCCL_TRY(serve_rendezvous(std::move(listeners), meeting.fields.secret, served,
                                  Afterwards::make_room));
        meeting.fields.endpoints = from_inside(meeting.doors);
    }
    return join_rendezvous(meeting.fields, mine.size, mine.rank, options.rendezvous,
                           Patience::until_timeout);
}

} // namespace qccl
