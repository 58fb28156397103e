// Tests base/log: each message becomes one whole line, written at once, with host, process and rank
// in front.
#include "tests/kit/qtest.hpp"
#include "tests/kit/temporary_folder.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace qccl;

static size_t most_at_once = SIZE_MAX;

// Replaces the C library's write, so that a test can make writes short.
extern "C" ssize_t write(int file, const void *bytes, size_t count) {
    return syscall(SYS_write, file, bytes, std::min(count, most_at_once));
}

static std::vector<std::string> lines_of(const std::string &path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

static std::string host() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
}

static void a_line_says_who_and_how_bad() {
    const qtest::TemporaryFolder folder;
    const std::string pid = std::to_string(getpid());
    const auto log =
        Log::create({.level = LogLevel::info, .file = folder / "%h.%p.100%%.log", .rank = 3});
    CHECK_OK(log);
    (*log)->warn("rank %d is late", 7);
    (*log)->info("hello");
    (*log)->trace("not wanted");
    const auto lines = lines_of(folder / "" + host() + "." + pid + ".100%.log");
    CHECK_EQ(lines.size(), size_t{2});
    CHECK_EQ(lines[0], host() + ":" + pid + ":3 qccl warn: rank 7 is late");
    CHECK_EQ(lines[1], host() + ":" + pid + ":3 qccl info: hello");
}

static void levels_filter() {
    const auto log = Log::create({});
    CHECK_OK(log);
    CHECK((*log)->wants(LogLevel::warn));
    CHECK(!(*log)->wants(LogLevel::info));
    CHECK(parse_log_level("INFO") == LogLevel::info);
    CHECK(parse_log_level("trace") == LogLevel::trace);
    CHECK(!parse_log_level("inf") && !parse_log_level("") && !parse_log_level("information"));
}

static void a_message_cannot_forge_a_line() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto log = Log::create({.file = path});
    CHECK_OK(log);
    (*log)->warn("peer says: %s", "x\nhost:1:0 qccl warn: forged\r\x1b[2J");
    (*log)->warn("%s", std::string(10000, 'y').c_str());
    const auto lines = lines_of(path);
    CHECK_EQ(lines.size(), size_t{2});
    CHECK(lines[0].ends_with(":- qccl warn: peer says: x host:1:0 qccl warn: forged  [2J"));
    CHECK(lines[1].size() > 1000 && lines[1].size() < 4096 && lines[1].ends_with("yyy"));
}

static void the_callback_gets_the_line() {
    const qtest::TemporaryFolder folder;
    std::vector<std::string> seen;
    const auto keep = [](LogLevel level, const char *line, void *context) {
        static_cast<std::vector<std::string> *>(context)->push_back(std::string(name(level)) + "|" +
                                                                    line);
    };
    const auto log =
        Log::create({.file = folder / "log", .rank = 0, .callback = keep, .context = &seen});
    CHECK_OK(log);
    (*log)->warn("one");
    (*log)->info("unwanted");
    CHECK_EQ(seen.size(), size_t{1});
    CHECK_EQ(seen[0], "warn|" + lines_of(folder / "log")[0]);
}

static void without_a_file_the_callback_is_alone() {
    std::string seen;
    const auto keep = [](LogLevel, const char *line, void *context) {
        *static_cast<std::string *>(context) += line;
    };
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    {
        const auto log = Log::create({.file = "", .callback = keep, .context = &seen});
        if (log) (*log)->warn("hello");
    }
    dup2(before, STDERR_FILENO);
    for (const int end : {before, ends[1]}) close(end);
    char leaked;
    CHECK(read(ends[0], &leaked, 1) == 0); // and destroying the log has closed nothing else
    close(ends[0]);
    CHECK(seen.ends_with("hello"));
}

// Eight threads in each of two processes share a file; every line must be whole.
static void lines_never_mix() {
    static constexpr int threads = 8, messages = 200;
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "log";
    const auto shout = [&path] {
        const auto log = Log::create({.file = path});
        if (!log) return;
        std::vector<std::thread> crowd;
        for (int t = 0; t < threads; t++)
            crowd.emplace_back([&log, t] {
                for (int i = 0; i < messages; i++)
                    (*log)->warn("<%d %d %s>", t, i, std::string(300, 'z').c_str());
            });
        for (std::thread &one : crowd) one.join();
    };
    const pid_t child = fork();
    if (child == 0) {
        shout();
        _exit(0);
    }
    shout();
    waitpid(child, nullptr, 0);
    const auto lines = lines_of(path);
    CHECK_EQ(lines.size(), size_t{2 * threads * messages});
    CHECK_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), lines.size());
    for (const std::string &line : lines)
        CHECK(line.starts_with(host() + ":") && line.ends_with("zzz>"));
}

static void short_writes_are_continued() {
    const qtest::TemporaryFolder folder;
    const auto log = Log::create({.file = folder / "log"});
    CHECK_OK(log);
    most_at_once = 7;
    (*log)->warn("the first line");
    most_at_once = SIZE_MAX;
    (*log)->warn("the second");
    const auto lines = lines_of(folder / "log");
    CHECK_EQ(lines.size(), size_t{2});
    CHECK(lines[0].ends_with("qccl warn: the first line"));
}

static bool is_waiting(int signal) {
    sigset_t waiting;
    sigpending(&waiting);
    return sigismember(&waiting, signal) == 1;
}

static bool is_blocked(int signal) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return sigismember(&mask, signal) == 1;
}

static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// Logs in a child process where a write raises `signal`. Returns the child's status: 0 if the
// child's signals are as if nothing had happened.
static int log_in_child(int signal, const Log &log) {
    const pid_t child = fork();
    if (child == 0) {
        log.warn("lost");
        const bool was_left_alone = !is_waiting(signal) && !is_blocked(signal);
        // A program that blocks this signal itself keeps its own pending one.
        block(signal);
        log.warn("lost");
        const bool was_taken_back = !is_waiting(signal);
        raise(signal);
        log.warn("lost");
        _exit(was_left_alone && was_taken_back && is_waiting(signal) && is_blocked(signal) ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void a_pipe_without_a_reader_sends_no_signal() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "pipe";
    CHECK(mkfifo(path.c_str(), 0600) == 0);
    const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    const auto log = Log::create({.file = path});
    close(reader);
    CHECK_OK(log);
    CHECK_EQ(log_in_child(SIGPIPE, **log), 0);
}

static void a_file_at_its_limit_sends_no_signal() {
    const qtest::TemporaryFolder folder;
    const auto log = Log::create({.file = folder / "log"});
    CHECK_OK(log);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none{0, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    const int status = log_in_child(SIGXFSZ, **log);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_EQ(status, 0);
}

static void a_bad_path_is_an_error() {
    const auto lost = Log::create({.file = "/nonexistent/qccl.log"});
    CHECK(!lost && lost.error().code == Code::system_error);
    CHECK_EQ(std::string(lost.error().text),
             "QCCL_DEBUG_FILE: cannot open \"/nonexistent/qccl.log\": No such file or directory");
    const auto odd = Log::create({.file = "/tmp/%x"});
    CHECK(!odd && odd.error().code == Code::invalid_argument);
    CHECK(std::string(odd.error().text).starts_with("QCCL_DEBUG_FILE \"/tmp/%x\": %h is the host"));
    CHECK(Log::create({.file = "/tmp/%"}).error().code == Code::invalid_argument);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_line_says_who_and_how_bad),          QTEST(levels_filter),
        QTEST(a_message_cannot_forge_a_line),        QTEST(the_callback_gets_the_line),
        QTEST(without_a_file_the_callback_is_alone), QTEST(lines_never_mix),
        QTEST(short_writes_are_continued),           QTEST(a_pipe_without_a_reader_sends_no_signal),
        QTEST(a_file_at_its_limit_sends_no_signal),  QTEST(a_bad_path_is_an_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
