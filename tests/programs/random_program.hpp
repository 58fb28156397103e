// Random programs: valid sequences of calls on several communicators, which are made by splits,
// duplicates, shrinks and growth and ended again; calls one by one, on streams and in groups of any
// mix; and messages. A program may break one rule, in one of its last steps. It follows from its
// seed alone, so that each rank and the judge can compute it by themselves. Used by the test
// program random_programs. Pure; any thread.
#pragma once

#include "tests/stress/world_setting.hpp"

#include <string>
#include <vector>

namespace stress {

// The rule that one rank breaks, or that a call breaks on every rank. The last three cost a refusal
// and nothing else.
enum class Rule : uint8_t {
    none,
    count,
    type,
    op,
    root,
    codec,
    algorithm,
    kind,         // another collective
    v_counts,     // of a v-form in which all ranks pass the same counts
    pair_count,   // of a v-form, between two ranks
    message,      // the receiver's count or type
    order,        // two calls in reverse order
    left_out,     // a call that the odd rank does not make
    ungrouped,    // calls of a group that the odd rank makes one by one
    maker,        // a duplicate where the others split, or the reverse
    failing_op,   // the program's own operation returns an error
    stray_send,   // nobody receives it
    stray_recv,   // nobody sends it
    missing_end,  // a group that the odd rank does not end
    extra_end,    // the end of a group that was never begun
    refusal,      // an argument that is refused before the call is repeated
    group_refusal // the same in a group, which is repeated as a whole
};
inline constexpr int rules = 22;
const char *name(Rule rule);
// Whether the program goes on as if the rule had not been broken.
inline bool is_refusal(Rule rule) { return rule >= Rule::extra_end; }

struct ProgramCall {
    int comm = 0;
    Call call{};
    int stream = 0; // in a group: 0: none; ungrouped calls choose theirs by themselves
    int starts = 1; // how often the call is made with the same buffers; not in groups
};

enum class StepKind : uint8_t { calls, split, dup, shrink, grow, finalize, destroy };
const char *name(StepKind kind);
struct Step {
    StepKind kind = StepKind::calls;
    int comm = 0;                // unless the step has calls
    std::vector<int> colors{};   // of a split, by rank of `comm`
    std::vector<int> keys{};     // the same
    std::vector<int> excluded{}; // from a shrink: ranks of `comm`
    std::vector<int> made{};     // new communicators: of a split one for each color
    bool grouped = false, streamed = false;
    std::vector<ProgramCall> calls{};
};

struct ProgramComm {
    std::vector<int> members;      // ranks of the world, in the communicator's order
    std::vector<bool> is_excluded; // by a shrink, at the program's end
    int size() const { return static_cast<int>(members.size()); }
    int rank_of(int member) const; // -1: none
};
inline constexpr size_t max_comms = 8;

struct Program {
    uint64_t seed = 0;
    Setting setting;
    std::vector<ProgramComm> comms; // the first one is the world, which the program does not end
    std::vector<Step> steps;        // communicators of their end are destroyed then
    std::vector<int> left;          // communicators that no step has destroyed

    Rule rule = Rule::none;
    int broken_comm = 0;
    int odd = 0;            // its rank in the world
    size_t broken_step = 0; // the last one
    size_t broken_call = 0; // in the step
    Call odd_call;          // what the odd rank calls instead
    int odd_peer = 0;       // of pair_count: the other rank, in the communicator
    bool odd_receives = false;
};
Program make_program(uint64_t seed, const Setting &setting, Rule rule = Rule::none);
// Draws a rule that programs of the setting can break.
Rule draw_rule(Random &random, const Setting &setting);
std::string text(const Program &program);
// Whether the step has calls of this communicator.
bool has_calls_of(const Step &step, int comm);

} // namespace stress
