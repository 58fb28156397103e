// Words errors of system calls, reads regular files with a limit on their size, /proc/PID/stat and
// the kernel's boot id, and expands patterns of file names. The fork handlers are functions without
// an object, so the numbers of all hidden descriptors are kept in one list for the process. Starts
// a thread with all signals blocked, names it and pins it.
#include "base/system.hpp"

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

// ---- Failed system calls

std::string describe_errno(int number) {
    std::string said = std::strerror(number);
    rlimit limit{};
    if (number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        said += " (the limit of open files, ulimit -n, is " + std::to_string(limit.rlim_cur) + ")";
    return said;
}

Error cannot(const char *what) {
    return Error::make(Code::system_error, "cannot %s: %s", what, describe_errno(errno).c_str());
}

// ---- Descriptors and fork

namespace {

struct Shielded {
    std::mutex mutex;
    std::vector<int> numbers;
};

Shielded &shielded() {
    // Never destroyed: a process may fork while it exits.
    static Shielded *const all = [] {
        pthread_atfork([] { shielded().mutex.lock(); }, [] { shielded().mutex.unlock(); },
                       [] {
                           Shielded &inherited = shielded();
                           const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
                           for (const int number : inherited.numbers)
                               if (nothing < 0 || dup3(nothing, number, O_CLOEXEC) < 0)
                                   close(number);
                           if (nothing >= 0) close(nothing);
                           inherited.mutex.unlock();
                       });
        return new Shielded;
    }();
    return *all;
}

} // namespace

HideOnFork::HideOnFork(const FileDescriptor &descriptor) : number_(descriptor.number()) {
    if (number_ == none) return;
    Shielded &all = shielded();
    const std::lock_guard guard(all.mutex);
    all.numbers.push_back(number_);
}

HideOnFork::~HideOnFork() {
    if (number_ == none) return;
    Shielded &all = shielded();
    const std::lock_guard guard(all.mutex);
    std::erase(all.numbers, number_);
}

// ---- Reading files

Result<std::string> read_regular_file(const std::string &path, size_t most_bytes) {
    // O_NONBLOCK: if the path is a pipe, open() must not wait for a writer.
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (!file.is_open() || fstat(file.number(), &about) != 0)
        return invalid_argument("it cannot be read: %s", describe_errno(errno).c_str());
    if (S_ISDIR(about.st_mode)) return invalid_argument("it is a directory, not a file");
    if (!S_ISREG(about.st_mode)) return invalid_argument("it is no regular file");
    if (static_cast<uint64_t>(about.st_size) > most_bytes)
        return invalid_argument("it has %lld bytes, more than the %zu possible",
                                static_cast<long long>(about.st_size), most_bytes);
    std::string text(static_cast<size_t>(about.st_size), '\0');
    size_t got = 0;
    while (got < text.size()) {
        const ssize_t bytes = read(file.number(), text.data() + got, text.size() - got);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0)
            return Error::make(Code::system_error, "it cannot be read: %s",
                               describe_errno(errno).c_str());
        if (bytes == 0) break; // the file became shorter meanwhile
        got += static_cast<size_t>(bytes);
    }
    text.resize(got);
    return text;
}

// ---- Patterns of file names

std::string host_name() {
    char host[256] = {};
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0) return "localhost";
    return host;
}

Result<std::string> expand_file_pattern(const char *what, const std::string &pattern,
                                        const std::string &host, std::optional<uint32_t> rank) {
    std::string path;
    for (size_t i = 0; i < pattern.size(); i++) {
        if (pattern[i] != '%') {
            path += pattern[i];
            continue;
        }
        const char letter = ++i < pattern.size() ? pattern[i] : '\0';
        if (letter == 'h')
            path += host;
        else if (letter == 'p')
            path += std::to_string(getpid());
        else if (letter == 'r' && rank)
            path += std::to_string(*rank);
        else if (letter == '%')
            path += '%';
        else
            return invalid_argument(
                "%s \"%s\": %%h is the host, %%p the process%s and %%%% a percent; "
                "nothing else may follow %%",
                what, pattern.c_str(), rank ? ", %r the rank" : "");
    }
    return path;
}

static bool names_rank(const std::string &pattern) {
    for (size_t i = 0; i + 1 < pattern.size(); i++) {
        if (pattern[i] != '%') continue;
        if (pattern[++i] == 'r') return true;
    }
    return false;
}

Result<std::string> rank_file_path(const char *what, const std::string &pattern, uint32_t rank,
                                   uint32_t ranks) {
    QCCL_TRY(const std::string path, expand_file_pattern(what, pattern, host_name(), rank));
    std::error_code error;
    if (path.ends_with('/') || std::filesystem::is_directory(path, error))
        return invalid_argument(
            "%s \"%s\" is a folder; expected the name of a file such as %s%srank-%%r", what,
            pattern.c_str(), path.c_str(), path.ends_with('/') ? "" : "/");
    const bool is_shared = ranks > 1 && !names_rank(pattern);
    if (!is_shared) return path;
    return expand_file_pattern(what, with_suffix(pattern, "-%r"), host_name(), rank);
}

std::string with_suffix(const std::string &path, const std::string &text) {
    const size_t name = path.find_last_of('/') + 1; // 0 where there is no folder
    const size_t dot = path.find_last_of('.');
    const bool has_extension = dot != std::string::npos && dot > name;
    const size_t at = has_extension ? dot : path.size();
    return path.substr(0, at) + text + path.substr(at);
}

// ---- Processes

std::optional<ProcessStatus> process_status(int64_t pid) {
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path, "re"), std::fclose);
    char bytes[1024];
    const std::string line(bytes, file ? std::fread(bytes, 1, sizeof bytes, file.get()) : 0);
    // The second word is the program's name, which may contain any character.
    const size_t end_of_name = line.rfind(')');
    if (end_of_name == std::string::npos) return std::nullopt;
    ProcessStatus status;
    const int found = std::sscanf(line.c_str() + end_of_name + 1,
                                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                  "%*s %*s %*s %" SCNu64,
                                  &status.state, &status.start);
    return found == 2 ? std::optional(status) : std::nullopt;
}

Result<std::string> boot_id() {
    static constexpr const char *path = "/proc/sys/kernel/random/boot_id";
    const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
    if (!file.is_open() && errno != ENOENT && errno != EACCES)
        return Error::make(Code::system_error, "cannot open %s: %s", path,
                           describe_errno(errno).c_str());
    std::array<char, 36> boot{}; // a UUID
    const ssize_t got = file.is_open() ? read(file.number(), boot.data(), boot.size()) : 0;
    return std::string(boot.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
}

// ---- Threads

Result<ServiceThread> ServiceThread::start(const char *name, std::function<void()> body) {
    ServiceThread quiet;
    const Done started = exception_boundary([&]() -> Done {
        const SignalBlocker while_it_starts;
        quiet.thread_ = std::thread(std::move(body));
        return {};
    });
    if (!started)
        return Error::make(Code::system_error, "cannot start a thread: %s", started.error().text);

    pthread_setname_np(quiet.thread_.native_handle(), name);
    return quiet;
}

Done ServiceThread::pin(uint64_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    const int error = pthread_setaffinity_np(thread_.native_handle(), sizeof set, &set);
    if (error == 0) return {};
    return invalid_argument("this process cannot run there: %s", strerror(error));
}

// ---- Forked children

namespace {

using EpochWord = std::atomic<uint64_t>;

constinit EpochWord no_epoch{0};
// The latest epoch of this process and its ancestors. Unlike the epoch itself, this word is copied
// to a child.
constinit EpochWord latest_epoch{0};

Result<EpochWord *> map_word() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *const page =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return cannot("map a page");
    // If this fails (Linux before 4.14, some emulators), forked children are not detected.
    madvise(page, bytes, MADV_WIPEONFORK);
    EpochWord *found = &no_epoch, *const made = new (page) EpochWord(0);
    if (fork_detector::epoch_word.compare_exchange_strong(found, made)) return made;
    munmap(page, bytes); // another thread was first
    return found;
}

} // namespace

constinit std::atomic<EpochWord *> fork_detector::epoch_word{&no_epoch};

Result<uint64_t> begin_epoch() {
    EpochWord *word = fork_detector::epoch_word.load(std::memory_order_acquire);
    if (word == &no_epoch) {
        QCCL_TRY(word, map_word());
    }
    uint64_t epoch = word->load();
    if (epoch != 0) return epoch;
    const uint64_t next = latest_epoch.fetch_add(1) + 1;
    return word->compare_exchange_strong(epoch, next) ? next : epoch;
}

} // namespace qccl
