// One rank's end of a network: the module's functions over an end that is closed with its owner,
// and the loader of modules. Knows no messages.
#pragma once

#include "base/result.hpp"
#include "transport/network_module.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// The module that lies beside the library or where the system finds libraries, which stays loaded;
// of one file in a process. A forked child gets a copy of its own, which knows sockets alone. An
// error says what is missing, or that it was built for another version.
Result<const NetworkModule *> load_network_module(const char *file_name);
// Whether this process has loaded one.
bool has_network_module();
inline constexpr const char *ucx_module_file = "libqccl_ucx.so";

class Network {
public:
    using Posted = NetworkModule::Posted;

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
    std::vector<std::byte> address() const;
    void introduce(uint32_t peer, std::span<const std::byte> address) {
        module_->introduce(end_, peer, address.data(), address.size());
    }
    Posted post(uint32_t peer, std::span<const std::byte> head, std::span<const NetworkPart> parts,
                bool is_welcome, uint64_t token) {
        return module_->post(end_, peer, head.data(), head.size(), parts.data(), parts.size(),
                             is_welcome, token);
    }
    void fetch(NetworkTicket *ticket, std::span<std::byte> to, uint64_t token) {
        module_->fetch(end_, ticket, to.data(), to.size(), token);
    }
    void discard(NetworkTicket *ticket) { module_->discard(end_, ticket); }
    bool progress() { return module_->progress(end_); }
    int descriptor() const { return module_->descriptor(end_); }
    bool arm() { return module_->arm(end_); }

private:
    Network(const NetworkModule &module, NetworkEnd *end) : module_(&module), end_(end) {}

    const NetworkModule *module_ = nullptr;
    NetworkEnd *end_ = nullptr;
};

} // namespace qccl
