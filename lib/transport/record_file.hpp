// The file in which the ranks of one process record their calls (the flight recorder). It either
// has no name, is found through the process and ends with it, or it lies in a folder. Used by
// Recorder. `keep` may run on any thread.
#pragma once

#include "record/record_layout.hpp"
#include "transport/shared_memory.hpp"
#include "transport/transport.hpp"

#include <atomic>
#include <memory>
#include <string>

namespace qccl {

class RecordFile {
public:
    // Creates a file of `bytes` zeros for the process's ranks, of which `rank` is the first.
    // `folder`: where the file gets a name; empty: it has none. `session` is part of the name. The
    // error says what the system refuses.
    static Result<std::shared_ptr<RecordFile>> create(const std::string &folder, uint64_t session,
                                                      uint32_t rank, size_t bytes);

    RecordFile() = default;
    RecordFile(const RecordFile &) = delete;
    RecordFile &operator=(const RecordFile &) = delete;
    // The last holder removes a named file unless `keep` was called. A forked child does not remove
    // it.
    ~RecordFile();

    std::byte *base() const { return memory_.base(); }
    // Lets a named file outlive its last holder, so that it can be examined afterwards.
    void keep() { is_kept_.store(true, std::memory_order_relaxed); }

private:
    Done make_memory(size_t bytes);
    Done make_named(const std::string &path, size_t bytes);

    Mapping memory_;
    SharedFile file_{}; // held open if it has no name
    std::string path_;
    int64_t pid_ = 0;
    std::atomic<bool> is_kept_{false};
};

} // namespace qccl
