// Prints each rank's tasks, with a label for each task of each instance.
#include "plan/goal.hpp"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace qccl {

namespace {

class GoalRank {
public:
    GoalRank(const RankProgram &program, const CallGeometry &geometry)
        : program_(program), geometry_(geometry) {
        for (uint32_t task = 0; task < program.tasks.size(); task++)
            if (program.graph.after(task).empty()) last_.push_back(task);
    }

    std::string print(uint32_t rank) {
        append("rank %u {\n", rank);
        for (uint64_t instance = 0; instance < geometry_.instances(); instance++) add(instance);
        text_ += "}\n\n";
        return std::move(text_);
    }

private:
    template <class... Arguments> void append(const char *format, Arguments... arguments) {
        char line[128];
        std::snprintf(line, sizeof line, format, arguments...);
        text_ += line;
    }

    uint64_t label(uint64_t instance, uint32_t task) const {
        return instance * program_.tasks.size() + task + 1;
    }

    void add(uint64_t instance) {
        for (uint32_t task = 0; task < program_.tasks.size(); task++) add_task(instance, task);
        for (uint32_t task = 0; task < program_.tasks.size(); task++)
            for (const uint32_t next : program_.graph.after(task))
                require(label(instance, next), label(instance, task));
        if (instance < program_.lanes) return;
        for (uint32_t task = 0; task < program_.tasks.size(); task++)
            for (const uint32_t before : last_)
                if (program_.graph.waits[task] == 0)
                    require(label(instance, task), label(instance - program_.lanes, before));
    }

    void require(uint64_t later, uint64_t earlier) {
        append("l%" PRIu64 " requires l%" PRIu64 "\n", later, earlier);
    }

    void add_task(uint64_t instance, uint32_t number) {
        const RankProgram::Task &task = program_.tasks[number];
        const uint64_t at = label(instance, number);
        if (computes(task.verb)) {
            const auto values = static_cast<double>(geometry_.count(task.length, instance));
            return append("l%" PRIu64 ": calc %.0f\n", at, std::round(task.ns_per_value * values));
        }
        const bool sends = task.verb == Verb::send;
        append("l%" PRIu64 ": %s %" PRIu64 "b %s %u tag %" PRIu64 "\n", at, sends ? "send" : "recv",
               geometry_.bytes(task.length, instance, task.is_inner), sends ? "to" : "from",
               task.peer, task.ordinal * geometry_.instances() + instance);
    }

    const RankProgram &program_;
    const CallGeometry &geometry_;
    std::vector<uint32_t> last_; // tasks that no other task waits for
    std::string text_;
};

} // namespace

Done write_goal(const SimulatedCall &call, const std::function<Done(const std::string &)> &write) {
    const Problem &problem = call.problem;
    QCCL_TRY(write("num_ranks " + std::to_string(problem.ranks) + "\n\n"));
    std::vector<uint32_t> own_numbers(problem.ranks);
    std::iota(own_numbers.begin(), own_numbers.end(), 0U);
    for (uint32_t rank = 0; rank < problem.ranks; rank++) {
        QCCL_TRY(const Schedule author,
                 emit(call.algorithm, problem.collective, problem.team(rank)));
        QCCL_TRY(const CallGeometry geometry,
                 CallGeometry::create(call, author.chunks, author.outbox, false));
        QCCL_TRY(const RankProgram program,
                 make_program(author, call, geometry, own_numbers, problem.ranks));
        QCCL_TRY(write(GoalRank(program, geometry).print(rank)));
    }
    return {};
}

} // namespace qccl
