// Creates the files of the flight recorder, with and without a name, and removes them. Writes the
// states of waits and failures, and the heads of flight records. Writes the events of calls into
// the ring.
#include "trace/recorder.hpp"

#include "base/clock.hpp"
#include "base/system.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace qccl {

// ---- The file

Result<std::shared_ptr<RecordFile>> RecordFile::create(const std::string &folder, uint64_t session,
                                                       uint32_t rank, size_t bytes) {
    auto made = std::make_shared<RecordFile>();
    made->pid_ = getpid();
    if (folder.empty()) {
        QCCL_TRY(made->make_memory(bytes));
        return made;
    }
    char name[64];
    std::snprintf(name, sizeof name, "/%s%016" PRIx64 "-rank%" PRIu32 "%s", record_name_beginning,
                  session, rank, record_name_end);
    // The path is absolute, because the program may have changed its working directory by the time
    // the file is removed.
    std::error_code nowhere;
    const std::filesystem::path here = std::filesystem::absolute(folder, nowhere);
    QCCL_TRY(made->make_named((nowhere ? folder : here.string()) + name, bytes));
    return made;
}

Done RecordFile::make_memory(size_t bytes) {
    QCCL_TRY(FileDescriptor file, create_shared_memory(bytes, record_memory_name));
    QCCL_TRY(const SharedFile described, describe(file.number()));
    QCCL_TRY(memory_, Mapping::shared(file.number(), bytes));
    file_ = described;
    file.release();
    return {};
}

Done RecordFile::make_named(const std::string &path, size_t bytes) {
    constexpr mode_t owner_alone = 0600;
    const auto in_vain = [&](const char *why) {
        return Error::make(Code::system_error, "QCCL_RECORD: %.200s: %.200s", path.c_str(), why);
    };
    const FileDescriptor file(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, owner_alone));
    if (!file.is_open()) return in_vain(std::strerror(errno));
    path_ = path;
    if (ftruncate(file.number(), static_cast<off_t>(bytes)) != 0)
        return in_vain(std::strerror(errno));
    if (const Done done = allocate_file(file.number(), bytes); !done)
        return in_vain(done.error().text);
    QCCL_TRY(memory_, Mapping::shared(file.number(), bytes));
    return {};
}

RecordFile::~RecordFile() {
    // The program may have closed this descriptor and opened another file under its number.
    const FileDescriptor file(file_.number >= 0 && is_open(file_) ? file_.number : -1);
    if (!path_.empty() && !is_kept_ && pid_ == getpid()) unlink(path_.c_str());
}

// ---- One rank's record

void Recorder::waits(const Wait &wait, int64_t since_ns, int64_t now_ns) {
    if (!base_) return;
    RecordedState &shown = state();
    set(shown.on, uint64_t{wait.on});
    set(shown.phase, static_cast<uint64_t>(wait.phase));
    set(shown.step, uint64_t{wait.step});
    set(shown.steps, uint64_t{wait.steps});
    set(shown.segment, wait.segment);
    set(shown.segments, wait.segments);
    set(shown.since_ns, since_ns);
    set(shown.awake_ns, now_ns);
    set(shown.waits, uint64_t{1});
}

void Recorder::failed() {
    if (!base_) return;
    set(state().has_failed, uint64_t{1});
    wait_done();
    file_->keep();
}

Result<FlightRecorderFile> FlightRecorderFile::make(const RecordOptions &options, uint64_t session,
                                                    uint32_t first_rank, uint32_t ranks,
                                                    uint32_t listed) {
    FlightRecorderFile made{
        .file = nullptr, .shape = {.calls = RecordShape::calls_of(ranks), .local_ranks = listed}};
    if (!options.is_kept) return made;
    auto file = RecordFile::create(options.folder, session, first_rank, ranks * made.shape.bytes());
    if (file)
        made.file = std::move(*file);
    else if (!options.folder.empty())
        return file.error();
    return made;
}

template <size_t most> static void put(char (&field)[most], const std::string &text) {
    text.copy(field, most - 1);
}

static RecordHead head_of(const RecordOwner &owner, const RecordShape &shape) {
    RecordHead head{.calls = shape.calls,
                    .bytes = shape.bytes(),
                    .session = owner.session,
                    .rank = owner.rank,
                    .ranks = owner.ranks,
                    .local_ranks = shape.local_ranks,
                    .pid = getpid(),
                    .process_start = process_status(getpid()).value_or(ProcessStatus()).start};
    if (const auto boot = boot_id()) put(head.boot, *boot);
    (void)gethostname(head.host, sizeof head.host - 1);
    put(head.name, owner.communicator);
    return head;
}

Recorder FlightRecorderFile::recorder(uint32_t place, const RecordOwner &owner,
                                      std::span<const RecordedProcess> listed) const {
    if (!file) return {};
    std::byte *const base = file->base() + place * shape.bytes();
    auto *const processes = reinterpret_cast<RecordedProcess *>(base + shape.processes_offset());
    std::copy(listed.begin(), listed.end(), processes);
    const RecordHead head = head_of(owner, shape);
    auto &shown = *reinterpret_cast<RecordHead *>(base);
    shown = head;
    std::atomic_ref(shown.magic).store(RecordHead::our_magic, std::memory_order_release);
    return Recorder(file, base, shape.calls);
}

// ---- The tracer of calls

CallTracer::CallTracer(LoggedComm comm, bool wants_steps, Wake &wake)
    : comm_(std::move(comm)), wants_steps_(wants_steps), wake_(wake) {}

uint32_t CallTracer::add_shape(uint64_t key, LoggedShape shape) {
    if (shapes_.size() == most_shapes_known) shapes_.clear();
    shape.id = ++last_shape_;
    shape.comm = comm_.id;
    shapes_[key] = shape.id;
    const std::lock_guard lock(mutex_);
    new_shapes_.push_back(std::move(shape));
    return last_shape_;
}

std::vector<LoggedShape> CallTracer::take_new_shapes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_shapes_, {});
}

bool CallTracer::begin(const CallStart &call) {
    call_ = {.begin = ticks_now(),
             .call = call.number,
             .link = call.queued,
             .value = call.tag,
             .shape = call.shape};
    left_out_ = 0;
    has_begin_ = false;
    if (!wants_steps_) return false;
    const uint64_t skipped = skipped_groups_.load(std::memory_order_relaxed);
    if ((call.number / group_of_calls & skipped) != 0) return false;
    // A call is traced with all its steps or not at all, unless it has more steps than the ring has
    // room for.
    const size_t enough = ring_.capacity() / 2;
    if (ring_.room(enough) < enough) return false;
    has_begin_ = true;
    TraceEvent event = call_;
    event.kind = TraceEvent::Kind::call_begin;
    ring_.push(event);
    return true;
}

void CallTracer::end(bool has_failed) {
    call_.kind = TraceEvent::Kind::call_end;
    call_.end = ticks_now();
    call_.peer = left_out_;
    call_.detail = static_cast<uint8_t>((has_failed ? TraceEnd::failed : 0) |
                                        (has_begin_ ? TraceEnd::began : 0));
    if (ring_.room(1) >= 1)
        ring_.push(call_);
    else
        lost_.fetch_add(1, std::memory_order_relaxed);
    if (ring_.written() - woken_at_ < ring_.capacity() / 4) return;
    woken_at_ = ring_.written();
    wake_.release();
}

} // namespace qccl
