// Implements attach.hpp: searches /proc and folders for records, reads the ranks' records twice,
// finds the ranks that run beside a given process, and prints the state of each.
#include "perf/info/attach.hpp"

#include "base/system.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Search for records

namespace {

namespace fs = std::filesystem;

// The link's target in /proc.
const std::string memory_link = std::string("/memfd:") + record_memory_name;
// Upper limit for the size of a file of records.
constexpr uint64_t most_bytes = uint64_t{64} << 20;

std::string proc_path(int64_t pid, const char *what) {
    return "/proc/" + std::to_string(pid) + "/" + what;
}

// Refuses everything but regular files, because opening or reading another kind of file could
// block.
Result<RecordSource> open_source(const fs::path &path, int flags, std::string where, int64_t pid) {
    FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags));
    struct stat found {};
    if (!file.is_open() || fstat(file.number(), &found) != 0)
        return Error::make(Code::system_error, "%s: %s", path.c_str(),
                           describe_errno(errno).c_str());
    if (!S_ISREG(found.st_mode))
        return Error::make(Code::system_error, "%s is no file", path.c_str());
    return RecordSource(std::move(file), 0, static_cast<uint64_t>(found.st_size), std::move(where),
                        pid);
}

// Finds records by the process's open descriptors, which are visible to its user.
std::vector<RecordSource> in_files(int64_t pid, std::error_code &problem) {
    std::vector<RecordSource> found;
    for (fs::directory_iterator entry(proc_path(pid, "fd"), problem), end; !problem && entry != end;
         entry.increment(problem)) {
        std::error_code gone;
        const std::string target = fs::read_symlink(entry->path(), gone).string();
        if (gone.value() == EACCES) { // listed, but its link is not readable
            problem = gone;
            break;
        }
        if (gone || !target.starts_with(memory_link)) continue;
        auto source = open_source(entry->path(), 0, "process " + std::to_string(pid), pid);
        if (source) found.push_back(std::move(*source));
    }
    return found;
}

// Finds records by the process's memory mappings, in case the program has closed descriptors that
// it had not opened itself.
std::vector<RecordSource> in_memory(int64_t pid) {
    std::vector<RecordSource> found;
    const std::unique_ptr<FILE, int (*)(FILE *)> maps(
        std::fopen(proc_path(pid, "maps").c_str(), "re"), std::fclose);
    if (!maps) return found;
    char line[512];
    while (std::fgets(line, sizeof line, maps.get())) {
        uint64_t start, end, offset;
        if (!std::strstr(line, memory_link.c_str()) ||
            std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64, &start, &end, &offset) !=
                3 ||
            offset != 0)
            continue;
        FileDescriptor memory(open(proc_path(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC));
        if (memory.is_open())
            found.push_back(RecordSource(std::move(memory), start, end - start,
                                         "process " + std::to_string(pid), pid));
    }
    return found;
}

// A job may have more ranks than the usual limit of open files.
void allow_many_files() {
    rlimit most{};
    if (getrlimit(RLIMIT_NOFILE, &most) != 0) return;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

} // namespace

Result<std::vector<RankRecord>> RecordSource::read() const {
    std::vector<std::byte> bytes(std::min(bytes_, most_bytes));
    size_t filled = 0;
    while (filled < bytes.size()) {
        const ssize_t got = pread(file_.number(), bytes.data() + filled, bytes.size() - filled,
                                  static_cast<off_t>(offset_ + filled));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return Error::make(Code::system_error, "%s: %s", where_.c_str(), std::strerror(errno));
        if (got == 0) break; // the file has been truncated
        filled += static_cast<size_t>(got);
    }
    auto records = parse_records(std::span(bytes).first(filled));
    if (records) return records;
    return Error::make(Code::damaged_data, "%.200s: %.200s", where_.c_str(), records.error().text);
}

Result<std::vector<RecordSource>> records_of_process(int64_t pid) {
    const auto status = process_status(pid);
    if (!status) return invalid_argument("there is no process %" PRId64, pid);
    if (status->has_ended()) return invalid_argument("process %" PRId64 " has ended", pid);
    std::error_code problem;
    std::vector<RecordSource> found = in_files(pid, problem);
    if (problem.value() == EACCES || problem.value() == EPERM)
        return Error::make(
            Code::system_error,
            "process %" PRId64 " cannot be looked at: only its user and root may do that%s", pid,
            geteuid() == 0 ? ", in a container only with the capability SYS_PTRACE" : "");
    if (problem)
        return Error::make(Code::system_error, "process %" PRId64 " cannot be looked at: %s", pid,
                           problem.message().c_str());
    if (found.empty()) return in_memory(pid);
    return found;
}

Result<std::vector<RecordSource>> records_of_folder(const fs::path &folder) {
    std::error_code problem;
    std::vector<fs::path> paths;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(record_name_beginning) && name.ends_with(record_name_end))
            paths.push_back(entry->path());
    }
    if (problem) return invalid_argument("%s: %s", folder.c_str(), problem.message().c_str());
    std::sort(paths.begin(), paths.end());
    allow_many_files();
    std::vector<RecordSource> found;
    for (const fs::path &path : paths) {
        auto source = open_source(path, O_NOFOLLOW, path.string(), 0);
        if (source)
            found.push_back(std::move(*source));
        else // an unreadable file must not hide the others
            std::fprintf(stderr, "qccl-info: %s\n", source.error().text);
    }
    return found;
}

std::vector<int64_t> all_processes() {
    std::vector<int64_t> pids;
    std::error_code problem;
    for (fs::directory_iterator entry("/proc", problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        if (const auto pid = parse_count(name)) pids.push_back(static_cast<int64_t>(*pid));
    }
    return pids;
}

// ---- The command

namespace {

// Time between the two readings, by which waiting ranks are told from ranks that make progress.
constexpr auto between_looks = std::chrono::milliseconds(100);

struct SeenRank {
    RankRecord record;
    RankState state;
    int64_t pid = 0;
    std::string host;      // set only if the rank is on another machine
    uint64_t made = 0;     // calls begun between the two readings
    std::string uncertain; // why the rank has no record
};
using SeenRanks = std::map<uint32_t, SeenRank>;
using Sessions = std::map<uint64_t, SeenRanks>;

int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Attachment {
public:
    Attachment() {
        if (auto boot = boot_id()) boot_ = std::move(*boot);
    }

    Done take_process(int64_t pid);
    Done take_folder(const std::string &folder);
    // Adds the ranks of the known communicators that are still missing.
    void take_siblings();
    void look_again();
    const Sessions &sessions() const { return sessions_; }

private:
    void keep(RecordSource source, std::vector<RankRecord> records);
    void see(const RecordSource &source, RankRecord record);
    void miss(uint64_t session, const RecordedProcess &process);
    std::vector<RecordedProcess> missing(uint64_t session) const;
    std::set<uint64_t> incomplete() const;

    std::string boot_; // empty if it cannot be determined
    std::vector<RecordSource> sources_;
    Sessions sessions_;
};

// Returns the pid by which the record's process is known here, or 0 if the process has ended. The
// start time identifies the process: its pid differs inside and outside its container, and a forked
// child, which is another process, holds the same files.
int64_t process_of(const RankRecord &record, int64_t found_in) {
    for (const int64_t pid : {record.head.pid, found_in}) {
        const auto status = process_status(pid);
        if (status && !status->has_ended() && status->start == record.head.process_start)
            return pid;
    }
    return 0;
}

RankState::Process state_of(int64_t pid) {
    const auto status = process_status(pid);
    if (!status || status->has_ended()) return RankState::Process::ended;
    return status->is_stopped() ? RankState::Process::stopped : RankState::Process::runs;
}

void Attachment::see(const RecordSource &source, RankRecord record) {
    SeenRank &seen = sessions_[record.head.session][record.head.rank];
    const uint64_t before = seen.record.head.magic != 0 ? seen.record.state.begun : UINT64_MAX;
    const bool is_here = source.pid() != 0 || boot_ == record.head.boot;
    const int64_t pid = is_here ? process_of(record, source.pid()) : 0;
    seen.pid = pid != 0 ? pid : record.head.pid;
    if (!is_here) seen.host = record.head.host;
    seen.state = record.rank_state(pid != 0 ? std::optional(now_ns()) : std::nullopt);
    if (is_here) seen.state.process = state_of(pid);
    seen.made = record.state.begun > before ? record.state.begun - before : 0;
    seen.record = std::move(record);
}

void Attachment::keep(RecordSource source, std::vector<RankRecord> records) {
    for (RankRecord &record : records) see(source, std::move(record));
    sources_.push_back(std::move(source));
}

Done Attachment::take_process(int64_t pid) {
    QCCL_TRY(auto sources, records_of_process(pid));
    if (sources.empty())
        return invalid_argument("process %" PRId64
                                " has no communicator of QCCL, or records no calls (QCCL_RECORD)",
                                pid);
    Error last;
    for (RecordSource &source : sources) {
        auto records = source.read();
        if (!records) {
            last = records.error();
            continue;
        }
        keep(std::move(source), std::move(*records));
    }
    return sources_.empty() ? Done(last) : Done();
}

Done Attachment::take_folder(const std::string &folder) {
    QCCL_TRY(auto sources, records_of_folder(folder));
    if (sources.empty()) return invalid_argument("no records of calls are in %s", folder.c_str());
    for (RecordSource &source : sources) {
        auto records = source.read();
        if (!records) {
            std::fprintf(stderr, "qccl-info: %s\n", records.error().text);
            continue;
        }
        keep(std::move(source), std::move(*records));
    }
    if (!sources_.empty()) return {};
    return Error::make(Code::damaged_data, "no record in %s can be read", folder.c_str());
}

std::vector<RecordedProcess> Attachment::missing(uint64_t session) const {
    const SeenRanks &ranks = sessions_.at(session);
    std::vector<RecordedProcess> found;
    for (const RecordedProcess &process : ranks.begin()->second.record.processes)
        if (!ranks.contains(process.rank)) found.push_back(process);
    return found;
}

std::set<uint64_t> Attachment::incomplete() const {
    std::set<uint64_t> found;
    for (const auto &[session, ranks] : sessions_)
        if (!missing(session).empty()) found.insert(session);
    return found;
}

void Attachment::take_siblings() {
    const auto take = [&](int64_t pid, const std::set<uint64_t> &wanted) {
        auto sources = records_of_process(pid);
        if (!sources) return;
        for (RecordSource &source : *sources) {
            auto records = source.read();
            if (!records || records->empty() || !wanted.contains(records->front().head.session))
                continue;
            keep(std::move(source), std::move(*records));
        }
    };
    std::set<int64_t> asked;
    for (const uint64_t session : incomplete())
        for (const RecordedProcess &process : missing(session))
            if (asked.insert(process.pid).second) take(process.pid, incomplete());
    // The recorded pids may be those of a container, so all processes are searched.
    if (!incomplete().empty())
        for (const int64_t pid : all_processes())
            if (!asked.contains(pid)) take(pid, incomplete());
    for (const uint64_t session : incomplete())
        for (const RecordedProcess &process : missing(session)) miss(session, process);
}

void Attachment::miss(uint64_t session, const RecordedProcess &process) {
    SeenRank &seen = sessions_[session][process.rank];
    seen.pid = process.pid;
    seen.state.rank = process.rank;
    seen.state.process = RankState::Process::unknown;
    const auto found = records_of_process(process.pid);
    seen.uncertain = found ? "has no record any more" : found.error().text;
    if (!process_status(process.pid)) seen.state.process = RankState::Process::ended;
}

void Attachment::look_again() {
    std::this_thread::sleep_for(between_looks);
    for (const RecordSource &source : sources_)
        if (auto records = source.read())
            for (RankRecord &record : *records) see(source, std::move(record));
}

std::string state_text(const SeenRank &seen) {
    std::string text;
    if (seen.made != 0)
        text = "goes on: " + std::to_string(seen.made) + " calls within " +
               std::to_string(between_looks.count()) + " ms";
    else
        text = seen.uncertain.empty() ? describe(seen.state) : seen.uncertain;
    return seen.host.empty() ? text : text + " (on " + seen.host + ")";
}

void print_ranks(const SeenRanks &ranks) {
    std::printf("  %6s %8s %10s  %s\n", "rank", "pid", "call", "state");
    for (const auto &[rank, seen] : ranks)
        std::printf("  %6" PRIu32 " %8" PRId64 " %10" PRIu64 "  %s\n", rank, seen.pid,
                    seen.state.begun, state_text(seen).c_str());
}

void print_summary(const SeenRanks &ranks) {
    std::vector<RankState> states;
    for (const auto &[rank, seen] : ranks)
        if (seen.made == 0) states.push_back(seen.state);
    for (const std::string &sentence : summarize(states)) std::printf("%s\n", sentence.c_str());
}

void print_comparison(const SeenRanks &ranks) {
    std::vector<RankRecord> records;
    for (const auto &[rank, seen] : ranks)
        if (seen.uncertain.empty()) records.push_back(seen.record);
    const std::string difference = first_difference(records);
    if (!difference.empty())
        std::printf("the first call in which they differ: %s\n", difference.c_str());
    else if (records.size() > 1)
        std::printf("they agree about every call that they have recorded\n");
}

void print_calls(const SeenRanks &ranks, uint32_t most) {
    for (const auto &[rank, seen] : ranks) {
        const auto &calls = seen.record.calls;
        const size_t shown = std::min<size_t>(most, calls.size());
        if (shown != 0) std::printf("rank %" PRIu32 ", its last calls:\n", rank);
        for (size_t i = calls.size() - shown; i < calls.size(); i++)
            std::printf("  %s\n", describe(calls[i]).c_str());
    }
}

void print_communicator(uint64_t session, const SeenRanks &ranks, uint32_t last_calls) {
    const auto known = std::find_if(ranks.begin(), ranks.end(),
                                    [](const auto &each) { return each.second.uncertain.empty(); });
    const RecordHead &head = known->second.record.head;
    const char *const quote = head.name[0] == 0 ? "" : "\"";
    std::printf("communicator %016" PRIx64 "%s%s%s%s: %" PRIu32 " rank%s", session,
                head.name[0] == 0 ? "" : " ", quote, head.name, quote, head.ranks,
                head.ranks == 1 ? "" : "s");
    if (ranks.size() < head.ranks) std::printf(", %zu of them here", ranks.size());
    std::printf("\n");
    print_ranks(ranks);
    print_summary(ranks);
    print_comparison(ranks);
    print_calls(ranks, last_calls);
}

std::optional<int64_t> number_in(const std::string &text) {
    const auto number = parse_count(text);
    if (!number || *number == 0 || *number > INT64_MAX) return std::nullopt;
    return static_cast<int64_t>(*number);
}

} // namespace

Done print_attached(const AttachRequest &request) {
    Attachment attachment;
    if (const auto pid = number_in(request.place)) {
        QCCL_TRY(attachment.take_process(*pid));
        attachment.take_siblings();
    } else {
        QCCL_TRY(attachment.take_folder(request.place));
    }
    attachment.look_again();
    bool is_first = true;
    for (const auto &[session, ranks] : attachment.sessions()) {
        if (!is_first) std::printf("\n");
        is_first = false;
        print_communicator(session, ranks, request.last_calls);
    }
    return {};
}

} // namespace qccl::perf
