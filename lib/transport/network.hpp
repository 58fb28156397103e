// One rank's end of a network between hosts, the loader of network modules, and the check whether
// the system's limits leave room for a network. A Network calls the module's functions on an end
// that it closes in its destructor. RemoteEndpoint uses it, by one thread at a time. The loader's
// functions may run on any thread; loading blocks while files are read.
//
// `check_headroom` checks whether the limits leave this process enough descriptors and address
// space. UCX does not check this itself: if UCX runs short of descriptors or memory, it ends the
// process or goes silent. The thread that creates a communicator over several hosts calls the
// check. It reads what the system reports about the process and its network interfaces; it does not
// block.
#pragma once

#include "base/result.hpp"
#include "transport/network_module.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// ---- Ends of a network, and modules

// Loads the module of that file name, which lies beside the library or where the system finds
// libraries. The module stays loaded. A process uses one such file. A forked child loads a copy of
// its own, which can use TCP only. The error says what is missing, or that the module was built for
// another version.
Result<const NetworkModule *> load_network_module(const char *file_name);
// Returns whether this process has loaded a module.
bool has_network_module();
inline constexpr const char *ucx_module_file = "libqccl_ucx.so";

class Network {
public:
    using Posted = NetworkModule::Posted;

    // Opens an end. Returns system_error with the module's reason on failure.
    static Result<Network> open(const NetworkModule &module, const NetworkSettings &settings,
                                const NetworkEvents &events);
    Network() = default;
    Network(Network &&other) noexcept
        : module_(other.module_), end_(std::exchange(other.end_, nullptr)) {}
    Network &operator=(Network &&other) noexcept {
        std::swap(module_, other.module_);
        std::swap(end_, other.end_);
        return *this;
    }
    ~Network() {
        if (end_) module_->close(end_);
    }

    const char *name() const { return module_->name; }
    // Returns what carries the messages, for the log; the words are the module's.
    std::string description() const;
    // Returns what peers need to reach this end. The functions below are those of NetworkModule.
    std::vector<std::byte> address() const;
    void add_peer(uint32_t peer, std::span<const std::byte> address) {
        module_->add_peer(end_, peer, address.data(), address.size());
    }
    Posted post(uint32_t peer, std::span<const std::byte> head, std::span<const NetworkPart> parts,
                bool may_be_eager, uint64_t token) {
        return module_->post(end_, peer, head.data(), head.size(), parts.data(), parts.size(),
                             may_be_eager, token);
    }
    void pull(RendezvousHandle *handle, std::span<std::byte> to, uint64_t token) {
        module_->pull(end_, handle, to.data(), to.size(), token);
    }
    void discard(RendezvousHandle *handle) { module_->discard(end_, handle); }
    bool progress() { return module_->progress(end_); }
    int descriptor() const { return module_->descriptor(end_); }
    bool arm() { return module_->arm(end_); }

private:
    Network(const NetworkModule &module, NetworkEnd *end) : module_(&module), end_(end) {}

    const NetworkModule *module_ = nullptr;
    NetworkEnd *end_ = nullptr;
};

// ---- Limits of the system

struct Headroom {
    // The limit on descriptors (ulimit -n) that lets all connections be made at once; 0 if the
    // present limit is high enough.
    uint64_t advised_descriptors = 0;
};

// A rank calls this before it loads UCX, with no network in `remote`, and again before it starts
// UCX. `hosts` holds each rank's host; `remote` says which devices UCX may use and at how many
// addresses the rank listens. The check counts what the rank has yet to open and to load. Returns
// system_error, which names the limit and the least value that it must have. A limit that cannot be
// read counts as no limit.
Result<Headroom> check_headroom(std::span<const uint32_t> hosts, uint32_t rank,
                                const RemoteOptions &remote);

} // namespace qccl
