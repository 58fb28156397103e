// Draws the programs that random_program.hpp describes, but not the rules that they break
// (broken_rule.cpp).
#include "random_program.hpp"

#include "broken_rule.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <algorithm>
#include <array>

namespace stress {

namespace {

using killable::say;

constexpr size_t max_live = 4;
constexpr int most_grouped = 6;

class ProgramDrawer {
public:
    ProgramDrawer(uint64_t seed, const Setting &setting) : random_(seed) {
        made_.seed = seed;
        made_.setting = setting;
        ProgramComm world;
        for (int rank = 0; rank < setting.ranks; rank++) world.members.push_back(rank);
        world.is_excluded.resize(world.members.size());
        made_.comms.push_back(world);
        live_.push_back(0);
    }

    Program run(Rule rule) {
        const int steps = 1 + random_.below(7);
        for (int i = 0; i < steps; i++) draw_step();
        made_.left.assign(live_.begin() + 1, live_.end());
        if (rule != Rule::none) break_rule(made_, rule, live_, random_);
        return made_;
    }

private:
    void draw_step() {
        const int which = random_.below(16);
        if (which == 0) return add({.kind = StepKind::finalize, .comm = random_.one_of(live_)});
        if (which == 1) return draw_destroy();
        if (which <= 4 && made_.comms.size() < max_comms && live_.size() < max_live)
            return draw_maker();
        draw_calls();
    }
    void add(Step step) { made_.steps.push_back(std::move(step)); }

    void draw_destroy() {
        if (live_.size() == 1) return draw_calls();
        const size_t which =
            1 + static_cast<size_t>(random_.below(static_cast<int>(live_.size()) - 1));
        add({.kind = StepKind::destroy, .comm = live_[which]});
        live_.erase(live_.begin() + static_cast<ptrdiff_t>(which));
    }

    int add_comm(const std::vector<int> &members) {
        const auto comm = static_cast<int>(made_.comms.size());
        made_.comms.push_back({members, std::vector<bool>(members.size())});
        live_.push_back(comm);
        return comm;
    }
    void draw_maker() {
        Step step;
        step.comm = random_.one_of(live_);
        const int which = random_.below(8);
        if (which < 4) return draw_split(step);
        if (which < 5) return draw_shrink(step);
        if (which == 5 && draw_growth(step)) return;
        step.kind = StepKind::dup;
        step.made.push_back(add_comm(made_.comms[static_cast<size_t>(step.comm)].members));
        add(std::move(step));
    }
    // Splits into one color or two; some ranks may have none.
    void draw_split(Step &step) {
        const std::vector<int> members = made_.comms[static_cast<size_t>(step.comm)].members;
        step.kind = StepKind::split;
        const bool has_room = made_.comms.size() + 2 <= max_comms;
        const int colors = has_room ? 1 + random_.below(2) : 1;
        const bool leaves_out = random_.below(4) == 0;
        for (size_t i = 0; i < members.size(); i++) {
            const bool is_out = leaves_out && random_.below(3) == 0;
            step.colors.push_back(is_out ? -1 : random_.below(colors));
            step.keys.push_back(random_.below(3));
        }
        for (int color = 0; color < colors; color++) {
            std::vector<size_t> order;
            for (size_t i = 0; i < members.size(); i++)
                if (step.colors[i] == color) order.push_back(i);
            std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
                return step.keys[one] < step.keys[other];
            });
            std::vector<int> made;
            for (const size_t i : order) made.push_back(members[i]);
            step.made.push_back(made.empty() ? -1 : add_comm(made));
        }
        add(std::move(step));
    }
    // What a shrink has excluded, later shrinks of the communicator leave out, too. The world
    // serves the next program, so it excludes nobody.
    void draw_shrink(Step &step) {
        ProgramComm &comm = made_.comms[static_cast<size_t>(step.comm)];
        step.kind = StepKind::shrink;
        std::vector<int> members;
        const bool excludes = step.comm > 0 && random_.below(2) == 0;
        for (int rank = 0; rank < comm.size(); rank++) {
            if (comm.is_excluded[static_cast<size_t>(rank)]) continue;
            const bool is_last = members.empty() && rank == comm.size() - 1;
            if (excludes && !is_last && random_.below(4) == 0)
                step.excluded.push_back(rank);
            else
                members.push_back(comm.members[static_cast<size_t>(rank)]);
        }
        for (const int rank : step.excluded) comm.is_excluded[static_cast<size_t>(rank)] = true;
        if (members.empty()) {
            step.kind = StepKind::finalize;
            step.excluded.clear();
        } else {
            step.made.push_back(add_comm(members));
        }
        add(std::move(step));
    }
    // Ranks of the world that the communicator lacks join. Threads share the environment that says
    // on which host a rank is, so they cannot join with hosts.
    bool draw_growth(Step &step) {
        const Setting &setting = made_.setting;
        std::vector<int> members = made_.comms[static_cast<size_t>(step.comm)].members;
        const size_t old = members.size();
        if (setting.hosts > 1 && setting.runner != Runner::processes) return false;
        for (int rank = 0; rank < setting.ranks; rank++)
            if (std::find(members.begin(), members.end(), rank) == members.end() &&
                (members.size() == old || random_.below(2) == 0))
                members.push_back(rank);
        if (members.size() == old) return false;
        step.kind = StepKind::grow;
        step.made.push_back(add_comm(members));
        add(std::move(step));
        return true;
    }

    void draw_calls() {
        Step step;
        step.grouped = random_.below(3) == 0;
        step.streamed = random_.below(4) == 0;
        const int calls = 1 + random_.below(step.grouped ? most_grouped : 3);
        for (int i = 0; i < calls; i++) {
            const bool repeats = step.grouped && i > 0 && random_.below(3) == 0;
            ProgramCall call = repeats ? step.calls.back() : draw_program_call(step.grouped);
            call.call.salt = static_cast<uint32_t>(random_.bits());
            call.stream = step.streamed ? random_.below(3) : 0;
            call.starts = !step.grouped && random_.below(8) == 0 ? 2 + random_.below(2) : 1;
            step.calls.push_back(call);
        }
        add(std::move(step));
    }
    ProgramCall draw_program_call(bool grouped) {
        ProgramCall call;
        call.comm = random_.one_of(live_);
        const int ranks = made_.comms[static_cast<size_t>(call.comm)].size();
        CallDrawer drawer(random_, ranks);
        if (ranks > 1 && random_.below(grouped ? 2 : 5) == 0) {
            call.call = drawer.draw(Kind::message);
            call.call.root = random_.below(ranks);
            call.call.dest = (call.call.root + 1 + random_.below(ranks - 1)) % ranks;
            call.call.algorithm = nullptr;
            return call;
        }
        const int which = random_.below(collectives + 1);
        call.call = drawer.draw(which == collectives ? Kind::messages : static_cast<Kind>(which));
        return call;
    }

    Random random_;
    std::vector<int> live_; // communicators
    Program made_;
};

std::string text(const ProgramCall &call) {
    std::string said = say("comm %d: ", call.comm) + text(call.call);
    if (call.stream > 0) said += say(" on stream %d", call.stream);
    if (call.starts > 1) said += say(", %d times", call.starts);
    return said;
}

std::string numbers(const std::vector<int> &values) {
    std::string said;
    for (const int value : values) said += say(" %d", value);
    return said;
}

std::string text(const Step &step) {
    if (step.kind != StepKind::calls) {
        std::string said = say("comm %d: %s", step.comm, name(step.kind));
        if (!step.colors.empty())
            said += " colors" + numbers(step.colors) + " keys" + numbers(step.keys);
        if (!step.excluded.empty()) said += " without" + numbers(step.excluded);
        if (!step.made.empty()) said += " ->" + numbers(step.made);
        return said;
    }
    std::string said = step.grouped ? "group" : "calls";
    if (step.streamed) said += " on streams";
    for (const ProgramCall &call : step.calls) said += "; " + text(call);
    return said;
}

} // namespace

const char *name(StepKind kind) {
    static constexpr const char *names[] = {"calls", "split",    "dup",    "shrink",
                                            "grow",  "finalize", "destroy"};
    return names[static_cast<size_t>(kind)];
}

int ProgramComm::rank_of(int member) const {
    const auto at = std::find(members.begin(), members.end(), member);
    return at == members.end() ? -1 : static_cast<int>(at - members.begin());
}

bool has_calls_of(const Step &step, int comm) {
    return std::any_of(step.calls.begin(), step.calls.end(),
                       [&](const ProgramCall &call) { return call.comm == comm; });
}

Program make_program(uint64_t seed, const Setting &setting, Rule rule) {
    return ProgramDrawer(seed, setting).run(rule);
}

std::string text(const Program &program) {
    std::string said = say("%d %s on %d host(s)", program.setting.ranks,
                           name(program.setting.runner), program.setting.hosts);
    if (program.rule != Rule::none)
        said += say(", rule %s broken by rank %d on comm %d, call %zu of the last step",
                    name(program.rule), program.odd, program.broken_comm, program.broken_call) +
                " (" + text(program.odd_call) + ")";
    for (size_t comm = 1; comm < program.comms.size(); comm++)
        said += say("\n  comm %zu:", comm) + numbers(program.comms[comm].members);
    for (size_t i = 0; i < program.steps.size(); i++)
        said += say("\n  step %zu: ", i) + text(program.steps[i]);
    return said;
}

} // namespace stress
