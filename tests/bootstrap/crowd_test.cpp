// Tests bootstrap under load: sixty-four processes start at once, and a few ranks meet at a
// well-known port that up to a thousand strangers connect to.
#include "tests/kit/open_descriptors.hpp"
#include "variables_kit.hpp"

#include "base/system.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <atomic>

#include <sys/wait.h>
#include <unistd.h>

using namespace kit;

static Done meet(uint32_t rank, uint32_t size, uint16_t port) {
    EnvironmentOptions mine;
    mine.rendezvous.timeout = 30s;
    mine.port = port;
    QCCL_TRY(const auto bootstrap,
             join_variables({"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
                             "MASTER_ADDR=127.0.0.1"},
                            mine));
    for (uint32_t round = 0; round < 5; round++) QCCL_TRY(exchange(*bootstrap, 100, round));
    return {};
}

static double children_seconds() {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    const auto seconds = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The test limits processor time, because elapsed time depends on the machine's load.
static void sixty_four_processes_meet_soon() {
    constexpr uint32_t size = 64;
    const uint16_t port = free_port();
    const double before = children_seconds();
    std::vector<pid_t> ranks;
    for (uint32_t rank = 0; rank < size; rank++) {
        ranks.push_back(fork());
        if (ranks.back() != 0) continue;
        alarm(40);
        const Done done = meet(rank, size, port);
        if (!done) fprintf(stderr, "rank %u: %s\n", rank, done.error().text);
        _exit(done ? 0 : 1);
    }
    for (const pid_t rank : ranks) {
        int status = -1;
        waitpid(rank, &status, 0);
        CHECK_EQ(status, 0);
    }
    CHECK((children_seconds() - before) / patience() < 1.5);
}

// The strangers connect before the ranks do, and connect again when the server hangs up.
static void strangers_at_a_known_port() {
    const size_t most = make_room_for_strangers();

    const uint16_t port = free_port();
    std::atomic<bool> is_over = false;
    std::thread strangers([&] {
        Endpoint here = *parse_address("127.0.0.1");
        here.port = port;
        const SocketAddress address = to_socket_address(here);
        const Hello hello = make_hello();
        std::vector<FileDescriptor> crowd(most);
        for (size_t turn = 0; !is_over; turn++) {
            for (size_t i = turn % 10; i < crowd.size(); i += 10) {
                crowd[i] =
                    FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
                (void)connect(crowd[i].number(), address.get(), address.bytes);
                // The stranger sends nothing, half a greeting, a greeting without a proof, or
                // something else.
                const size_t bytes = i % 4 * sizeof hello / 2;
                (void)send(crowd[i].number(), &hello, std::min(bytes, sizeof hello), MSG_NOSIGNAL);
                if (i % 4 == 3) (void)send(crowd[i].number(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL);
            }
            std::this_thread::sleep_for(20ms);
        }
    });
    const auto done = crowd(4, [&](uint32_t rank) {
        std::this_thread::sleep_for(rank * 200ms);
        return meet(rank, 4, port);
    });
    is_over = true;
    strangers.join();
    for (const Done &one : done) CHECK_OK(one);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(sixty_four_processes_meet_soon), // forks while there are no threads
        QTEST(strangers_at_a_known_port),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
