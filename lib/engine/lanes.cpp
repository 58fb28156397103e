#include "engine/lanes.hpp"

namespace qccl {

void Lane::begin(const Program &program, uint32_t number, uint64_t instance) {
    program_ = &program;
    number_ = number;
    instance_ = instance;
    base_ = 0;
    done_ = 0;
    waits_.assign(program.waits.begin(), program.waits.end());
    wires_.assign(program.schedule.wires, {});
}

} // namespace qccl
