// Tests OverflowMemory of lib/memory/peer_table, the memory that a rank gets for a call that needs
// more than its outbox. Other ranks find in it what the rank has written, also through third ranks.
// After the call the memory goes back to the system, or is kept for later calls.
#include "tests/transport/transport_ways.hpp"

#include "base/sizes.hpp"
#include "base/types.hpp"
#include "memory/large_calls.hpp"
#include "memory/peer_table.hpp"
#include "transport/peer_info.hpp"

#include <cstdio>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using namespace qtest;

namespace {

constexpr uint32_t ranks = 3;

// Returns the bytes of shared memory that are resident in this process.
size_t shared_bytes() {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen("/proc/self/status", "re"),
                                                      std::fclose);
    CHECK(file != nullptr);
    char line[256];
    size_t kib = 0;
    while (std::fgets(line, sizeof line, file.get()))
        if (std::sscanf(line, "RssShmem: %zu kB", &kib) == 1) return kib << 10;
    return 0;
}

std::byte value_of(uint64_t call, uint32_t rank, size_t i) {
    return static_cast<std::byte>(call * 31 + rank * 7 + i / 4096);
}

void check_bytes(const MessageView &view, uint64_t call, uint32_t rank, size_t bytes) {
    CHECK_EQ(view.bytes, bytes);
    CHECK_EQ(view.origin, rank);
    for (size_t i = 0; i < bytes; i += 61) CHECK(view.data[i] == value_of(call, rank, i));
}

// The bytes of every rank go round all ranks by reference.
void go_round(Transport &transport, uint64_t call, size_t bytes) {
    CHECK_OK(begin(transport, call_number(call), 30s));
    const uint32_t own = transport.rank(), next = (own + 1) % ranks, previous = (own + 2) % ranks;
    const auto memory = transport.overflow(bytes);
    CHECK_OK(memory);
    CHECK(memory->size() >= bytes);
    const std::span<std::byte> part = memory->last(bytes);
    for (size_t i = 0; i < bytes; i++) part[i] = value_of(call, own, i);
    CHECK_OK(send(transport, next, {part.data(), bytes, own, 0}));
    const auto first = receive(transport, previous);
    CHECK_OK(first);
    check_bytes(*first, call, previous, bytes);
    CHECK_OK(send(transport, next, *first));
    transport.release(*first);
    const auto second = receive(transport, previous);
    CHECK_OK(second);
    check_bytes(*second, call, next, bytes);
    transport.release(*second);
    const WaitScope waiting(transport);
    while (!transport.is_free(0)) CHECK_OK(transport.wait(own));
    CHECK_OK(transport.end());
}

template <Kind kind> void all_find_what_lies_there() {
    run_ranks(kind, ranks, [](const Rank &rank) {
        const auto transport = create(rank);
        rank.meeting.barrier();
        const size_t before = shared_bytes();
        uint64_t call = 1;
        for (const size_t bytes : {size_t{1}, size_t{5} << 20, size_t{100000}, size_t{40} << 20}) {
            go_round(*transport, call++, bytes);
            go_round(*transport, call++, bytes);
        }
        rank.meeting.barrier();
        if (!are_processes(kind)) return;
        const size_t kept = shared_bytes() - before;
        CHECK(kept < size_t{2} << 20); // pages that other messages of the calls have touched
    });
}

// Calls with overflow memory leave the outbox as it was for the calls between them.
template <Kind kind> void calls_of_both_kinds_alternate() {
    run_ranks(kind, ranks, [](const Rank &rank) {
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 20; call += 2) {
            go_round(*transport, call, 10000 * call);
            CHECK_OK(begin(*transport, call_number(call + 1), 30s));
            CHECK_OK(by_mailbox(*transport));
            CHECK_OK(transport->end());
        }
    });
}

// Memory that is kept is as large as the largest call needs. Other ranks learn of it only when it
// has grown, and then with every byte that they may read.
template <Kind kind> void what_is_kept_serves_later_calls() {
    run_ranks(kind, ranks, [](const Rank &rank) {
        const auto transport = create(rank);
        std::vector<MappedMemory> opened;
        transport->keep_overflow([&](const MappedMemory &memory) -> Done {
            opened.push_back(memory);
            return {};
        });
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        rank.meeting.barrier();
        const size_t before = shared_bytes();
        uint64_t call = 1;
        size_t most = 0, growths = 0;
        for (const size_t bytes : {size_t{4} << 20, size_t{100000}, size_t{5} << 20,
                                   size_t{4} << 20, size_t{20} << 20, size_t{1}}) {
            growths += bytes > most;
            most = std::max(most, bytes);
            go_round(*transport, call++, bytes);
            go_round(*transport, call++, bytes);
            CHECK_EQ(opened.size(), ranks * growths);
            for (size_t i = opened.size() - ranks; i < opened.size(); i++)
                CHECK_EQ(opened[i].bytes.size(), round_up(most, page));
        }
        rank.meeting.barrier();
        // This process maps the memory of all ranks, some of it more than once.
        if (are_processes(kind)) CHECK(shared_bytes() - before < ranks * 2 * most);
    });
}

// Two ranks of a host exchange bytes in overflow memory. Returns what the memory's last byte was
// before; it becomes `mark`.
std::byte exchange_in_pair(Transport &transport, uint64_t call, size_t bytes, std::byte mark) {
    CHECK_OK(begin(transport, call_number(call), 30s));
    const auto memory = transport.overflow(bytes);
    CHECK_OK(memory);
    CHECK(memory->size() >= bytes);
    const std::byte before = memory->back();
    memory->back() = mark;
    const uint32_t own = transport.rank(), partner = own ^ 1;
    CHECK_OK(send(transport, partner, {&memory->back(), 1, own, 0}));
    const auto view = receive(transport, partner);
    CHECK_OK(view);
    CHECK(view->data[0] == mark);
    transport.release(*view);
    const WaitScope waiting(transport);
    while (!transport.is_free(0)) CHECK_OK(transport.wait(own));
    CHECK_OK(transport.end());
    return before;
}

// Between hosts the memory stays for later calls: what a call has left there is still there. It
// goes after some calls that do not need it, and at once if it is large. Memory that comes anew is
// zero.
template <Kind kind> void hosts_keep_it_for_the_next_calls() {
    run_ranks(kind, 4, [](const Rank &rank) {
        constexpr size_t bytes = size_t{4} << 20;
        constexpr size_t too_large = most_large_kept / 2 + 1; // there are two ranks on a host
        constexpr std::byte none{0}, first{1}, second{2}, third{3}, fourth{4};
        const auto transport = create(rank);
        uint64_t call = 1;
        const auto pass = [&](uint32_t calls) {
            for (uint32_t i = 0; i < calls; i++)
                CHECK_OK(run(*transport, call_number(call++), Way::meeting));
        };
        CHECK(exchange_in_pair(*transport, call++, bytes, first) == none);
        CHECK(exchange_in_pair(*transport, call++, bytes, second) == first);
        for (int round = 0; round < 2; round++) { // each call with the memory begins the count anew
            pass(large_calls_kept - 1);
            CHECK(exchange_in_pair(*transport, call++, bytes / 2, second) == second);
        }
        pass(large_calls_kept);
        CHECK(exchange_in_pair(*transport, call++, bytes, third) == none);
        CHECK(exchange_in_pair(*transport, call++, too_large, fourth) == none);
        CHECK(exchange_in_pair(*transport, call++, bytes, third) == none);
    });
}

// If the system does not give the memory, the call returns an error that says so, and everything
// else goes on.
template <Kind kind> void what_cannot_be_had_is_an_error() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        rlimit before{};
        CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        const rlimit low{.rlim_cur = size_t{8} << 20, .rlim_max = before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        const auto refused = transport->overflow(size_t{16} << 20);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        CHECK(!refused && refused.error().code == Code::system_error);
        CHECK(std::strstr(refused.error().text, "ulimit -f") != nullptr);
        rank.meeting.barrier(); // the claim of one rank counts against the others
        CHECK(!transport->overflow(size_t{1} << 46));
        rank.meeting.barrier();
        CHECK_OK(transport->overflow(size_t{16} << 20));
        CHECK_OK(by_mailbox(*transport));
        CHECK_OK(transport->end());
    });
}

// All ranks of the host ask at once: there is enough memory for each alone, but not for all
// together. The error of the ranks that get none is the error of the call on every rank, and what
// they had allocated is free again.
void ranks_of_a_host_share_what_is_free() {
    constexpr uint32_t size = 4;
    constexpr size_t mib = size_t{1} << 20, needed = 96 * mib;
    TransportOptions options = small_options();
    const Shared<Meeting> meeting(size);
    size_t free_bytes = size_t{1} << 40; // a copy for each process
    bool waits = false;
    options.free_memory = [&] {
        if (std::exchange(waits, false)) meeting->barrier(); // all ranks have made their claims
        return free_bytes;
    };
    const auto body = [&](const Rank &rank) {
        const auto transport = create(rank);
        free_bytes = size * needed;
        waits = true;
        CHECK_OK(begin(*transport, call_number(1), 30s));
        CHECK_OK(transport->overflow(needed));
        CHECK_OK(by_mailbox(*transport));
        CHECK_OK(transport->end());
        const size_t before = shared_bytes();
        free_bytes = 2 * needed;
        waits = true;
        CHECK_OK(begin(*transport, call_number(2), 30s));
        const auto memory = transport->overflow(needed);
        if (!memory) transport->fail(memory.error());
        const Done done = memory ? by_mailbox(*transport) : Done(memory.error());
        CHECK(!done);
        CHECK_EQ(static_cast<int>(done.error().code), static_cast<int>(Code::system_error));
        const std::string said = done.error().text;
        CHECK(said.find("cannot get 96.0 MiB of shared memory") != said.npos);
        CHECK(said.find("only 192.0 MiB are free") != said.npos);
        rank.meeting.board[rank.rank] = memory ? 1 : 0;
        if (!memory) CHECK(shared_bytes() < before + mib);
        rank.meeting.barrier();
        uint64_t winners = 0;
        for (uint32_t peer = 0; peer < size; peer++) winners += rank.meeting.board[peer];
        CHECK(winners <= 2);
    };
    run_ranks(*meeting, Kind::shm, body, options);
}

// Other programs take memory while a rank allocates its own.
void memory_that_goes_meanwhile_is_missed() {
    TransportOptions options = small_options();
    size_t free_bytes = size_t{1} << 40; // the copy in the rank's process
    options.free_memory = [&] { return std::exchange(free_bytes, size_t{100} << 20); };
    const auto body = [&](const Rank &rank) {
        const auto transport = create(rank);
        free_bytes = size_t{400} << 20;
        CHECK_OK(begin(*transport, call_number(1), 30s));
        const size_t before = shared_bytes();
        const auto refused = transport->overflow(size_t{256} << 20);
        CHECK(!refused);
        CHECK(std::strstr(refused.error().text, "only 100.0 MiB are free") != nullptr);
        CHECK(shared_bytes() < before + (size_t{1} << 20));
    };
    run_ranks(Kind::shm, 1, body, options);
}

// If memory is kept, a call needs free memory only for the growth. A call that fails leaves the
// kept memory as it is.
template <Kind kind> void growth_alone_is_compared_with_what_is_free() {
    TransportOptions options = small_options();
    size_t free_bytes = size_t{1} << 40;
    options.free_memory = [&] { return free_bytes; };
    const auto body = [&](const Rank &rank) {
        constexpr size_t mib = size_t{1} << 20;
        const auto transport = create(rank);
        transport->keep_overflow(nullptr);
        free_bytes = 5 * mib;
        CHECK_OK(begin(*transport, call_number(1), 30s));
        CHECK_OK(transport->overflow(4 * mib));
        const auto kept = transport->overflow(8 * mib);
        CHECK_OK(kept);
        const auto refused = transport->overflow(16 * mib);
        CHECK(!refused && refused.error().code == Code::system_error);
        CHECK(std::strstr(refused.error().text, "need 8.0 MiB together") != nullptr);
        CHECK(std::strstr(refused.error().text, "only 5.0 MiB are free") != nullptr);
        free_bytes = 0;
        const auto again = transport->overflow(8 * mib);
        CHECK_OK(again);
        CHECK(again->data() == kept->data() && again->size() == kept->size());
        CHECK_OK(transport->end());
    };
    run_ranks(kind, 1, body, options);
}

// A peer that claims more memory than its file holds gets an error and causes no SIGBUS. If memory
// is kept, the view of the earlier memory of the peer stays.
void memory_that_is_not_there_is_damaged_data() {
    for (const bool is_kept : {false, true}) {
        const SegmentShape shape = shape_of(small_options());
        const auto bytes = shape.segment_bytes();
        CHECK_OK(bytes);
        auto file = create_shared_memory(*bytes);
        CHECK_OK(file);
        const auto here = map_shared_memory(*file, *bytes),
                   there = map_shared_memory(*file, *bytes);
        CHECK_OK(here);
        CHECK_OK(there);
        const Segment segment(here->base(), shape);
        segment.format();
        const auto own = own_file_overflow(segment, std::move(*file));
        const auto view = view_file_overflow(Segment(there->base(), shape));
        if (is_kept) view->keep(nullptr);
        CHECK_OK(own->create(size_t{1} << 20, [](uint64_t) { return Done(); }));
        CHECK_OK(view->open());
        CHECK_EQ(view->memory().size(), size_t{1} << 20);
        view->close();
        const std::span<std::byte> before = view->memory();
        CHECK_EQ(before.empty(), !is_kept);
        std::atomic<uint64_t> &said = segment.status().overflow_bytes;
        const uint64_t right = said;
        for (const uint64_t wrong : {right + 4096, uint64_t{1} << 40}) {
            said = wrong;
            const Done opened = view->open();
            CHECK(!opened);
            CHECK(opened.error().code == Code::damaged_data);
            CHECK(view->memory().data() == before.data());
        }
        said = right;
        CHECK_OK(view->open());
        CHECK(!is_kept || view->memory().data() == before.data());
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_BOTH(all_find_what_lies_there),
        ON_BOTH(calls_of_both_kinds_alternate),
        ON_BOTH(what_is_kept_serves_later_calls),
        QTEST(hosts_keep_it_for_the_next_calls<Kind::inproc_pairs>),
#ifdef QCCL_UCX_MODULE
        QTEST(hosts_keep_it_for_the_next_calls<Kind::shm_pairs>),
#endif
        QTEST(what_cannot_be_had_is_an_error<Kind::shm>),
        QTEST(ranks_of_a_host_share_what_is_free),
        QTEST(memory_that_goes_meanwhile_is_missed),
        ON_BOTH(growth_alone_is_compared_with_what_is_free),
        QTEST(memory_that_is_not_there_is_damaged_data),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
