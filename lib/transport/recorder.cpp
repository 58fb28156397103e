// Writes the states of waits and failures, and the heads of flight records.
#include "transport/recorder.hpp"

#include "base/process.hpp"

#include <cstring>
#include <unistd.h>

namespace qccl {

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

Result<FlightRecorderFile> FlightRecorderFile::make(const TransportOptions &options,
                                                    uint64_t session, uint32_t first_rank,
                                                    uint32_t ranks, uint32_t listed) {
    FlightRecorderFile made{
        .file = nullptr, .shape = {.calls = RecordShape::calls_of(ranks), .local_ranks = listed}};
    if (!options.record.is_kept) return made;
    const std::string &folder = options.record.folder;
    auto file = RecordFile::create(folder, session, first_rank, ranks * made.shape.bytes());
    if (file)
        made.file = std::move(*file);
    else if (!folder.empty())
        return file.error();
    return made;
}

template <size_t most> static void put(char (&field)[most], const std::string &text) {
    text.copy(field, most - 1);
}

static RecordHead head_of(const TransportOptions &options, const PeerInfoTable &peer_info,
                          const RecordShape &shape) {
    RecordHead head{.calls = shape.calls,
                    .bytes = shape.bytes(),
                    .session = peer_info.session(),
                    .rank = options.rank,
                    .ranks = options.size,
                    .local_ranks = shape.local_ranks,
                    .pid = getpid(),
                    .process_start = process_status(getpid()).value_or(ProcessStatus()).start};
    if (const auto boot = boot_id()) put(head.boot, *boot);
    (void)gethostname(head.host, sizeof head.host - 1);
    put(head.name, options.record.communicator);
    return head;
}

Recorder FlightRecorderFile::recorder(uint32_t place, const TransportOptions &options,
                                      const PeerInfoTable &peer_info,
                                      std::span<const uint32_t> listed) const {
    if (!file) return {};
    std::byte *const base = file->base() + place * shape.bytes();
    auto *const processes = reinterpret_cast<RecordedProcess *>(base + shape.processes_offset());
    const std::vector<int64_t> pids = peer_info.pids();
    for (size_t i = 0; i < listed.size(); i++)
        processes[i] = {.rank = listed[i], .pid = static_cast<int32_t>(pids[listed[i]])};
    const RecordHead head = head_of(options, peer_info, shape);
    auto &shown = *reinterpret_cast<RecordHead *>(base);
    shown = head;
    std::atomic_ref(shown.magic).store(RecordHead::our_magic, std::memory_order_release);
    return Recorder(file, base, shape.calls);
}

} // namespace qccl
