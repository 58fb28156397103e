// Words what ranks do and which rank each of them waits for in the end.
#include "record/rank_state.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_map>

namespace qccl {

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
// which each waits for the next. Empty if the chain ends at a rank that waits for its readers, if
// the chain is a cycle, or if the state waits for nothing. Every state is visited once, however
// long the chains are.
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
            if (at < states.size() && states[at].is_waiting()) continue;
            end = on;
            break;
        }
        for (const size_t passed : chain) ends[passed] = end;
    }
    return ends;
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
    case WaitPhase::room: return "waits for " + other + " to take a chunk";
    case WaitPhase::readers: return "waits for others to read a chunk";
    case WaitPhase::network: return "waits for the network to take a chunk";
    case WaitPhase::device: return "waits for its device to compute";
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
    if (number < call_names.size()) return call_names[number];
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
    if (!state.wait || !state.is_in_call() || state.process == Process::ended)
        return predicate(state, std::nullopt, false);
    const Wait &wait = *state.wait;
    std::string text = wait_text(state) + of_how_many("step", wait.step, wait.steps) +
                       of_how_many("segment", wait.segment, wait.segments) + ", for " +
                       seconds_text(state.waited_ns);
    if (state.process == Process::stopped) return text + "; is stopped";
    if (state.has_stalled()) return text + "; has not run for " + seconds_text(state.silent_ns);
    return text;
}

std::vector<std::string> summarize(std::span<const RankState> states) {
    struct Group {
        size_t first;
        std::vector<uint32_t> ranks;
    };
    const std::vector<Awaited> awaited = awaited_in_the_end(states);
    std::vector<Group> groups;
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < states.size(); i++) {
        const auto [place, is_new] =
            places.try_emplace(predicate(states[i], awaited[i], false), groups.size());
        if (is_new) groups.push_back({i, {}});
        groups[place->second].ranks.push_back(states[i].rank);
    }
    std::vector<std::string> sentences;
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

} // namespace qccl
