// Memory that a rank has beside its segment while a call runs that needs more than the outbox or
// the inbox holds, and that it may keep for later calls. One object is one rank's view of one
// rank's memory; ranks view the memory of ranks of the same host only. Used by the thread that runs
// the rank's calls; does not block.
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

// Where the memory comes from.
class OverflowSource {
public:
    virtual ~OverflowSource() = default;
    // The owner makes so many bytes, at least, or has what it has made grow to as many. They are
    // there from the start: what cannot be had is an error here and never a SIGBUS later.
    // `still_needs` hears how much is yet to be had of what is added. After an error the memory is
    // as large as before.
    virtual Result<MappedMemory> make(size_t bytes, const StillNeeds &still_needs) = 0;
    // Another rank maps what the owner has by now. What this rank has mapped already stays where it
    // is, unless it has grown. The error, damaged_data, says that the owner has made nothing, or
    // less than it says.
    virtual Result<MappedMemory> find() = 0;
    // Undoes either. The memory that the owner has made goes back to the system.
    virtual void drop() = 0;
};

class OverflowMemory {
public:
    explicit OverflowMemory(std::unique_ptr<OverflowSource> source) : source_(std::move(source)) {}
    OverflowMemory(const OverflowMemory &) = delete;

    // As Transport::keep_overflow says.
    void keep(std::function<Done(const MappedMemory &)> on_open) {
        is_kept_ = true;
        on_open_ = std::move(on_open);
    }

    Done create(size_t bytes, const StillNeeds &still_needs);
    Done open() { return show(source_->find()); }
    // At the end of a call. The owner closes its view when no rank reads the memory any more.
    void close();

    // As this rank has it mapped; empty while it does not.
    std::span<std::byte> memory() const { return shown_.bytes; }

private:
    Done show(Result<MappedMemory> memory);

    std::unique_ptr<OverflowSource> source_;
    bool is_kept_ = false;
    std::function<Done(const MappedMemory &)> on_open_;
    MappedMemory shown_;
};

// Of ranks that are threads: where the owner's memory is found.
struct PlainOverflow {
    std::mutex mutex;
    FileDescriptor file;
    MappedMemory memory;
};
std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place);

// Of ranks that are processes it lies behind the segment in the segment's file, which grows for it.
// The owner keeps the file; another rank needs no descriptor, for it maps more of what it has
// mapped already.
std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file);
std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment);

} // namespace qccl
