// Memory that a rank has beside its segment while a call runs that needs more than the outbox or
// the inbox holds. One object is one rank's view of one rank's memory; ranks view the memory of
// ranks of the same host only. Used by the thread that runs the rank's calls; does not block.
#pragma once

#include "base/file_descriptor.hpp"
#include "transport/mapping.hpp"
#include "transport/segment.hpp"
#include "transport/shared_memory.hpp"
#include "transport/transport.hpp"

#include <memory>
#include <mutex>
#include <span>

namespace qccl {

// Where the memory comes from.
class OverflowSource {
public:
    virtual ~OverflowSource() = default;
    // The owner makes so many bytes, all zeros, of which it will use `used` alone. That part is
    // there from the start: what cannot be had is an error here and never a SIGBUS later.
    // `still_needs` hears how much of it is yet to be had.
    virtual Result<std::span<std::byte>> make(size_t bytes, std::span<const ByteRange> used,
                                              const StillNeeds &still_needs) = 0;
    // Another rank maps what the owner has made. The error, damaged_data, says that the owner has
    // made nothing, or less than it says.
    virtual Result<std::span<std::byte>> find() = 0;
    // Undoes either. The memory that the owner has made goes back to the system.
    virtual void drop() = 0;
};

class OverflowMemory {
public:
    explicit OverflowMemory(std::unique_ptr<OverflowSource> source) : source_(std::move(source)) {}
    OverflowMemory(const OverflowMemory &) = delete;
    // The view ends, and the memory with its last view.
    ~OverflowMemory();

    // Of every memory from then on.
    void watch(const OverflowHooks &hooks) { hooks_ = hooks; }

    Done create(size_t bytes, std::span<const ByteRange> used, const StillNeeds &still_needs);
    Done open();
    // The owner closes its view when no rank reads the memory any more.
    void close();

    // As this rank has it mapped; empty while it does not.
    std::span<std::byte> memory() const { return memory_; }

private:
    Done show(Result<std::span<std::byte>> memory);

    std::unique_ptr<OverflowSource> source_;
    OverflowHooks hooks_;
    std::span<std::byte> memory_;
};

// Of ranks that are threads: where the owner's memory is found.
struct PlainOverflow {
    std::mutex mutex;
    std::shared_ptr<const Mapping> memory; // every view holds it, too
};
std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place);

// Of ranks that are processes it lies behind the segment in the segment's file, which grows for it.
// The owner keeps the file; another rank needs no descriptor, for it maps more of what it has
// mapped already.
std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file);
std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment);

} // namespace qccl
