// qccl-info attach: shows from outside what the ranks of a running job are doing. Used by
// qccl_info.cpp. Blocks for about 100 ms between two readings of the ranks' records.
//
// The search finds records of calls in processes and folders. It opens only what is named as a
// record, does not stop the processes, and copies the data.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"
#include "trace/rank_record.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qccl::perf {

// ---- Search for records

// A file, or memory of a process, that can be read repeatedly.
class RecordSource {
public:
    RecordSource(FileDescriptor file, uint64_t offset, uint64_t bytes, std::string where,
                 int64_t pid)
        : file_(std::move(file)), offset_(offset), bytes_(bytes), where_(std::move(where)),
          pid_(pid) {}

    // Returns the records as they are now.
    Result<std::vector<RankRecord>> read() const;
    // Returns the process in which the source was found; 0: it was found in a folder.
    int64_t pid() const { return pid_; }

private:
    FileDescriptor file_;
    uint64_t offset_, bytes_;
    std::string where_;
    int64_t pid_;
};

// Both functions return an empty list if there are no records. records_of_process fails if the
// process does not exist, has ended or may not be inspected.
Result<std::vector<RecordSource>> records_of_process(int64_t pid);
Result<std::vector<RecordSource>> records_of_folder(const std::filesystem::path &folder);
// Returns the pids of all visible processes.
std::vector<int64_t> all_processes();

// ---- The command

struct AttachRequest {
    std::string place;       // a pid, or a folder with records
    uint32_t last_calls = 0; // how many calls of each rank to list
};

Done print_attached(const AttachRequest &request);

} // namespace qccl::perf
