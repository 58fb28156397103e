// Tests Windows of lib/memory/local_messages over threads and over processes: memory that a rank
// exposes can be read in place as soon as every other rank has mapped it, and never if one of them
// cannot. Withdrawn memory frees its window.
#include "tests/transport/transport_ways.hpp"

#include "base/shared_memory.hpp"

#include <sys/resource.h>

using namespace qtest;

namespace {

constexpr size_t bytes = 40960;

struct Memory {
    FileDescriptor file;
    SharedFile described;
    Mapping mapping;

    explicit Memory(uint8_t value) {
        auto made = create_shared_memory(bytes);
        CHECK_OK(made);
        file = std::move(*made);
        const auto found = describe(file.number());
        CHECK_OK(found);
        described = *found;
        auto mapped = Mapping::shared(file.number(), bytes);
        CHECK_OK(mapped);
        mapping = std::move(*mapped);
        std::memset(mapping.base(), value, bytes);
    }
    ExportedRegion own() const { return {.base = mapping.base(), .file = described}; }
    const std::byte *data() const { return mapping.base(); }
};

// Every rank refreshes its windows, as at the start of a call.
void refresh_all(const Rank &rank, Transport &transport) {
    rank.meeting.barrier();
    transport.windows().refresh();
    rank.meeting.barrier();
}

// Rank 0 passes `zero_copy` along the ranks in a view; each returns the first byte that it finds.
uint8_t pass_on(const Rank &rank, Transport &transport, uint64_t number,
                const ZeroCopyRef &zero_copy) {
    CHECK_OK(begin(transport, call_number(number), 30s));
    uint8_t found = 0;
    if (rank.rank == 0) {
        auto view = free_view(transport);
        CHECK_OK(view);
        view->zero_copy = zero_copy;
        CHECK_OK(send(transport, 1, *view));
        const WaitScope waiting(transport);
        while (!transport.is_free(0)) CHECK_OK(transport.wait(0));
    } else {
        const auto view = receive(transport, rank.rank - 1);
        CHECK_OK(view);
        CHECK(view->zero_copy.data != nullptr);
        found = static_cast<uint8_t>(view->zero_copy.data[0]);
        CHECK_EQ(view->zero_copy.bytes, bytes - 100);
        // A forwarded view still belongs to the owner of the memory.
        if (rank.rank + 1 < rank.size) CHECK_OK(send(transport, rank.rank + 1, *view));
        transport.release(*view);
    }
    CHECK_OK(transport.end());
    return found;
}

template <Kind kind> void what_all_have_mapped_is_read_in_place() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        const Memory memory(7);
        if (rank.rank == 0) {
            transport->windows().expose(memory.own());
            // No peer has refreshed yet.
            CHECK(!transport->windows().refer_to(memory.data(), bytes).data);
        }
        refresh_all(rank, *transport);
        ZeroCopyRef zero_copy;
        if (rank.rank == 0) {
            zero_copy = transport->windows().refer_to(memory.data() + 100, bytes - 100);
            CHECK(zero_copy.data == memory.data() + 100);
            // Beyond its end, and outside.
            CHECK(!transport->windows().refer_to(memory.data() + 100, bytes).data);
            CHECK(!transport->windows().refer_to(&zero_copy, 1).data);
        }
        const uint8_t found = pass_on(rank, *transport, 1, zero_copy);
        if (rank.rank != 0) CHECK_EQ(found, 7U);
    });
}

// Memory that was exposed twice is withdrawn by the second `withdraw`.
template <Kind kind> void what_is_withdrawn_is_not_read_in_place() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        const Memory memory(1);
        for (int i = 0; i < 2; i++) transport->windows().expose(memory.own());
        refresh_all(rank, *transport);
        transport->windows().withdraw(memory.data());
        CHECK(transport->windows().refer_to(memory.data(), 1).data != nullptr);
        transport->windows().withdraw(memory.data());
        CHECK(!transport->windows().refer_to(memory.data(), 1).data);
        transport->windows().withdraw(memory.data()); // an extra one has no effect
        refresh_all(rank, *transport);
        CHECK(!transport->windows().refer_to(memory.data(), 1).data);
    });
}

// More memory is exposed than there are windows, first one after another, then at once.
template <Kind kind> void windows_are_used_again() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        uint64_t number = 0;
        for (uint8_t i = 1; i <= 80; i++) {
            const Memory memory(i);
            transport->windows().expose(memory.own());
            refresh_all(rank, *transport);
            const ZeroCopyRef zero_copy =
                transport->windows().refer_to(memory.data() + 100, bytes - 100);
            CHECK(zero_copy.data != nullptr);
            const uint8_t found = pass_on(rank, *transport, ++number, zero_copy);
            if (rank.rank != 0) CHECK_EQ(found, i);
            rank.meeting.barrier();
            transport->windows().withdraw(memory.data());
        }
        refresh_all(rank, *transport);

        std::vector<Memory> many;
        for (uint8_t i = 0; i < 40; i++) {
            many.emplace_back(i);
            CHECK_EQ(transport->windows().expose(many.back().own()), i < 32);
        }
        const auto count_readable = [&] {
            return std::count_if(many.begin(), many.end(), [&](const Memory &memory) {
                return transport->windows().refer_to(memory.data(), bytes).data != nullptr;
            });
        };
        refresh_all(rank, *transport);
        CHECK_EQ(count_readable(), 32);
        for (size_t i = 0; i < 10; i++) transport->windows().withdraw(many[i].data());
        // The peers unmap what was withdrawn; the rest is then offered and mapped.
        for (int i = 0; i < 3; i++) refresh_all(rank, *transport);
        CHECK_EQ(count_readable(), 30);
    });
}

// The descriptor number belongs to another file when the memory is exposed, or when a peer maps it.
template <Kind kind> void another_file_is_not_taken_for_it() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        const Memory first(1), second(2), other(3);
        CHECK(dup2(other.file.number(), first.file.number()) >= 0);
        transport->windows().expose(first.own());
        transport->windows().expose(second.own());
        CHECK(dup2(other.file.number(), second.file.number()) >= 0);
        for (int i = 0; i < 2; i++) {
            refresh_all(rank, *transport);
            CHECK(!transport->windows().refer_to(first.data(), 1).data);
            CHECK(!transport->windows().refer_to(second.data(), 1).data);
        }
        transport->windows().withdraw(first.data());
        transport->windows().withdraw(second.data());
    });
}

// If one rank cannot map the memory, it is not read in place, and everything else still works.
void who_has_no_descriptors_maps_nothing() {
    run_ranks(Kind::shm, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        const Memory memory(1);
        transport->windows().expose(memory.own());
        const rlimit none{.rlim_cur = 0, .rlim_max = 0};
        if (rank.rank == 2) CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        refresh_all(rank, *transport);
        const bool is_readable = transport->windows().refer_to(memory.data(), 1).data != nullptr;
        CHECK_EQ(is_readable, rank.rank == 2);
        CHECK_OK(run(*transport, call_number(1), Way::ring));
    });
}

template <Kind kind> void a_reference_to_no_window_is_refused() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            auto view = free_view(*transport);
            CHECK_OK(view);
            view->zero_copy = {.data = view->data, .bytes = 1, .window = 3};
            CHECK_OK(send(*transport, 1, *view));
            rank.meeting.barrier();
            return;
        }
        const auto received = receive(*transport, 0);
        CHECK(!received);
        check_error(received.error(), Code::damaged_data, -1,
                    "a message points outside every window");
        rank.meeting.barrier();
    });
}

// The error names the rank that still reads the memory in place, and not the one that has released
// it.
template <Kind kind> void a_slow_reader_is_named() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 300ms));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            const auto view = free_view(*transport);
            CHECK_OK(view);
            for (uint32_t peer = 1; peer < 3; peer++) CHECK_OK(send(*transport, peer, *view));
            Done done;
            while (done && !transport->is_free(0)) done = transport->wait(0);
            CHECK(!done);
            check_late(done.error(), 2, "rank 2 did not go on in all_reduce, call 1, within 0.3 s",
                       "rank 0 waits in call 1 (all_reduce) for others to read");
        } else {
            const auto view = receive(*transport, 0);
            CHECK_OK(view);
            if (rank.rank == 1) {
                transport->release(*view);
                CHECK_OK(transport->end());
            }
        }
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_all_have_mapped_is_read_in_place<Kind::inproc>),
        QTEST(what_all_have_mapped_is_read_in_place<Kind::shm>),
        QTEST(what_is_withdrawn_is_not_read_in_place<Kind::inproc>),
        QTEST(what_is_withdrawn_is_not_read_in_place<Kind::shm>),
        QTEST(windows_are_used_again<Kind::inproc>),
        QTEST(windows_are_used_again<Kind::shm>),
        QTEST(another_file_is_not_taken_for_it<Kind::inproc>),
        QTEST(another_file_is_not_taken_for_it<Kind::shm>),
        QTEST(who_has_no_descriptors_maps_nothing),
        QTEST(a_reference_to_no_window_is_refused<Kind::inproc>),
        QTEST(a_reference_to_no_window_is_refused<Kind::shm>),
        QTEST(a_slow_reader_is_named<Kind::inproc>),
        QTEST(a_slow_reader_is_named<Kind::shm>),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
