// Makes a unique id: opens the door, starts the thread that serves it, and writes down where it is.
#include "base/contained.hpp"
#include "base/no_signals.hpp"
#include "bootstrap/rendezvous_server.hpp"

#include <cerrno>
#include <cstring>

#include <pthread.h>
#include <sodium.h>

namespace qccl {

// As many as may knock while the thread is busy; the kernel lowers it to somaxconn.
static constexpr int listen_backlog = 4096;

static Result<Socket> open_listener(Endpoint &endpoint) {
    QCCL_TRY(Socket socket, make_socket(endpoint.family));
    SocketAddress address = to_socket_address(endpoint);
    if (bind(socket.get(), address.get(), address.bytes) != 0 ||
        listen(socket.get(), listen_backlog) != 0 ||
        getsockname(socket.get(), address.get(), &address.bytes) != 0)
        return Error::make(Code::system_error, "cannot listen on %s: %s", text(endpoint).c_str(),
                           strerror(errno));
    endpoint = to_endpoint(address.get());
    return socket;
}

static void *serve(void *argument) {
    const std::unique_ptr<RendezvousServer> server(static_cast<RendezvousServer *>(argument));
    pthread_setname_np(pthread_self(), "qccl-rendezvous");
    // An exception that leaves a thread ends the process. The rendezvous ends instead, and the
    // ranks see their connections close.
    (void)contained([&]() -> Done {
        server->run();
        return {};
    });
    return nullptr;
}

// The thread is detached: nobody waits for it, so that a process may exit at any time.
static Done start(std::unique_ptr<RendezvousServer> server) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const NoSignals while_it_starts;
    pthread_t thread;
    const int problem = pthread_create(&thread, &attributes, serve, server.get());
    pthread_attr_destroy(&attributes);
    if (problem != 0)
        return Error::make(Code::system_error, "cannot start the rendezvous: %s",
                           strerror(problem));
    (void)server.release(); // serve owns it
    return {};
}

Result<UniqueId> create_unique_id(const RendezvousOptions &options) {
    if (sodium_init() < 0)
        return Error::make(Code::system_error, "libsodium finds no source of random numbers");
    IdFields fields;
    QCCL_TRY(fields.endpoint, choose_endpoint(options.interface));
    QCCL_TRY(Socket listener, open_listener(fields.endpoint));
    randombytes_buf(fields.secret.data(), fields.secret.size());
    QCCL_TRY(
        start(std::make_unique<RendezvousServer>(std::move(listener), fields, options.timeout)));
    return pack(fields);
}

} // namespace qccl
