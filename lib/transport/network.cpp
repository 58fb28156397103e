// Loads network modules, also in forked children, and opens ends of a network. The check of the
// limits only calculates: reserving everything for a moment would disturb the program's other
// threads.
#include "transport/network.hpp"

#include "base/module.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "fault/liveness.hpp"
#include "net/addresses.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace qccl {

// ---- Ends of a network, and modules

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

std::string Network::description() const {
    std::array<char, 200> text{};
    module_->describe(end_, text.data(), text.size());
    return text.data();
}

// ---- Limits of the system

namespace {

// UCX's thread and worker, the files that UCX reads while it starts, and the rank's two connections
// to its neighbours. UCX 1.13 also opens a listening socket and an epoll for each interface.
constexpr uint64_t descriptors_of_network = 14, descriptors_per_interface = 2;
// The first call connects each rank to all ranks of other hosts. If both ranks of a pair connect at
// the same time, each has two connections until UCX has closed one of them.
constexpr uint64_t connections_per_peer = 1, connections_at_once = 2;
// UCX 1.13 takes 20 MiB while it is loaded and started and in the first calls; its thread takes a
// stack. (UCX tries to reserve more address space and does without it if it must.)
constexpr uint64_t bytes_of_network = 36 << 20, bytes_per_peer = 64 << 10;
// The libraries of which UCX consists.
constexpr uint64_t bytes_of_libraries = 36 << 20;
// What the creation of a communicator opens between the first check and the start of UCX.
constexpr uint64_t descriptors_of_creation = 4;

// Returns nothing if there is no limit.
std::optional<uint64_t> limit_of(int resource) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
    return limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional(limit.rlim_cur);
}

// Returns nothing if the system does not tell.
Result<std::optional<uint64_t>> count_open_descriptors() {
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc/self/fd"), closedir);
    if (!folder && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return cannot("count descriptors");
    if (!folder) return std::optional<uint64_t>();
    uint64_t entries = 0;
    while (readdir(folder.get())) entries++;
    constexpr uint64_t others = 3; // the folder itself, and its "." and ".."
    return std::optional(entries - others);
}

// Whether UCX's list of devices, in the user's words, contains the interface. UCX 1.13 takes only
// names; a list with other characters may contain any interface.
bool has_device(std::string_view list, std::string_view name) {
    if (list.find_first_of("^*?[") != list.npos) return true;
    return std::ranges::any_of(words_of(list, ","),
                               [&](std::string_view one) { return one == name || one == "all"; });
}

// UCX opens no interface without a cable, and none without an address that is valid in other
// networks.
bool is_for_ucx(const ifaddrs &each) {
    if (!each.ifa_addr || !(each.ifa_flags & IFF_UP) || !(each.ifa_flags & IFF_RUNNING))
        return false;
    const int family = each.ifa_addr->sa_family;
    return family == AF_INET || (family == AF_INET6 && !is_link_local(to_endpoint(each.ifa_addr)));
}

uint64_t count_interfaces(const std::string &devices) {
    const char *const ucx_devices = std::getenv("UCX_NET_DEVICES");
    std::string_view list = devices;
    if (list.empty() && ucx_devices) list = ucx_devices;
    if (list.empty()) list = "all";
    ifaddrs *found = nullptr;
    if (getifaddrs(&found) != 0) return 0;
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner(found, freeifaddrs);
    std::set<std::string_view> names; // an interface has one entry for each address
    for (; found; found = found->ifa_next)
        if (is_for_ucx(*found) && has_device(list, found->ifa_name)) names.insert(found->ifa_name);
    return names.size();
}

uint64_t count_listening(const RemoteOptions &remote) {
    return descriptors_per_interface * count_interfaces(remote.devices) +
           std::min(remote.addresses.size(), KeepaliveAddress::most_addresses);
}

const char *plural(size_t count) { return count == 1 ? "" : "s"; }

Result<Headroom> check_descriptors(size_t peers, const RemoteOptions &remote) {
    const auto limit = limit_of(RLIMIT_NOFILE);
    if (!limit) return Headroom();
    QCCL_TRY(const auto open, count_open_descriptors());
    if (!open) return Headroom();
    const uint64_t of_network = descriptors_of_network + count_listening(remote) +
                                (remote.network ? 0 : descriptors_of_creation);
    const uint64_t needed = of_network + connections_per_peer * peers;
    const uint64_t advised = *open + of_network + connections_at_once * peers;
    if (*open + needed <= *limit)
        return Headroom{.advised_descriptors = advised <= *limit ? 0 : advised};
    return Error::make(Code::system_error,
                       "Too many open files: a network to %zu rank%s needs %" PRIu64
                       " descriptors beside the %" PRIu64
                       " that are open, and the limit is %" PRIu64 " (ulimit -n: at least %" PRIu64
                       ")",
                       peers, plural(peers), needed, *open, *limit, *open + needed)
        .compared(static_cast<int64_t>(*open + needed), static_cast<int64_t>(*limit));
}

// The address space in use; nothing if the system does not tell.
std::optional<uint64_t> mapped_bytes() {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen("/proc/self/statm", "re"),
                                                      [](FILE *f) { return f ? fclose(f) : 0; });
    uint64_t pages = 0;
    if (!file || std::fscanf(file.get(), "%" SCNu64, &pages) != 1) return std::nullopt;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t stack_bytes() {
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_attr_init(&attributes) != 0) return 0;
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

Done check_memory(size_t peers) {
    const auto limit = limit_of(RLIMIT_AS), mapped = mapped_bytes();
    if (!limit || !mapped) return {};
    const uint64_t needed = bytes_of_network + stack_bytes() + peers * bytes_per_peer +
                            (has_network_module() ? 0 : bytes_of_libraries);
    if (*mapped + needed <= *limit) return {};
    return Error::make(Code::system_error,
                       "Cannot allocate memory: a network to %zu rank%s needs %" PRIu64
                       " KiB of addresses beside the %" PRIu64
                       " KiB that are taken, and the limit is %" PRIu64
                       " KiB (ulimit -v: at least %" PRIu64 ")",
                       peers, plural(peers), needed >> 10, *mapped >> 10, *limit >> 10,
                       (*mapped + needed) >> 10)
        .compared(static_cast<int64_t>(*mapped + needed), static_cast<int64_t>(*limit));
}

} // namespace

Result<Headroom> check_headroom(std::span<const uint32_t> hosts, uint32_t rank,
                                const RemoteOptions &remote) {
    const auto is_other = [&](uint32_t host) { return host != hosts[rank]; };
    const auto peers = static_cast<size_t>(std::count_if(hosts.begin(), hosts.end(), is_other));
    QCCL_TRY(check_memory(peers));
    return check_descriptors(peers, remote);
}

} // namespace qccl
