// By arithmetic: to take it all for a moment would disturb the program's other threads.
#include "transport/headroom.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include <dirent.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace qccl {

namespace {

// UCX's thread and worker, and the files that UCX reads while it starts; for each network device it
// listens at a socket of its own, and so does the rank, which keeps two connections besides.
constexpr uint64_t descriptors_of_network = 14, descriptors_per_device = 3;
// UCX 1.13 takes 20 MiB when it is loaded and started and in the first calls, and its thread a
// stack. (Of what it reserves it does without the rest.)
constexpr uint64_t bytes_of_network = 36 << 20, bytes_per_peer = 64 << 10;

// Nothing: not limited.
std::optional<uint64_t> limit_of(int resource) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
    return limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional(limit.rlim_cur);
}

// Nothing: the system does not tell.
Result<std::optional<uint64_t>> count_open_descriptors() {
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc/self/fd"), closedir);
    if (!folder && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return Error::make(Code::system_error, "cannot count descriptors: %s",
                           std::strerror(errno));
    if (!folder) return std::optional<uint64_t>();
    uint64_t entries = 0;
    while (readdir(folder.get())) entries++;
    constexpr uint64_t others = 3; // the folder itself, and its "." and ".."
    return std::optional(entries - others);
}

uint64_t count_devices() {
    const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex *)> devices(
        if_nameindex(), if_freenameindex);
    uint64_t count = 0;
    while (devices && devices.get()[count].if_index != 0) count++;
    return count;
}

Done check_descriptors(size_t peers) {
    const auto limit = limit_of(RLIMIT_NOFILE);
    if (!limit) return {};
    QCCL_TRY(const auto open, count_open_descriptors());
    if (!open) return {};
    const uint64_t needed =
        descriptors_of_network + descriptors_per_device * count_devices() + peers;
    if (*open + needed <= *limit) return {};
    return Error::make(Code::system_error,
                       "Too many open files: a network to %zu ranks needs %" PRIu64
                       " descriptors beside the %" PRIu64
                       " that are open, and the limit is %" PRIu64 " (ulimit -n: at least %" PRIu64
                       ")",
                       peers, needed, *open, *limit, *open + needed)
        .compared(static_cast<int64_t>(*open + needed), static_cast<int64_t>(*limit));
}

// Of the address space; nothing: the system does not tell.
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
    const uint64_t needed = bytes_of_network + stack_bytes() + peers * bytes_per_peer;
    if (*mapped + needed <= *limit) return {};
    return Error::make(Code::system_error,
                       "Cannot allocate memory: a network to %zu ranks needs %" PRIu64
                       " KiB of addresses beside the %" PRIu64
                       " that are taken, and the limit is %" PRIu64 " (ulimit -v: at least %" PRIu64
                       ")",
                       peers, needed >> 10, *mapped >> 10, *limit >> 10, (*mapped + needed) >> 10)
        .compared(static_cast<int64_t>(*mapped + needed), static_cast<int64_t>(*limit));
}

} // namespace

Done check_headroom(std::span<const uint32_t> hosts, uint32_t rank) {
    const auto is_other = [&](uint32_t host) { return host != hosts[rank]; };
    const auto peers = static_cast<size_t>(std::count_if(hosts.begin(), hosts.end(), is_other));
    QCCL_TRY(check_descriptors(peers));
    return check_memory(peers);
}

} // namespace qccl
