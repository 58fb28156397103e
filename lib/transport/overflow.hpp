// Memory that a rank has beside its segment for calls that need more than the outbox or the inbox
// holds. The rank may keep the memory for later calls. One object is one rank's view of one rank's
// memory; a rank views only memory of ranks of its own host. Used by the thread that runs the
// rank's calls; does not block.
#pragma once

#include "base/file_descriptor.hpp"
#include "transport/mapping.hpp"
#include "transport/segment.hpp"
#include "transport/shared_memory.hpp"
#include "transport/transport.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace qccl {

// Makes, maps and drops the memory.
class OverflowSource {
public:
    virtual ~OverflowSource() = default;
    // The owner makes at least `bytes` bytes, or grows the memory that it has to that size. The
    // memory is allocated at once: a lack of memory is an error here and never a SIGBUS later.
    // `still_needs` is told how many of the added bytes are yet to be allocated. After an error the
    // memory has the size that it had before.
    virtual Result<MappedMemory> make(size_t bytes, const StillNeeds &still_needs) = 0;
    // Another rank maps what the owner has by now. What this rank has mapped already stays where it
    // is, unless the memory has grown. Returns damaged_data if the owner has made nothing, or less
    // than it says.
    virtual Result<MappedMemory> find() = 0;
    // Undoes `make` or `find`. The memory that the owner has made goes back to the system.
    virtual void drop() = 0;
};

class OverflowMemory {
public:
    explicit OverflowMemory(std::unique_ptr<OverflowSource> source) : source_(std::move(source)) {}
    OverflowMemory(const OverflowMemory &) = delete;

    // See Transport::keep_overflow.
    void keep(std::function<Done(const MappedMemory &)> on_open) {
        is_kept_ = true;
        on_open_ = std::move(on_open);
    }

    // `create` is for the owner, `open` for the other ranks. Both return the errors of the source
    // and of `on_open`.
    Done create(size_t bytes, const StillNeeds &still_needs);
    Done open() { return adopt(source_->find()); }
    // Called at the end of a call. The owner closes its view when no rank reads the memory any
    // more.
    void close();

    // The memory as this rank has it mapped; empty while it is not mapped.
    std::span<std::byte> memory() const { return mapped_.bytes; }

private:
    Done adopt(Result<MappedMemory> memory);

    std::unique_ptr<OverflowSource> source_;
    bool is_kept_ = false;
    std::function<Done(const MappedMemory &)> on_open_;
    MappedMemory mapped_;
};

// For ranks that are threads: where other ranks find the owner's memory.
struct PlainOverflow {
    std::mutex mutex;
    FileDescriptor file;
    MappedMemory memory;
};
std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place);

// For ranks that are processes: the memory lies behind the segment in the segment's file, which
// grows for it. The owner keeps the file open. Another rank needs no descriptor, since it extends
// the mapping that it has of the segment.
std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file);
std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment);

} // namespace qccl
