// Tests the bootstrap from a launcher's variables with processes that come too late, or as a rank
// that is already there: the process that has served the rendezvous tells them why they are
// refused, and does not block the next rendezvous.
#include "rank_processes.hpp"
#include "variables_kit.hpp"

#include "bootstrap/rendezvous_protocol.hpp"

#include <csignal>
#include <sys/socket.h>

using namespace kit;

namespace {

// Ranks of a job that join by environment variables, each in a process. Ranks that have joined stay
// until the job ends.
class JobOfProcesses {
public:
    explicit JobOfProcesses(uint32_t size) : size_(size) {
        CHECK(pipe(met_) == 0);
        CHECK(pipe(stay_) == 0);
    }
    ~JobOfProcesses() {
        for (const int end : {met_[0], met_[1], stay_[0], stay_[1]})
            if (end >= 0) close(end);
    }

    Done join(uint32_t rank, std::chrono::nanoseconds timeout, bool dies = false) const {
        EnvironmentOptions some;
        some.rendezvous = options(timeout);
        some.rendezvous.interface.clear();
        QCCL_TRY(
            const auto bootstrap,
            join_variables({"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size_),
                            "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port_ - 1)},
                           some));
        if (dies) raise(SIGKILL);
        return exchange(*bootstrap, 8, 0);
    }
    // `forks`: the rank exits after it has joined, and only a child that it forks stays.
    void start(uint32_t rank, bool dies = false, bool forks = false) {
        ranks_.start([this, rank, dies, forks] {
            const Done done = join(rank, 15s, dies);
            if (forks && fork() != 0) _exit(0);
            close(stay_[1]);
            char byte = 0;
            CHECK(write(met_[1], &byte, 1) == 1);
            CHECK(read(stay_[0], &byte, 1) == 0);
            return done;
        });
    }
    void wait_for(int ranks) const {
        for (char byte; ranks > 0; ranks--) CHECK(read(met_[0], &byte, 1) == 1);
    }
    // Returns the report of a process that joins as this rank now.
    Report come_late(uint32_t rank, std::chrono::seconds timeout = 15s) const {
        Processes late;
        late.start([&] { return join(rank, timeout); });
        return late.report(0);
    }
    // Asks the server for its port without knowing the secret. Returns when the server has hung up.
    void ask_for_room_as_stranger() const {
        Endpoint door = *parse_address("127.0.0.1");
        door.port = port_;
        const SocketAddress address = to_socket_address(door);
        const FileDescriptor stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        CHECK_EQ(connect(stranger.number(), address.get(), address.bytes), 0);
        const Hello hello = make_hello(true);
        const Proof proof{};
        std::array<std::byte, sizeof(Challenge)> answer;
        CHECK(send(stranger.number(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
        (void)recv(stranger.number(), answer.data(), answer.size(), MSG_WAITALL);
        (void)send(stranger.number(), &proof, sizeof proof, MSG_NOSIGNAL);
        CHECK(recv(stranger.number(), answer.data(), answer.size(), 0) <= 0); // hung up
    }
    Report report(size_t i) { return ranks_.report(i); }
    void end() {
        close(stay_[1]);
        stay_[1] = -1;
    }

private:
    const uint32_t size_;
    const uint16_t port_ = free_port();
    int met_[2], stay_[2];
    Processes ranks_;
};

void check_says(const Report &report, const std::string &part) {
    if (std::string(report.text).find(part) == std::string::npos) CHECK_EQ(report.text, part);
}

} // namespace

// The process that has served the rendezvous answers late ranks as long as it lives.
static void who_comes_late_is_told_why() {
    const Timer timer;
    {
        JobOfProcesses complete(2);
        for (const uint32_t rank : {0U, 1U}) complete.start(rank);
        complete.wait_for(2);
        check_says(complete.come_late(1), "two processes are rank 1 of 2: ");
        complete.end();
    }
    {
        JobOfProcesses robbed(2);
        robbed.start(0);
        robbed.start(1, true);
        robbed.wait_for(1);
        check_says(robbed.come_late(1), ") died");
        robbed.end();
    }
    {
        JobOfProcesses crowded(3);
        for (const uint32_t rank : {0U, 1U, 1U}) crowded.start(rank);
        crowded.wait_for(3);
        check_says(crowded.come_late(2), "two processes are rank 1 of 3: ");
        crowded.end();
    }
    CHECK(timer.seconds() < 10);
}

// The next rendezvous gets the port although the server of the previous one still answers late
// ranks, and although a child of that server lives.
static void the_next_rendezvous_gets_the_port() {
    for (const bool forks : {false, true}) {
        const Timer timer;
        JobOfProcesses job(2);
        job.start(0, false, forks);
        job.start(1);
        job.wait_for(2);
        check_says(job.come_late(0, 1s), "rank 1 of 2 did not come within 1 s");
        job.end();
        CHECK(timer.seconds() < 5);
    }
}

// A process without the secret cannot make the server leave the port.
static void a_stranger_does_not_get_the_port() {
    const Timer timer;
    JobOfProcesses job(2);
    for (const uint32_t rank : {0U, 1U}) job.start(rank);
    job.wait_for(2);
    job.ask_for_room_as_stranger();
    check_says(job.come_late(1, 3s), "two processes are rank 1 of 2: ");
    job.end();
    CHECK(timer.seconds() < 10);
}

static void two_that_are_rank_0_know_of_each_other() {
    const Timer timer;
    JobOfProcesses job(2);
    for (int i = 0; i < 2; i++) job.start(0);
    job.wait_for(2);
    job.end();
    for (size_t i = 0; i < 2; i++) check_says(job.report(i), "two processes are rank 0 of 2: ");
    CHECK(timer.seconds() < 5);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(who_comes_late_is_told_why),
        QTEST(the_next_rendezvous_gets_the_port),
        QTEST(a_stranger_does_not_get_the_port),
        QTEST(two_that_are_rank_0_know_of_each_other),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
