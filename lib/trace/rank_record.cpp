// Computes how many calls a record keeps, words what ranks do and which rank each of them waits for
// in the end, and reads records that may be half-written, of another version, or no records at all.
#include "trace/rank_record.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <unordered_map>

namespace qccl {

// ---- Bytes of a record

uint32_t RecordShape::calls_of(uint32_t ranks_of_process) {
    constexpr uint32_t fewest = 16, of_all = calls_recorded * 256;
    return std::clamp(std::bit_floor(of_all / std::max(ranks_of_process, 1U)), fewest,
                      calls_recorded);
}

// ---- States of ranks, in sentences

namespace {

using Process = RankState::Process;

// The forms of a verb for one rank and for several.
struct Verb {
    const char *one, *many;
    const char *of(bool several) const { return several ? many : one; }
};
constexpr Verb be{"is", "are"}, have{"has", "have"}, wait_for{"waits", "wait"},
    be_heard{"was last heard of", "were last heard of"};

std::string seconds_text(int64_t ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ns) * 1e-9);
    return text;
}

std::string call_text(const RankState &state) {
    const std::string number = "call " + std::to_string(state.begun);
    return state.call ? number + " (" + collective_text(state.call->collective) + ")" : number;
}

// Returns the rank's place among its calls, to stand behind a verb such as "has ended".
std::string place_text(const RankState &state) {
    if (state.begun == 0) return " before the first call";
    return (state.is_in_call() ? " in " : " after ") + call_text(state);
}

using States = std::span<const RankState>;
using Awaited = std::optional<uint32_t>;

// Returns the index of the rank in `states`, or the size of `states` if the rank is not there.
size_t find(States states, uint32_t rank) {
    const auto found = std::ranges::lower_bound(states, rank, {}, &RankState::rank);
    const bool is_there = found != states.end() && found->rank == rank;
    return is_there ? static_cast<size_t>(found - states.begin()) : states.size();
}

// Returns for every state the rank that it waits for in the end: the end of the chain of ranks of
// which each waits for the next, up to a rank that is in a message. Empty if the chain ends at a
// rank that waits for its readers, if the chain is a cycle, or if the state waits for nothing.
// Every state is visited once, however long the chains are.
std::vector<Awaited> awaited_in_the_end(States states) {
    std::vector<Awaited> ends(states.size());
    std::vector<bool> is_seen(states.size()); // its end is known or is being searched
    std::vector<size_t> chain;
    for (size_t first = 0; first < states.size(); first++) {
        Awaited end;
        chain.clear();
        for (size_t at = first; at < states.size() && states[at].wait;) {
            if (is_seen[at]) {
                end = ends[at]; // empty in a cycle
                break;
            }
            is_seen[at] = true;
            chain.push_back(at);
            const uint32_t on = states[at].wait->on;
            if (on == states[at].rank) break;
            at = find(states, on);
            const bool goes_on = at < states.size() && states[at].is_waiting();
            if (goes_on && !states[at].is_in_message()) continue;
            end = on;
            break;
        }
        for (const size_t passed : chain) ends[passed] = end;
    }
    return ends;
}

// Returns ranks of which each waits for the next, and the last one for the first, by number; empty
// if there are none. One of them is in a message: ranks in calls of the communicator alone wait for
// each other only in states that were read at different times.
std::vector<uint32_t> deadlocked(States states) {
    const auto goes_on = [&](size_t at) {
        return at < states.size() && states[at].is_waiting() &&
               states[at].wait->on != states[at].rank;
    };
    const auto next_of = [&](size_t at) { return find(states, states[at].wait->on); };
    std::vector<size_t> seen_from(states.size(), states.size()); // where the chain began
    for (size_t first = 0; first < states.size(); first++) {
        size_t at = first;
        for (; goes_on(at) && seen_from[at] == states.size(); at = next_of(at))
            seen_from[at] = first;
        if (!goes_on(at) || seen_from[at] != first) continue;
        std::vector<uint32_t> ranks{states[at].rank};
        bool has_message = states[at].is_in_message();
        for (size_t next = next_of(at); next != at; next = next_of(next)) {
            ranks.push_back(states[next].rank);
            has_message |= states[next].is_in_message();
        }
        std::ranges::sort(ranks);
        if (has_message) return ranks;
    }
    return {};
}

std::string halt_text(const RankState &state, bool several) {
    if (state.process == Process::stopped)
        return std::string(", and ") + be.of(several) + " stopped";
    if (state.has_stalled()) return std::string(", but ") + (several ? "do" : "does") + " not run";
    return {};
}

std::string call_predicate(const RankState &state, const Awaited &awaited, bool several) {
    if (!state.wait)
        return (state.is_remote ? be_heard.of(several) : be.of(several) + std::string(" busy")) +
               place_text(state);
    return wait_for.of(several) + place_text(state) +
           (awaited ? " for rank " + std::to_string(*awaited) : " for others to read");
}

std::string message_text(const Wait &wait) {
    return (wait.phase == WaitPhase::send ? " to send to rank " : " to receive from rank ") +
           std::to_string(wait.on);
}

// Returns the words behind "rank 3" or "ranks 3, 4". `awaited`: the rank that it waits for in the
// end.
std::string predicate(const RankState &state, const Awaited &awaited, bool several) {
    if (state.process == Process::unknown) return "cannot be looked at";
    if (state.process == Process::ended)
        return have.of(several) + std::string(" ended") + place_text(state);
    if (state.has_left) return have.of(several) + std::string(" left") + place_text(state);
    if (state.has_failed) return have.of(several) + std::string(" failed") + place_text(state);
    if (state.is_in_call())
        return call_predicate(state, awaited, several) + halt_text(state, several);
    if (state.is_in_message())
        return wait_for.of(several) + message_text(*state.wait) + halt_text(state, several);
    if (state.is_remote) return be_heard.of(several) + place_text(state);
    const std::string since = state.begun == 0 ? " before the first" : " since " + call_text(state);
    return be.of(several) + (" in no call" + since) + halt_text(state, several);
}

std::string wait_text(const RankState &state) {
    const Wait &wait = *state.wait;
    const std::string other = "rank " + std::to_string(wait.on);
    switch (wait.phase) {
    case WaitPhase::meeting: return "waits for " + other + " to begin the call";
    case WaitPhase::eager: return "waits for " + other + " to show its values";
    case WaitPhase::message: return "waits for a chunk of " + other;
    case WaitPhase::mailbox_space: return "waits for " + other + " to take a chunk";
    case WaitPhase::readers: return "waits for others to read a chunk";
    case WaitPhase::network: return "waits for the network to take a chunk";
    case WaitPhase::device: return "waits for its device to compute";
    case WaitPhase::send:
    case WaitPhase::receive: return wait_for.one + message_text(wait);
    case WaitPhase::unknown: break;
    }
    return wait.on == state.rank ? "waits for others to read" : "waits for " + other;
}

std::string of_how_many(const char *what, uint64_t number, uint64_t all) {
    if (number == 0) return {};
    return std::string(", ") + what + " " + std::to_string(number) + " of " + std::to_string(all);
}

} // namespace

std::string collective_text(Collective collective) {
    const auto number = static_cast<size_t>(collective);
    if (number < collective_table.size()) return name(collective);
    return "collective " + std::to_string(static_cast<int32_t>(collective));
}

std::string rank_list(std::span<const uint32_t> ranks) {
    std::string text;
    for (size_t i = 0; i < ranks.size();) {
        size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) last++;
        if (!text.empty()) text += ", ";
        text += std::to_string(ranks[i]);
        if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
        i = last + 1;
    }
    return text;
}

std::string describe(const RankState &state) {
    const bool waits = state.wait && (state.is_in_call() || state.is_in_message());
    if (!waits || state.process == Process::ended) return predicate(state, std::nullopt, false);
    const Wait &wait = *state.wait;
    std::string text = wait_text(state) + of_how_many("step", wait.step, wait.steps) +
                       of_how_many("segment", wait.segment, wait.segments) + ", for " +
                       seconds_text(state.waited_ns);
    if (state.process == Process::stopped) return text + "; is stopped";
    if (state.has_stalled()) return text + "; has not run for " + seconds_text(state.silent_ns);
    return text;
}

std::vector<std::string> summarize(std::span<const RankState> states) {
    struct StateGroup {
        size_t first;
        std::vector<uint32_t> ranks;
    };
    const std::vector<Awaited> awaited = awaited_in_the_end(states);
    std::vector<StateGroup> groups;
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < states.size(); i++) {
        const auto [place, is_new] =
            places.try_emplace(predicate(states[i], awaited[i], false), groups.size());
        if (is_new) groups.push_back({i, {}});
        groups[place->second].ranks.push_back(states[i].rank);
    }
    std::vector<std::string> sentences;
    if (const auto ranks = deadlocked(states); !ranks.empty())
        sentences.push_back("ranks " + rank_list(ranks) + " wait for each other");
    for (const auto &[first, ranks] : groups) {
        const bool several = ranks.size() > 1;
        sentences.push_back((several ? "ranks " : "rank ") + rank_list(ranks) + " " +
                            predicate(states[first], awaited[first], several));
    }
    return sentences;
}

std::string one_sentence(std::span<const std::string> sentences, size_t most) {
    static constexpr std::string_view and_so_on = "; ...";
    std::string text;
    for (size_t i = 0; i < sentences.size(); i++) {
        const std::string more = (i == 0 ? "" : "; ") + sentences[i];
        const size_t reserve = i + 1 == sentences.size() ? 0 : and_so_on.size();
        if (text.size() + more.size() + reserve > most)
            return text.empty() ? "..." : text + std::string(and_so_on);
        text += more;
    }
    return text;
}

Error explained(const Error &error, std::span<const RankState> states) {
    Error whole = error;
    const size_t said = std::strlen(error.text), space = sizeof error.text - said - sizeof ": ";
    std::snprintf(whole.text + said, sizeof whole.text - said, ": %s",
                  one_sentence(summarize(states), space).c_str());
    return whole;
}

// ---- Reading records

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
    if (state.phase <= static_cast<uint64_t>(WaitPhase::receive))
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
    // Other calls may have a hash there, and a record from outside the number of no collective.
    const bool has_root = static_cast<size_t>(call.collective) < collective_table.size() &&
                          row_of(call.collective).has_root;
    char text[256];
    std::snprintf(text, sizeof text,
                  "call %" PRIu64 ": %s, count %" PRIu64
                  ", type %s, op %s, codec %s, algorithm %s, "
                  "root %" PRIu32 ", tag %" PRIu64,
                  call.call, collective_text(call.collective).c_str(), call.count,
                  type ? name(*type) : "?", op ? name(*op) : "?", text_of(call.codec).c_str(),
                  text_of(call.algorithm).c_str(), has_root ? call.root : 0, call.tag);
    if (call.captured == 0) return text;
    return text + (", captured call " + std::to_string(call.captured));
}

} // namespace qccl
