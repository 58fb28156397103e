// The programs of one communicator, compiled once for each shape of call. Not thread-safe: used
// under the communicator's gate.
#pragma once

#include "coll/algorithm.hpp"
#include "engine/program.hpp"
#include "plan/planner.hpp"
#include "plan/rules.hpp"

#include <memory>
#include <unordered_map>

namespace qccl {

// All that decides which program runs.
struct ProgramKey {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;
    Codec codec;
    Algorithm algorithm; // named by somebody; none: the planner chooses
    Pieces pieces;

    bool operator==(const ProgramKey &) const = default;
};

using ProgramRef = std::shared_ptr<const Program>; // a call on a stream keeps its own

class Programs {
public:
    // `cut` offers the transport's lines; programs take them where they can.
    Programs(Team team, const Cut &cut, const Tables &tables)
        : team_(team), cut_(cut), tables_(tables) {}

    // An error says why the call cannot run; the key is not remembered.
    Result<ProgramRef> get(const ProgramKey &key);

private:
    struct Hash {
        size_t operator()(const ProgramKey &key) const;
    };
    struct Held {
        ProgramRef program;
        uint64_t last_used = 0;
    };
    Problem problem_of(const ProgramKey &key) const;
    Result<ProgramRef> make(const ProgramKey &key) const;
    Result<Program> compile_plan(const ProgramKey &key, const Plan &plan, Cut cut) const;
    // With what becomes of it when its values lose too much.
    Result<Program> compile_guarded(const ProgramKey &key, const Plan &plan) const;
    void forget_oldest();

    const Team team_;
    const Cut cut_;
    const Tables tables_;
    std::unordered_map<ProgramKey, Held, Hash> held_;
    uint64_t uses_ = 0;
};

} // namespace qccl
