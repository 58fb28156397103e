// Sends and receives on sockets, where every call returns at once if the socket is not ready. Opens
// the listeners of a rendezvous, starts the thread that serves it, and makes the unique id that
// says where it is.
#include "bootstrap/rendezvous.hpp"

#include "base/exception_boundary.hpp"
#include "base/service_thread.hpp"
#include "base/system.hpp"
#include "bootstrap/rendezvous_server.hpp"
#include "net/interfaces.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sodium.h>
#include <unistd.h>

namespace qccl {

// ---- Connections

Socket::~Socket() {
    if (is_open()) shutdown(get(), SHUT_RDWR);
}

Result<Socket> make_socket(AddressFamily family) {
    const int domain = family == AddressFamily::ipv4 ? AF_INET : AF_INET6;
    Socket socket(::socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return cannot("open a socket");
    return socket;
}

void tune(const Socket &socket) {
    // With these values the loss of a host is noticed after 10 + 4 * 5 = 30 s. TCP_USER_TIMEOUT is
    // not set: it would also end the connection to a process that is stopped and does not read.
    const auto set = [&](int level, int option, int value) {
        setsockopt(socket.get(), level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Channel::Filled Channel::fill(size_t bytes) {
    // The buffer grows only by what has arrived, so that a header that announces many bytes costs
    // nothing.
    static constexpr size_t most_at_once = 64 << 10;
    while (held_.size() < bytes) {
        const size_t before = held_.size();
        const size_t room = std::min(bytes - before, most_at_once);
        held_.resize(before + room);
        const ssize_t got = recv(socket_.get(), held_.data() + before, room, 0);
        held_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        return got < 0 && errno == EAGAIN ? Filled::not_yet : Filled::gone;
    }
    return Filled::all;
}

void Channel::drop(size_t bytes) {
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void Channel::queue(std::span<const std::byte> bytes) {
    queue(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
}

void Channel::queue(const Payload &payload) {
    if (!payload->empty()) output_.push_back(payload);
}

bool Channel::flush() {
    while (has_output()) {
        const std::vector<std::byte> &next = *output_.front();
        // Without MSG_NOSIGNAL, sending to a peer that has gone would kill this process with
        // SIGPIPE.
        const ssize_t sent =
            send(socket_.get(), next.data() + sent_, next.size() - sent_, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        sent_ += static_cast<size_t>(sent);
        if (sent_ < next.size()) continue;
        output_.pop_front();
        sent_ = 0;
    }
    return true;
}

// ---- Listeners, server thread, unique id

// Connections that may wait while the thread is busy; the kernel lowers the number to somaxconn.
static constexpr int listen_backlog = 4096;

// Any port would do, but one that is free on one address may be taken on another.
static constexpr int most_ports_tried = 16;

// Returns the errno that kept one address from being opened; 0: none.
static Result<int> open_listener(Endpoint &endpoint, std::vector<Socket> &listeners) {
    QCCL_TRY(Socket socket, make_socket(endpoint.family));
    const int yes = 1;
    // Connections of the previous rendezvous must not keep the port in use.
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (endpoint.family == AddressFamily::ipv6)
        setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    SocketAddress address = to_socket_address(endpoint);
    if (bind(socket.get(), address.get(), address.bytes) != 0 ||
        listen(socket.get(), listen_backlog) != 0 ||
        getsockname(socket.get(), address.get(), &address.bytes) != 0)
        return errno;
    endpoint = to_endpoint(address.get());
    listeners.push_back(std::move(socket));
    return 0;
}

static Error cannot_listen(const Endpoint &endpoint, int problem) {
    return Error::make(Code::system_error, "cannot listen on %s: %s", text(endpoint).c_str(),
                       strerror(problem))
        .compared(0, problem);
}

// If the error's `got` is EADDRINUSE, another port may work.
static Result<std::vector<Socket>> try_listeners(std::vector<Endpoint> &endpoints) {
    std::vector<Socket> listeners;
    std::vector<Endpoint> opened;
    std::optional<Error> foreign;
    for (Endpoint endpoint : endpoints) {
        endpoint.port = opened.empty() ? endpoints.front().port : opened.front().port;
        QCCL_TRY(const int problem, open_listener(endpoint, listeners));
        // ENODEV and EINVAL occur if the interface has just gone.
        if (problem == 0)
            opened.push_back(endpoint);
        else if (problem == EADDRNOTAVAIL || problem == ENODEV || problem == EINVAL)
            foreign = cannot_listen(endpoint, problem);
        else
            return cannot_listen(endpoint, problem);
    }
    if (opened.empty()) return *foreign;
    endpoints = opened;
    return listeners;
}

Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints) {
    for (int tried = 1;; tried++) {
        auto listeners = try_listeners(endpoints);
        const bool may_try_again = endpoints.front().port == 0 && tried < most_ports_tried;
        if (listeners || !may_try_again || listeners.error().got != EADDRINUSE) return listeners;
    }
}

static void *serve(void *argument) {
    const std::unique_ptr<RendezvousServer> server(static_cast<RendezvousServer *>(argument));
    pthread_setname_np(pthread_self(), "qccl-rendezvous");
    // An exception that leaves a thread would end the process. Instead only the rendezvous ends,
    // and the ranks see their connections close.
    (void)exception_boundary([&]() -> Done {
        server->run();
        return {};
    });
    return nullptr;
}

// The thread is detached and never joined, so that a process may exit at any time.
static Done start(std::unique_ptr<RendezvousServer> server) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const SignalBlocker while_it_starts;
    pthread_t thread;
    const int problem = pthread_create(&thread, &attributes, serve, server.get());
    pthread_attr_destroy(&attributes);
    if (problem != 0)
        return Error::make(Code::system_error, "cannot start the rendezvous: %s",
                           strerror(problem));
    (void)server.release(); // serve owns it
    return {};
}

Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards) {
    return start(
        std::make_unique<RendezvousServer>(std::move(listeners), secret, options, afterwards));
}

Result<UniqueId> create_unique_id(const RendezvousOptions &options) {
    QCCL_TRY(prepare_secrets());
    IdFields fields;
    QCCL_TRY(fields.endpoints, choose_endpoints(options.interface));
    QCCL_TRY(auto listeners, open_listeners(fields.endpoints));
    randombytes_buf(fields.secret.data(), fields.secret.size());
    QCCL_TRY(serve_rendezvous(std::move(listeners), fields.secret, options, Afterwards::tell));
    return pack(fields);
}

} // namespace qccl
