// Tests the creation of transports: it succeeds on every rank or fails on every rank with the same
// sentence, and leaves no descriptor, name or memory behind.
#include "tests/kit/open_descriptors.hpp"
#include "tests/kit/sanitizer.h"
#include "transport_ways.hpp"

#include "fault/liveness.hpp"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sys/resource.h>

using namespace qccl;
using namespace qtest;

namespace {

size_t count_lines(const char *file, const char *part) {
    std::ifstream lines(file);
    size_t count = 0;
    for (std::string line; std::getline(lines, line);)
        count += line.find(part) != std::string::npos;
    return count;
}

// Creation must fail on every rank, with the same sentence, which begins with `sentence`.
void check_same_failure(const Rank &rank, const std::string &sentence, int32_t faulty) {
    const auto transport = rank.create();
    CHECK(!transport);
    const std::string said = transport.error().text;
    if (!said.starts_with(sentence)) CHECK_EQ(said, sentence);
    CHECK_EQ(transport.error().rank, faulty);
    if (rank.rank == 0)
        std::snprintf(rank.meeting.note, sizeof rank.meeting.note, "%s", said.c_str());
    rank.meeting.barrier();
    CHECK_EQ(said, std::string(rank.meeting.note));
}

void limit(int resource, rlim_t most) {
    rlimit bound{};
    CHECK_EQ(getrlimit(static_cast<__rlimit_resource>(resource), &bound), 0);
    bound.rlim_cur = most;
    CHECK_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &bound), 0);
}

struct Belongings {
    size_t descriptors, mappings;
    bool operator==(const Belongings &) const = default;
};

// Looking opens descriptors, too, so if the ranks share a process, one of them looks for all.
Belongings look(const Rank &rank) {
    rank.meeting.barrier();
    Belongings seen{};
    if (rank.kind == Kind::shm || rank.rank == 0) {
        CHECK_EQ(count_lines("/proc/self/maps", "/dev/shm/"), 0U);
        seen = {count_descriptors(), count_lines("/proc/self/maps", "memfd:qccl")};
    }
    rank.meeting.barrier();
    return seen;
}

template <Kind kind> void nothing_is_left_behind() {
    run_ranks(kind, 4, [](const Rank &rank) {
        // After this, everything has opened the descriptors that it opens when it is first used.
        create(rank).reset();
        const Belongings before = look(rank);
        CHECK_EQ(before.mappings, 0U);
        const size_t held = ProcessLiveness::open()->held.is_open(); // if there are no pidfds
        for (int round = 0; round < 5; round++) {
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::mailbox));
            const Belongings now = look(rank);
            // A transport holds a liveness descriptor and a segment of every rank, the file of its
            // own segment, and the process's record.
            const size_t more = rank.kind == Kind::shm ? rank.size : 0;
            const size_t record = more != 0 || rank.rank == 0; // if this rank looks
            CHECK_EQ(now.descriptors, before.descriptors + more + (more ? 1 + held : 0) + record);
            CHECK_EQ(now.mappings, more + record);
        }
        CHECK(look(rank) == before);
    });
}

void programs_that_are_started_inherit_nothing() {
    run_ranks(Kind::shm, 2, [](const Rank &rank) {
        const auto before = open_descriptors();
        const auto transport = create(rank);
        uint32_t found = 0;
        for (const int number : open_descriptors()) {
            const int flags = fcntl(number, F_GETFD);
            if (flags < 0 || std::find(before.begin(), before.end(), number) != before.end())
                continue;
            CHECK(flags & FD_CLOEXEC);
            found++;
        }
        CHECK(found + 1 >= rank.size); // the first one reused the number of the listed folder
    });
}

template <Kind kind> void options_that_differ_are_refused_everywhere() {
    const struct {
        std::function<void(TransportOptions &)> apply;
        const char *sentence;
    } differences[] = {
        {[](TransportOptions &o) { o.outbox_bytes = 8192; },
         "rank 2 has 8192 bytes in the outbox, rank 0 has 1048576"},
        {[](TransportOptions &o) { o.slots = 65; }, "rank 2 has 65 slots, rank 0 has 64"},
        {[](TransportOptions &o) { o.eager_slot_bytes = 64; },
         "rank 2 has 64 bytes in a line, rank 0 has 4096"},
    };
    for (const auto &difference : differences)
        run_ranks(kind, 3, [&](const Rank &plain) {
            Rank rank = plain;
            if (rank.rank == 2) difference.apply(rank.options);
            check_same_failure(rank, difference.sentence, 2);
        });
}

// SIGXFSZ, by which the kernel enforces this limit, would end the process.
void a_limit_on_files_is_an_error_on_every_rank() {
    run_ranks(Kind::shm, 3, [](const Rank &rank) {
        const size_t before = count_descriptors();
        if (rank.rank == 1) limit(RLIMIT_FSIZE, 100000);
        check_same_failure(rank, "rank 1: cannot get 1.", 1);
        CHECK_EQ(count_descriptors(), before);
    });
}

template <Kind kind> void more_memory_than_there_is_is_an_error() {
    TransportOptions options = small_options();
    // For threads the size exceeds the address space, because their memory costs nothing until it
    // is used.
    options.outbox_bytes = kind == Kind::shm ? size_t{1} << 42 : size_t{1} << 48;
    run_ranks(
        kind, 2,
        [](const Rank &rank) {
            if (rank.kind == Kind::inproc)
                check_same_failure(rank, "rank 0: cannot map 2814", 0);
            else
                check_same_failure(rank, "cannot get 41943", Error::no_rank);
        },
        options);
}

template <Kind kind> void more_memory_than_has_addresses_is_an_error() {
    TransportOptions outbox = small_options(), slot = small_options();
    outbox.outbox_bytes = SIZE_MAX; // plus the rest of a segment it would wrap to a small number
    slot.eager_slot_bytes = SIZE_MAX - 4096;
    for (const TransportOptions &options : {outbox, slot})
        run_ranks(
            kind, 2,
            [](const Rank &rank) {
                const bool is_alone = kind == Kind::inproc; // a rank then fails alone
                const std::string sentence = "184467440737095";
                check_same_failure(rank, (is_alone ? "rank 0: " : "") + sentence,
                                   is_alone ? 0 : Error::no_rank);
            },
            options);
}

// Rank 2 can still map its own segment, but not those of the others.
void too_little_room_for_the_others_is_an_error_on_every_rank() {
    // These sanitizers map the whole address space.
    if (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER) return;
    TransportOptions options = small_options();
    options.outbox_bytes = size_t{8} << 20;
    run_ranks(
        Kind::shm, 4,
        [](const Rank &rank) {
            const size_t before = count_descriptors();
            if (rank.rank == 2) {
                size_t pages = 0;
                std::ifstream("/proc/self/statm") >> pages;
                limit(RLIMIT_AS, pages * 4096 + (size_t{20} << 20));
            }
            check_same_failure(rank, "rank 2: cannot map ", 2);
            CHECK_EQ(count_descriptors(), before);
        },
        options);
}

// Rank 3 can open no more descriptors than those that it sends to the others.
void too_few_descriptors_are_an_error_on_every_rank() {
    // Valgrind keeps this limit to itself.
    const char *const preloaded = std::getenv("LD_PRELOAD");
    if (preloaded && std::strstr(preloaded, "vgpreload")) return;
    run_ranks(Kind::shm, 4, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.peer_timeout = 5s;
        const size_t before = count_descriptors();
        if (rank.rank == 3) limit(RLIMIT_NOFILE, before - 1 + 4);
        check_same_failure(
            rank, "rank 3: cannot receive the ranks' shared memory from rank 0: Too many", 3);
        if (rank.rank == 3) limit(RLIMIT_NOFILE, 1024);
        CHECK_EQ(count_descriptors(), before);
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_BOTH(nothing_is_left_behind),
        QTEST(programs_that_are_started_inherit_nothing),
        ON_BOTH(options_that_differ_are_refused_everywhere),
        QTEST(a_limit_on_files_is_an_error_on_every_rank),
        ON_BOTH(more_memory_than_there_is_is_an_error),
        ON_BOTH(more_memory_than_has_addresses_is_an_error),
        QTEST(too_little_room_for_the_others_is_an_error_on_every_rank),
        QTEST(too_few_descriptors_are_an_error_on_every_rank),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
