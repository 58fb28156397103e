// Where records of calls are: in processes and folders. Opens nothing but what calls itself one,
// stops nobody, and copies what it finds.
#pragma once

#include "base/file_descriptor.hpp"
#include "record/rank_record.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace qccl::perf {

// A file, or memory of a process, that can be read again and again.
class RecordSource {
public:
    RecordSource(FileDescriptor file, uint64_t offset, uint64_t bytes, std::string where,
                 int64_t pid)
        : file_(std::move(file)), offset_(offset), bytes_(bytes), where_(std::move(where)),
          pid_(pid) {}

    // As it is at the moment.
    Result<std::vector<RankRecord>> read() const;
    // The process that it was found in; 0: it lies in a folder.
    int64_t pid() const { return pid_; }

private:
    FileDescriptor file_;
    uint64_t offset_, bytes_;
    std::string where_;
    int64_t pid_;
};

// None is no error, where that can be known.
Result<std::vector<RecordSource>> records_of_process(int64_t pid);
Result<std::vector<RecordSource>> records_of_folder(const std::filesystem::path &folder);
// All that are to be seen.
std::vector<int64_t> all_processes();

} // namespace qccl::perf
