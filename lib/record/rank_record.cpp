// Reads records that may be half-written, of another version, or no records at all.
#include "record/rank_record.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <map>

namespace qccl {

namespace {

// No record is larger; a number beyond these is damaged.
constexpr uint32_t most_calls = 1 << 16;
constexpr uint32_t most_listed_processes = 1 << 16;

template <class T> T read(std::span<const std::byte> bytes, size_t offset) {
    T value;
    std::memcpy(static_cast<void *>(&value), bytes.data() + offset, sizeof value);
    return value;
}

template <size_t most> void end_text(char (&text)[most]) {
    text[most - 1] = 0;
    // Replaces characters that must not reach a terminal.
    for (char &letter : text)
        if (letter != 0 && (letter < ' ' || letter > '~')) letter = '?';
}

Done check_head(const RecordHead &head, size_t room) {
    if (head.magic != RecordHead::our_magic)
        return Error::make(Code::damaged_data, "it is no record of calls, or not a whole one");
    if (head.version != RecordHead::our_version)
        return Error::make(Code::damaged_data,
                           "it is a record of version %u; this program reads version %u",
                           head.version, RecordHead::our_version);
    const RecordShape shape{.calls = head.calls, .local_ranks = head.local_ranks};
    const bool is_sound = head.calls != 0 && head.calls <= most_calls &&
                          head.local_ranks <= most_listed_processes && head.rank < head.ranks &&
                          head.bytes == shape.bytes();
    if (!is_sound) return Error::make(Code::damaged_data, "the head of the record is damaged");
    if (head.bytes > room) return Error::make(Code::damaged_data, "the record has been cut short");
    return {};
}

// Whether the entry was written completely. Its values are not checked, because values without a
// name are shown as numbers.
bool is_whole(const RecordedCall &recorded, uint64_t slot, uint32_t calls) {
    const CallDescriptor &call = recorded.call;
    return call.call != 0 && call.call % calls == slot &&
           recorded.check == RecordedCall::check_of(call, call.hash());
}

RankRecord parse_record(std::span<const std::byte> bytes, const RecordHead &head) {
    RankRecord record{.head = head, .state = {}, .calls = {}, .processes = {}};
    end_text(record.head.boot);
    end_text(record.head.host);
    end_text(record.head.name);
    record.state = read<RecordedState>(bytes, RecordShape::state_offset);
    for (uint32_t i = 0; i < head.calls; i++) {
        auto recorded =
            read<RecordedCall>(bytes, RecordShape::calls_offset + i * sizeof(RecordedCall));
        if (!is_whole(recorded, i, head.calls)) continue;
        end_text(recorded.call.codec);
        end_text(recorded.call.algorithm);
        record.calls.push_back(recorded.call);
    }
    std::sort(record.calls.begin(), record.calls.end(),
              [](const auto &a, const auto &b) { return a.call < b.call; });
    const RecordShape shape{.calls = head.calls, .local_ranks = head.local_ranks};
    for (uint32_t i = 0; i < head.local_ranks; i++)
        record.processes.push_back(
            read<RecordedProcess>(bytes, shape.processes_offset() + i * sizeof(RecordedProcess)));
    return record;
}

// The tags come last, because the difference of the descriptors does not compare them.
std::string difference(const RankRecord &reference, const RankRecord &record, uint64_t call) {
    const CallDescriptor &ours = *reference.find(call), &theirs = *record.find(call);
    if (const auto error = ours.difference(reference.head.rank, theirs, record.head.rank))
        return error->text;
    if (ours.tag == theirs.tag) return {};
    char text[160];
    std::snprintf(text, sizeof text,
                  "rank %" PRIu32 " calls %s with tag %" PRIu64 ", rank %" PRIu32
                  " with tag %" PRIu64 ", in call %" PRIu64,
                  record.head.rank, collective_text(theirs.collective).c_str(), theirs.tag,
                  reference.head.rank, ours.tag, call);
    return text;
}

uint32_t to_32_bits(uint64_t number) {
    return static_cast<uint32_t>(std::min<uint64_t>(number, UINT32_MAX));
}

Wait wait_of(const RecordedState &state) {
    Wait wait(to_32_bits(state.on));
    if (state.phase <= static_cast<uint64_t>(WaitPhase::device))
        wait.phase = static_cast<WaitPhase>(state.phase);
    wait.step = to_32_bits(state.step);
    wait.steps = to_32_bits(state.steps);
    wait.segment = state.segment;
    wait.segments = state.segments;
    return wait;
}

// The times may be any numbers.
int64_t span_ns(int64_t from_ns, int64_t to_ns) {
    return from_ns < 0 || to_ns < from_ns ? 0 : to_ns - from_ns;
}

template <size_t most> std::string text_of(const char (&text)[most]) {
    return {text, strnlen(text, most)};
}

} // namespace

const CallDescriptor *RankRecord::find(uint64_t call) const {
    const auto found =
        std::lower_bound(calls.begin(), calls.end(), call,
                         [](const CallDescriptor &each, uint64_t n) { return each.call < n; });
    return found == calls.end() || found->call != call ? nullptr : &*found;
}

RankState RankRecord::rank_state(std::optional<int64_t> now_ns) const {
    RankState known{.rank = head.rank, .begun = state.begun, .ended = state.ended};
    known.has_left = state.has_left != 0;
    known.has_failed = state.has_failed != 0;
    if (const CallDescriptor *const latest = find(state.begun)) known.call = *latest;
    if (state.waits == 0) return known;
    known.wait = wait_of(state);
    known.waited_ns = span_ns(state.since_ns, now_ns.value_or(state.awake_ns));
    known.silent_ns = now_ns ? span_ns(state.awake_ns, *now_ns) : 0;
    return known;
}

Result<std::vector<RankRecord>> parse_records(std::span<const std::byte> file) {
    std::vector<RankRecord> records;
    while (!file.empty()) {
        if (file.size() < RecordShape::calls_offset) {
            if (!records.empty()) break;
            return Error::make(Code::damaged_data, "it is too short for a record of calls");
        }
        const auto head = read<RecordHead>(file, 0);
        // A rank after the first may not have written its record yet.
        if (const Done sound = check_head(head, file.size()); !sound) {
            if (!records.empty()) break;
            return sound.error();
        }
        records.push_back(parse_record(file, head));
        file = file.subspan(head.bytes);
    }
    return records;
}

std::string first_difference(std::span<const RankRecord> records) {
    std::map<uint64_t, const RankRecord *> references; // by call: the first record that has it
    std::map<uint64_t, std::string> found;
    for (const RankRecord &record : records)
        for (const CallDescriptor &call : record.calls) {
            const auto [place, is_new] = references.try_emplace(call.call, &record);
            if (is_new || found.contains(call.call)) continue;
            std::string text = difference(*place->second, record, call.call);
            if (!text.empty()) found.emplace(call.call, std::move(text));
        }
    return found.empty() ? std::string() : found.begin()->second;
}

std::string describe(const CallDescriptor &call) {
    const auto type = to_type(static_cast<int32_t>(call.type));
    const auto op = to_op(static_cast<int32_t>(call.op));
    char text[256];
    std::snprintf(text, sizeof text,
                  "call %" PRIu64 ": %s, count %" PRIu64
                  ", type %s, op %s, codec %s, algorithm %s, "
                  "root %" PRIu32 ", tag %" PRIu64,
                  call.call, collective_text(call.collective).c_str(), call.count,
                  type ? name(*type) : "?", op ? name(*op) : "?", text_of(call.codec).c_str(),
                  text_of(call.algorithm).c_str(), call.root, call.tag);
    if (call.captured == 0) return text;
    return text + (", captured call " + std::to_string(call.captured));
}

} // namespace qccl
