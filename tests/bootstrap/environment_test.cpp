// Tests the bootstrap from a launcher's variables: ranks join in any order and repeatedly, with or
// without a secret, also through a process manager's PMI-1 socket.
#include "variables_kit.hpp"

#include "bootstrap/launcher.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace kit;

static EnvironmentOptions some_options(std::chrono::nanoseconds timeout = 30s) {
    EnvironmentOptions some;
    some.rendezvous = options(timeout);
    some.rendezvous.interface.clear();
    return some;
}

struct Job {
    uint32_t size = 4;
    uint16_t port = free_port();
    std::string host = "localhost";

    Result<std::unique_ptr<Bootstrap>> join(uint32_t rank, const EnvironmentOptions &some) const {
        return join_variables({"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
                               "MASTER_ADDR=" + host, "MASTER_PORT=" + std::to_string(port - 1)},
                              some);
    }
    Done meet(uint32_t rank, const EnvironmentOptions &some = some_options()) const {
        QCCL_TRY(const auto bootstrap, join(rank, some));
        for (uint32_t round = 0; round < 3; round++) QCCL_TRY(exchange(*bootstrap, 8, round));
        return {};
    }
};

static void ranks_meet_by_variables() {
    for (const char *host : {"localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0"}) {
        Job job;
        job.host = host;
        for (const Done &done : crowd(job.size, [&](uint32_t rank) { return job.meet(rank); }))
            CHECK_OK(done);
    }
    const Job alone{.size = 1};
    CHECK_OK(alone.meet(0));
}

static void ranks_may_be_early_or_late() {
    for (const uint32_t last : {0U, 1U, 3U}) {
        const Job job;
        const Timer timer;
        for (const Done &done : crowd(job.size, [&](uint32_t rank) {
                 std::this_thread::sleep_for(((rank + job.size - 1 - last) % job.size) * 150ms);
                 return job.meet(rank);
             }))
            CHECK_OK(done);
        CHECK(timer.seconds() < 3);
    }
}

// In every round some ranks still leave while others already join again.
static void communicators_follow_each_other() {
    const Job job;
    const Timer timer;
    for (const Done &done : crowd(job.size, [&](uint32_t rank) -> Done {
             for (uint32_t turn = 0; turn < 20; turn++) {
                 if (turn % job.size == rank) std::this_thread::sleep_for(20ms);
                 QCCL_TRY(const auto bootstrap, job.join(rank, some_options()));
                 QCCL_TRY(exchange(*bootstrap, 8, turn));
                 if ((turn + 1) % job.size == rank) std::this_thread::sleep_for(20ms);
             }
             return {};
         }))
        CHECK_OK(done);
    CHECK(timer.seconds() < 15);
}

// The first communicator may stay in use for any time.
static void two_communicators_live_side_by_side() {
    const Job job;
    for (const Done &done : crowd(job.size, [&](uint32_t rank) -> Done {
             QCCL_TRY(const auto first, job.join(rank, some_options()));
             QCCL_TRY(const auto second, job.join(rank, some_options()));
             QCCL_TRY(exchange(*second, 8, 1));
             return exchange(*first, 8, 2);
         }))
        CHECK_OK(done);
}

static void who_does_not_fit_is_told() {
    Job job, larger;
    larger.port = job.port;
    larger.size = 5;
    const auto done = crowd(3, [&](uint32_t rank) {
        std::this_thread::sleep_for(rank * 100ms);
        return rank == 2 ? larger.meet(rank, some_options(5s)) : job.meet(rank, some_options(5s));
    });
    check_all_refused(done, Code::mismatch, 2, "says that there are 5 ranks, rank 0 says 4");
}

static void who_waits_says_for_what() {
    const Job job;
    EnvironmentOptions mine = some_options(700ms);
    std::mutex mutex;
    std::vector<std::string> warnings;
    mine.rendezvous.warn_after = 200ms;
    mine.rendezvous.warn = [&](const char *sentence) {
        const std::lock_guard lock(mutex);
        warnings.push_back(sentence);
    };
    const Done done = job.meet(1, mine);
    CHECK(!done && done.error().code == Code::timeout);
    const std::string port = std::to_string(job.port);
    CHECK(contains(done, port + " within 0.7 s: Connection refused"));
    CHECK_EQ(warnings.size(), size_t{1});
    CHECK(warnings[0].find(port + " yet: Connection refused (0.2 s so far)") != std::string::npos);

    warnings.clear();
    const Done alone = job.meet(0, mine);
    CHECK(contains(alone, "ranks 1, 2 and 3 of 4 did not come within 0.7 s"));
    CHECK_EQ(warnings.size(), size_t{1});
    CHECK_EQ(warnings[0], "waiting for ranks 1, 2 and 3 of 4 (0.2 s so far)");

    Job nowhere;
    nowhere.host = "no-such-host.invalid";
    CHECK(
        contains(nowhere.meet(1), "MASTER_ADDR: no address of \"no-such-host.invalid\" is known"));
}

// Rank 0 retries for a while, because the port may still belong to the previous rendezvous, and
// then gives up.
static void a_port_that_somebody_else_holds_is_named() {
    const Job job;
    std::vector<Endpoint> here{*parse_address("127.0.0.1"), *parse_address("::1")};
    for (Endpoint &endpoint : here) endpoint.port = job.port;
    const auto held = open_listeners(here);
    CHECK_OK(held);
    const Timer timer;
    const Done done = job.meet(0, some_options(500ms));
    CHECK(contains(done, "cannot listen on "));
    CHECK(contains(done, "Address already in use; QCCL_PORT chooses another port"));
    CHECK(timer.seconds() < 3);
}

// If another program listens at the port, a rank does not report a rank 0 with another secret.
static void another_program_at_the_port_is_told_from_another_secret() {
    std::vector<Endpoint> doors{*parse_address("127.0.0.1")};
    auto listeners = open_listeners(doors);
    CHECK_OK(listeners);
    const int door = listeners->front().get();
    std::thread program([door] {
        for (pollfd one{door, POLLIN, 0}; poll(&one, 1, -1) > 0;) {
            const Socket guest(accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
            if (!guest.is_open()) return; // shut down
            static constexpr std::string_view banner = "SSH-2.0-OpenSSH_9.2\r\n";
            (void)send(guest.get(), banner.data(), banner.size(), MSG_NOSIGNAL);
            Hello hello; // unread bytes would make the close discard the banner
            (void)recv(guest.get(), &hello, sizeof hello, MSG_WAITALL);
        }
    });
    Job job;
    job.host = "127.0.0.1";
    job.port = doors.front().port;
    const Done done = job.meet(1, some_options(500ms));
    CHECK(shutdown(door, SHUT_RDWR) == 0);
    program.join();
    CHECK(contains(done, "within 0.5 s: the process listening there is another program"));
}

static std::string write_secret(const std::string &name, const std::string &content, mode_t mode) {
    std::string path = std::filesystem::temp_directory_path() / name;
    path += "." + std::to_string(getpid());
    std::ofstream(path) << content;
    CHECK(chmod(path.c_str(), mode) == 0);
    return path;
}

static void a_secret_file_keeps_others_out() {
    const std::string right = write_secret("right", std::string(32, 'r'), 0600);
    const std::string wrong = write_secret("wrong", std::string(32, 'w'), 0640);
    const Job job;
    EnvironmentOptions mine = some_options();
    mine.secret_file = right;
    std::vector<std::string> warnings; // of rank 0; must outlive the options
    EnvironmentOptions of_rank_0 = mine;
    of_rank_0.rendezvous.warn = [&](const char *sentence) { warnings.push_back(sentence); };
    const auto stranger_with = [&](const std::string &path) {
        EnvironmentOptions theirs = some_options(1s);
        theirs.secret_file = path;
        return theirs;
    };
    const auto done = crowd(job.size + 2, [&](uint32_t place) -> Done {
        if (place == job.size) return job.meet(1, stranger_with(wrong));
        if (place > job.size) return job.meet(1, stranger_with(""));
        if (place == 1) std::this_thread::sleep_for(1500ms); // so that all strangers find rank 0
        return job.meet(place, place == 0 ? of_rank_0 : mine);
    });
    for (uint32_t rank = 0; rank < job.size; rank++) CHECK_OK(done[rank]);
    for (uint32_t place = job.size; place < done.size(); place++) {
        CHECK(contains(done[place], "within 1 s: the process listening there has another secret"));
        CHECK(contains(done[place], "QCCL_SECRET_FILE must name the same content on all ranks"));
    }
    CHECK_EQ(warnings.size(), size_t{1}); // of two strangers, each of which came several times
    CHECK(warnings[0].find("turned away a process at ") == 0);
    CHECK(warnings[0].find(" whose secret differs (QCCL_SECRET_FILE)") != std::string::npos);
    std::filesystem::remove(right);
    std::filesystem::remove(wrong);
}

static void a_secret_that_is_none_is_refused() {
    const auto refusal = [](const std::string &content, mode_t mode) {
        const std::string path = write_secret("secret", content, mode);
        const auto secret = read_secret_file(path);
        std::filesystem::remove(path);
        return secret ? std::string() : std::string(secret.error().text).substr(path.size());
    };
    const std::string long_enough(16, 'x');
    CHECK_EQ(refusal(long_enough, 0600), "");
    CHECK_EQ(refusal(long_enough, 0440), "");
    for (const auto &[open, shown] : {std::pair{0604U, "604"}, {0602U, "602"}, {0666U, "666"}}) {
        const std::string sentence = refusal(long_enough, open);
        CHECK_EQ(sentence.substr(0, sentence.find(", so it is not secret; chmod o= /")),
                 std::string(" can be read or written by others (mode ") + shown + ")");
        CHECK(sentence.ends_with("/secret." + std::to_string(getpid())));
    }
    CHECK_EQ(refusal("short", 0600), " holds 5 bytes; a secret has 16 to 65536");
    CHECK_EQ(refusal(std::string(70000, 'x'), 0600),
             " holds 70000 bytes; a secret has 16 to 65536");
    CHECK_EQ(std::string(read_secret_file("/nowhere/secret").error().text),
             "cannot read /nowhere/secret: No such file or directory");
    CHECK_EQ(std::string(read_secret_file("/tmp").error().text), "/tmp is no file");
    EnvironmentOptions mine = some_options();
    mine.secret_file = "/nowhere/secret";
    CHECK(contains(Job().meet(0, mine), "cannot read /nowhere/secret"));
}

namespace {

// Plays hydra, a PMI-1 process manager, for ranks that are processes.
class ManagerTwin {
public:
    explicit ManagerTwin(size_t size) : wires_(size), says_(size) {}

    int wire_of(size_t rank) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        wires_[rank] = ends[0];
        return ends[1];
    }
    // Runs until all ranks have closed their sockets. Returns how many ranks sent finalize, and how
    // many lines all ranks sent.
    std::pair<size_t, size_t> run() {
        size_t lines = 0, farewells = 0;
        for (size_t open = wires_.size(); open > 0;) {
            std::vector<pollfd> events;
            for (const int wire : wires_) events.push_back({wire, POLLIN, 0});
            CHECK(poll(events.data(), events.size(), 20000) > 0);
            for (size_t rank = 0; rank < wires_.size(); rank++) {
                if (!events[rank].revents) continue;
                char piece[512];
                const ssize_t got = read(wires_[rank], piece, sizeof piece);
                if (got <= 0) {
                    close(std::exchange(wires_[rank], -1));
                    open--;
                    continue;
                }
                says_[rank].append(piece, static_cast<size_t>(got));
                for (size_t end; (end = says_[rank].find('\n')) != std::string::npos; lines++) {
                    const std::string line = says_[rank].substr(0, end);
                    says_[rank].erase(0, end + 1);
                    farewells += line == "cmd=finalize";
                    answer(rank, line);
                }
            }
        }
        return {farewells, lines};
    }

private:
    void answer(size_t rank, const std::string &line) {
        const auto has = [&line](const char *words) {
            return line.find(words) != std::string::npos;
        };
        if (has("cmd=init "))
            say(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
        else if (has("cmd=get_my_kvsname"))
            say(rank, "cmd=my_kvsname kvsname=kvs_1");
        else if (has("cmd=put ")) {
            value_ = line.substr(line.find("value="));
            say(rank, "cmd=put_result rc=0 msg=success");
        } else if (has("cmd=get "))
            say(rank, "cmd=get_result rc=0 msg=success " + value_);
        else if (has("cmd=finalize"))
            say(rank, "cmd=finalize_ack");
        else if (has("cmd=barrier_in") && ++arrived_ == wires_.size())
            for (size_t other = 0; other < wires_.size(); other++) say(other, "cmd=barrier_out");
    }
    void say(size_t rank, const std::string &line) const {
        // Sends byte by byte, as a network may deliver it.
        for (const char c : line + "\n") CHECK(write(wires_[rank], &c, 1) == 1);
    }

    std::vector<int> wires_;
    std::vector<std::string> says_;
    std::string value_;
    size_t arrived_ = 0;
};

} // namespace

// Creates three communicators. The rank asks the manager only once, and finalizes PMI at the end.
static Done be_rank(uint32_t rank, uint32_t size, int wire, const std::string &secret_file) {
    const std::vector<std::string> variables{"PMI_RANK=" + std::to_string(rank),
                                             "PMI_SIZE=" + std::to_string(size),
                                             "PMI_FD=" + std::to_string(wire)};
    EnvironmentOptions mine = some_options();
    mine.secret_file = secret_file;
    for (uint32_t turn = 0; turn < 3; turn++) {
        QCCL_TRY(const auto bootstrap, join_variables(variables, mine));
        QCCL_TRY(exchange(*bootstrap, 8, turn));
    }
    return {};
}

static void ranks_meet_through_a_process_manager() {
    const std::string secret = write_secret("managed", std::string(32, 'm'), 0600);
    for (const std::string &secret_file : {std::string(), secret}) {
        constexpr size_t size = 3;
        ManagerTwin manager(size);
        std::vector<pid_t> ranks;
        for (size_t rank = 0; rank < size; rank++) {
            const int wire = manager.wire_of(rank);
            ranks.push_back(fork());
            if (ranks.back() == 0) {
                alarm(20);
                const Done done = be_rank(static_cast<uint32_t>(rank), size, wire, secret_file);
                if (!done) fprintf(stderr, "rank %zu: %s\n", rank, done.error().text);
                _exit(done ? 0 : 1);
            }
            close(wire);
        }
        const auto [farewells, lines] = manager.run();
        for (const pid_t rank : ranks) {
            int status = -1;
            waitpid(rank, &status, 0);
            CHECK_EQ(status, 0);
        }
        CHECK_EQ(farewells, size);
        CHECK_EQ(lines, 5 * size + 1); // rank 0 puts what the others get
    }
    std::filesystem::remove(secret);
}

static void a_manager_that_goes_is_named() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[0]);
    const Done done = be_rank(1, 2, ends[1], "");
    CHECK(contains(done, "the process manager"));
    close(ends[1]);
}

int main() {
    // The test that forks comes first, while this process has no threads.
    const CMUnitTest tests[] = {
        QTEST(ranks_meet_through_a_process_manager),
        QTEST(a_manager_that_goes_is_named),
        QTEST(ranks_meet_by_variables),
        QTEST(ranks_may_be_early_or_late),
        QTEST(communicators_follow_each_other),
        QTEST(two_communicators_live_side_by_side),
        QTEST(who_does_not_fit_is_told),
        QTEST(who_waits_says_for_what),
        QTEST(a_port_that_somebody_else_holds_is_named),
        QTEST(another_program_at_the_port_is_told_from_another_secret),
        QTEST(a_secret_file_keeps_others_out),
        QTEST(a_secret_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
