// The file in which ranks of one process record their calls: without a name, to be found through
// the process and gone with it, or in a folder. Knows not what is in it.
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
    // Of the ranks from `rank` on.
    static Result<std::shared_ptr<RecordFile>> create(const std::string &folder, uint64_t session,
                                                      uint32_t rank, size_t bytes);

    RecordFile() = default;
    RecordFile(const RecordFile &) = delete;
    RecordFile &operator=(const RecordFile &) = delete;
    // A name goes with the last who holds the file, but not in a child that the process forked.
    ~RecordFile();

    std::byte *base() const { return memory_.base(); }
    // The name stays, for whoever looks into it afterwards.
    void keep() { is_kept_.store(true, std::memory_order_relaxed); }

private:
    Done make_memory(size_t bytes);
    Done make_named(const std::string &path, size_t bytes);

    Mapping memory_;
    SharedFile file_{}; // held open, where it has no name
    std::string path_;
    int64_t pid_ = 0;
    std::atomic<bool> is_kept_{false};
};

} // namespace qccl
