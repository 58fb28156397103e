#include "transport/overflow.hpp"

#include "base/round_up.hpp"

#include <unistd.h>

namespace qccl {

OverflowMemory::~OverflowMemory() {
    if (!memory_.empty() && hooks_.on_closing) hooks_.on_closing(memory_);
}

Done OverflowMemory::show(Result<std::span<std::byte>> memory) {
    if (!memory) return memory.error();
    const Done watched = hooks_.on_open ? hooks_.on_open(*memory) : Done();
    if (watched)
        memory_ = *memory;
    else
        source_->drop();
    return watched;
}

Done OverflowMemory::create(size_t bytes, std::span<const ByteRange> used,
                            const StillNeeds &still_needs) {
    close();
    return show(source_->make(bytes, used, still_needs));
}

Done OverflowMemory::open() {
    if (!memory_.empty()) return {};
    return show(source_->find());
}

void OverflowMemory::close() {
    if (memory_.empty()) return;
    if (hooks_.on_closing) hooks_.on_closing(memory_);
    memory_ = {};
    source_->drop();
}

namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Error nothing_there() {
    return Error::make(Code::damaged_data, "a message points outside every outbox");
}

class PlainSource final : public OverflowSource {
public:
    explicit PlainSource(PlainOverflow &place) : place_(place) {}

    Result<std::span<std::byte>> make(size_t bytes, std::span<const ByteRange> used,
                                      const StillNeeds &still_needs) override {
        QCCL_TRY(still_needs(sum_bytes(used)));
        QCCL_TRY(Mapping mapping, Mapping::anonymous(bytes));
        view_ = std::make_shared<const Mapping>(std::move(mapping));
        is_owner_ = true;
        const std::lock_guard guard(place_.mutex);
        place_.memory = view_;
        return std::span(view_->base(), view_->bytes());
    }
    Result<std::span<std::byte>> find() override {
        const std::lock_guard guard(place_.mutex);
        view_ = place_.memory;
        if (!view_) return nothing_there();
        return std::span(view_->base(), view_->bytes());
    }
    void drop() override {
        view_.reset();
        const std::lock_guard guard(place_.mutex);
        if (is_owner_) place_.memory.reset();
    }

private:
    PlainOverflow &place_;
    std::shared_ptr<const Mapping> view_;
    bool is_owner_ = false;
};

class FileSource final : public OverflowSource {
public:
    FileSource(const Segment &segment, FileDescriptor file)
        : segment_(segment), start_(round_up(segment.bytes(), page_bytes())),
          file_(std::move(file)) {}

    Result<std::span<std::byte>> make(size_t bytes, std::span<const ByteRange> used,
                                      const StillNeeds &still_needs) override {
        const size_t whole = round_up(bytes, page_bytes());
        QCCL_TRY(extend_file(file_.number(), start_, whole, used, still_needs));
        auto mapping = Mapping::shared(file_.number(), whole, start_);
        if (!mapping) {
            empty_file(file_.number(), start_, whole);
            return mapping.error();
        }
        view_ = std::move(*mapping);
        bytes_here().store(whole, std::memory_order_relaxed);
        return std::span(view_.base(), whole);
    }
    // A rank that has a message which points there sees what the owner stored before the message.
    // The file does not shrink (it is sealed), so that one look at its end is enough.
    Result<std::span<std::byte>> find() override {
        const size_t bytes = bytes_here().load(std::memory_order_relaxed), page = page_bytes();
        if (bytes == 0 || bytes > most_outbox_bytes) return nothing_there();
        QCCL_TRY(Mapping found, Mapping::again(segment_.base() + start_ - page, page + bytes));
        if (!found.is_backed()) return nothing_there();
        view_ = std::move(found);
        return std::span(view_.base() + page, bytes);
    }
    void drop() override {
        view_ = {};
        if (file_.is_open()) empty_file(file_.number(), start_, bytes_here().exchange(0));
    }

private:
    std::atomic<uint64_t> &bytes_here() const { return segment_.presence().overflow_bytes; }

    const Segment segment_;
    const size_t start_; // in the file
    const FileDescriptor file_;
    Mapping view_;
};

} // namespace

std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place) {
    return std::make_unique<OverflowMemory>(std::make_unique<PlainSource>(place));
}

std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file) {
    return std::make_unique<OverflowMemory>(std::make_unique<FileSource>(segment, std::move(file)));
}

std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment) {
    return own_file_overflow(segment, FileDescriptor());
}

} // namespace qccl
