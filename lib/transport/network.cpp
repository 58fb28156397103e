// Loads network modules, also in forked children, and opens ends of a network.
#include "transport/network.hpp"

#include "base/module.hpp"
#include "base/private_copy.hpp"

#include <array>
#include <mutex>
#include <string_view>

#include <pthread.h>

namespace qccl {

namespace {

// UCX keeps one thread for the whole process and a list of what the thread serves. A forked child
// inherits the list without the thread, and the descriptors in the list are those of the parent.
constexpr std::string_view stateful_libraries[] = {"libucp", "libuct", "libucs", "libucm"};

// The modules that this process has loaded. Never destroyed, because a process may fork while it
// ends.
struct Loaded {
    std::mutex mutex;
    const NetworkModule *original = nullptr; // also if an ancestor of this process has loaded it
    const NetworkModule *own = nullptr;      // the one that this process may use; null after a fork
};

Loaded &loaded() {
    static Loaded *const all = [] {
        pthread_atfork([] { loaded().mutex.lock(); }, [] { loaded().mutex.unlock(); },
                       [] {
                           loaded().own = nullptr;
                           loaded().mutex.unlock();
                       });
        return new Loaded;
    }();
    return *all;
}

Result<void *> find_first(const char *file_name) {
    const auto found = find_in_module(file_name, network_module_symbol);
    if (found) return found;
    return Error::make(found.error().code,
                       "%.280s; it needs UCX (Debian's libucx0), and is built where UCX's headers "
                       "are (libucx-dev; meson configure build -Ducx=enabled)",
                       found.error().text);
}

Result<void *> find_function(const char *file_name, const NetworkModule *inherited) {
    if (!inherited) return find_first(file_name);
    auto found = find_in_private_copy(inherited, stateful_libraries, network_module_symbol);
    if (found) return found;
    return Error::make(found.error().code,
                       "this process was forked from one that has used UCX, which works in no such "
                       "child, and %.150s",
                       found.error().text);
}

} // namespace

Result<const NetworkModule *> load_network_module(const char *file_name) {
    Loaded &all = loaded();
    const std::lock_guard guard(all.mutex);
    if (all.own) return all.own;
    QCCL_TRY(void *const found, find_function(file_name, all.original));
    const NetworkModule *const module = reinterpret_cast<NetworkModuleFunction *>(found)();
    QCCL_TRY(check_abi(file_name, module->abi, NetworkModule::current_abi));
    if (!all.original) all.original = module;
    all.own = module;
    return module;
}

bool has_network_module() {
    Loaded &all = loaded();
    const std::lock_guard guard(all.mutex);
    return all.own != nullptr;
}

Result<Network> Network::open(const NetworkModule &module, const NetworkSettings &settings,
                              const NetworkEvents &events) {
    std::array<char, 200> error{};
    NetworkEnd *const end = module.open(&settings, &events, error.data(), error.size());
    if (!end) return Error::make(Code::system_error, "%s: %.180s", module.name, error.data());
    return Network(module, end);
}

std::vector<std::byte> Network::address() const {
    std::vector<std::byte> bytes(module_->address(end_, nullptr, 0));
    module_->address(end_, bytes.data(), bytes.size());
    return bytes;
}

} // namespace qccl
