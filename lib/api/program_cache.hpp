// The programs of one communicator, compiled once for each shape of call. Not thread-safe: Comm
// uses it inside the communicator's entry guard.
#pragma once

#include "coll/algorithm.hpp"
#include "engine/program.hpp"
#include "plan/planner.hpp"
#include "plan/rules.hpp"

#include <memory>
#include <unordered_map>

namespace qccl {

// Everything that decides which program runs.
struct ProgramKey {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;
    Codec codec;
    Algorithm algorithm; // named by call, communicator or environment; empty: planned
    Pieces pieces;

    bool operator==(const ProgramKey &) const = default;
};

using ProgramRef = std::shared_ptr<const Program>; // an enqueued call holds its own

class ProgramCache {
public:
    // `cut` offers the transport's eager slots; programs use them where they can.
    ProgramCache(Team team, const Chunking &cut, const PlannerInputs &inputs)
        : team_(team), cut_(cut), inputs_(inputs) {}

    // Returns the program for the key, compiled if needed. An error says why the call cannot run;
    // errors are not kept.
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
    Result<Program> compile_plan(const ProgramKey &key, const Plan &plan, Chunking cut) const;
    // Also compiles the lossless program, which runs instead when the values lose too much.
    Result<Program> compile_guarded(const ProgramKey &key, const Plan &plan) const;
    void forget_oldest();

    const Team team_;
    const Chunking cut_;
    const PlannerInputs inputs_;
    std::unordered_map<ProgramKey, Held, Hash> held_;
    uint64_t uses_ = 0;
};

} // namespace qccl
