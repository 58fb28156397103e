// Implements record_search.hpp: searches /proc and folders for records.
#include "perf/record_search.hpp"

#include "base/process.hpp"
#include "base/parse_units.hpp"
#include "base/system_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::perf {

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
    if (!status) return Error::make(Code::invalid_argument, "there is no process %" PRId64, pid);
    if (status->has_ended())
        return Error::make(Code::invalid_argument, "process %" PRId64 " has ended", pid);
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
    if (problem)
        return Error::make(Code::invalid_argument, "%s: %s", folder.c_str(),
                           problem.message().c_str());
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

} // namespace qccl::perf
