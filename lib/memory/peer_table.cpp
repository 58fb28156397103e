// Implements doorbells with the kernel's futex and membarrier and with local sockets. Makes
// overflow memory in a file of its own, for threads, and in the segment's file, for processes.
// Publishes this rank's claim to memory and adds up the claims of the host's ranks.
#include "memory/peer_table.hpp"

#include "base/system.hpp"
#include "base/types.hpp"

#include <algorithm>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qccl {

namespace {

// FUTEX_PRIVATE_FLAG is not set, because the word may lie in memory that processes share.
void futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *timeout) {
    syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

} // namespace

bool register_fences() {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void ring(Bell &bell) {
    bell.rings.fetch_add(1, std::memory_order_release);
    futex(bell.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

Result<SocketBell> SocketBell::make() {
    SocketBell bell;
    QCCL_TRY(bell.name_, draw_name());
    bell.socket_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const AbstractAddress address(bell.name_);
    if (bell.is_open() && bind(bell.descriptor(), address.get(), address.bytes) == 0) return bell;
    return cannot("make a socket");
}

// If the socket's queue is full, this ring is dropped: the owner has yet to read the earlier ones.
void SocketBell::ring(const Name &other) const {
    const AbstractAddress address(other);
    sendto(socket_.number(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.bytes);
}

void SocketBell::silence() const {
    char ring;
    while (recv(socket_.number(), &ring, sizeof ring, MSG_DONTWAIT) > 0) {}
}

void Waiter::prepare() {
    is_prepared_ = true;
    bell_.is_asleep.exchange(1, std::memory_order_seq_cst);
    if (fences_ == Fences::by_sleeper)
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::sleep(std::chrono::nanoseconds longest) {
    const timespec timeout{longest.count() / std::nano::den, longest.count() % std::nano::den};
    futex(bell_.rings, FUTEX_WAIT, heard_, &timeout);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::sleep(std::chrono::nanoseconds longest, const SocketBell &bell, int other) {
    const timespec timeout{longest.count() / std::nano::den, longest.count() % std::nano::den};
    pollfd polls[] = {{bell.descriptor(), POLLIN, 0}, {other, POLLIN, 0}};
    ppoll(polls, std::size(polls), &timeout, nullptr);
    if (polls[0].revents != 0) bell.silence();
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::cancel() {
    is_prepared_ = false;
    bell_.is_asleep.store(0, std::memory_order_relaxed);
}

// ---- Overflow memory

Done OverflowMemory::create(size_t bytes, const StillNeeds &still_needs) {
    if (bytes <= mapped_.bytes.size()) return {};
    return adopt(source_->make(bytes, still_needs));
}

void OverflowMemory::close(size_t most_kept) {
    if (is_kept_ || mapped_.bytes.size() <= most_kept) return;
    mapped_ = {};
    source_->drop();
}

Done OverflowMemory::adopt(Result<MappedMemory> memory) {
    if (!memory) return memory.error();
    if (memory->bytes.data() == mapped_.bytes.data()) return {};
    if (on_open_) QCCL_TRY(on_open_(*memory));
    mapped_ = std::move(*memory);
    return {};
}

namespace {

Error nothing_there() {
    return Error::make(Code::damaged_data, "a message points outside every outbox");
}

// Returns the part of the mapping from `offset` on.
MappedMemory share(Mapping mapping, size_t offset = 0) {
    const auto keeper = std::make_shared<const Mapping>(std::move(mapping));
    return {keeper, std::span(keeper->base(), keeper->bytes()).subspan(offset)};
}

// Maps at least `bytes` bytes of the file from `start` on. `before` maps the first part of them
// already; the file grows by the rest.
Result<MappedMemory> extend(const MappedMemory &before, int file, size_t start, size_t bytes,
                            const StillNeeds &still_needs) {
    const size_t whole = round_up(bytes, page_bytes()), had = before.bytes.size();
    if (whole <= had) return before;
    QCCL_TRY(extend_file(file, start + had, whole - had, still_needs));
    auto mapping = Mapping::shared(file, whole, start);
    if (mapping) return share(std::move(*mapping));
    empty_file(file, start + had, whole - had);
    return mapping.error();
}

class PlainSource final : public OverflowSource {
public:
    explicit PlainSource(PlainOverflow &place) : place_(place) {}

    // Only the owner writes the place, so the owner reads the place without the lock.
    Result<MappedMemory> make(size_t bytes, const StillNeeds &still_needs) override {
        is_owner_ = true;
        if (!place_.file.is_open()) {
            QCCL_TRY(place_.file, create_shared_memory(0));
        }
        QCCL_TRY(MappedMemory grown,
                 extend(place_.memory, place_.file.number(), 0, bytes, still_needs));
        const std::lock_guard guard(place_.mutex);
        place_.memory = std::move(grown);
        return place_.memory;
    }
    Result<MappedMemory> find() override {
        const std::lock_guard guard(place_.mutex);
        if (place_.memory.bytes.empty()) return nothing_there();
        return place_.memory;
    }
    void drop() override {
        if (!is_owner_) return;
        const std::lock_guard guard(place_.mutex);
        place_.memory = {};
        place_.file = {};
    }

private:
    PlainOverflow &place_;
    bool is_owner_ = false;
};

class FileSource final : public OverflowSource {
public:
    FileSource(const Segment &segment, FileDescriptor file)
        : segment_(segment), start_(round_up(segment.bytes(), page_bytes())),
          file_(std::move(file)) {}

    Result<MappedMemory> make(size_t bytes, const StillNeeds &still_needs) override {
        QCCL_TRY(memory_, extend(memory_, file_.number(), start_, bytes, still_needs));
        bytes_here().store(memory_.bytes.size(), std::memory_order_relaxed);
        return memory_;
    }
    // The owner stores the size before it sends a message that points into this memory, so the
    // message's receiver reads that size or a later one. The file cannot shrink (it is sealed), so
    // one look at its end is enough.
    Result<MappedMemory> find() override {
        const size_t bytes = bytes_here().load(std::memory_order_relaxed), page = page_bytes();
        if (bytes == 0 || bytes > most_outbox_bytes) return nothing_there();
        if (bytes == memory_.bytes.size()) return memory_;
        QCCL_TRY(Mapping found, Mapping::again(segment_.base() + start_ - page, page + bytes));
        if (!found.is_backed()) return nothing_there();
        memory_ = share(std::move(found), page);
        return memory_;
    }
    void drop() override {
        memory_ = {};
        if (file_.is_open()) empty_file(file_.number(), start_, bytes_here().exchange(0));
    }

private:
    std::atomic<uint64_t> &bytes_here() const { return segment_.status().overflow_bytes; }

    const Segment segment_;
    const size_t start_; // of this memory in the file
    const FileDescriptor file_;
    MappedMemory memory_;
};

} // namespace

std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place) {
    return std::make_unique<OverflowMemory>(std::make_unique<PlainSource>(place));
}

std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file) {
    return std::make_unique<OverflowMemory>(std::make_unique<FileSource>(segment, std::move(file)));
}

std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment) {
    return own_file_overflow(segment, FileDescriptor());
}

// ---- Claims to memory

// Bytes between two comparisons: often enough to notice that other programs take memory, and rare
// beside the work of clearing the memory.
static constexpr uint64_t between_looks = uint64_t{64} << 20;

void MemoryClaim::publish(uint64_t bytes) const {
    // This store comes before this rank's loads of the other claims: of two ranks at least one sees
    // both claims.
    peer_table_.mine().status().overflow_needed.store(bytes, std::memory_order_seq_cst);
}

uint64_t MemoryClaim::needed_by_all() const {
    uint64_t sum = 0;
    for (const uint32_t local : peer_table_.local_ranks) {
        const uint64_t needed =
            peer_table_.segments[local].status().overflow_needed.load(std::memory_order_seq_cst);
        sum += std::min(needed, most_outbox_bytes); // so that the sum does not wrap
    }
    return sum;
}

Done MemoryClaim::still_needs(uint64_t bytes) {
    publish(bytes);
    if (bytes > look_at_) return {};
    needed_ = std::max(needed_, bytes);
    look_at_ = bytes - std::min(bytes, between_looks);
    const uint64_t free = free_bytes_(), all = needed_by_all();
    if (all <= free) return {};
    static constexpr double mib = 1 << 20;
    return Error::make(Code::system_error,
                       "cannot get %.1f MiB of shared memory for this call: the ranks of this host "
                       "need %.1f MiB together, and only %.1f MiB are free",
                       static_cast<double>(needed_) / mib, static_cast<double>(all) / mib,
                       static_cast<double>(free) / mib);
}

} // namespace qccl
