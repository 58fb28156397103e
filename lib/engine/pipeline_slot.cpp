// The less frequent state changes of a lane: beginning an instance, and work on a device.
#include "engine/pipeline_slot.hpp"

namespace qccl {

void PipelineSlot::begin(const Program &program, uint32_t number, uint64_t instance) {
    program_ = &program;
    number_ = number;
    instance_ = instance;
    base_ = 0;
    done_ = started_ = 0;
    waits_.assign(program.waits.begin(), program.waits.end());
    wires_.assign(program.schedule.wires, {});
}

void PipelineSlot::start(uint32_t task) {
    started_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) {
        const uint32_t next = program_->next[i];
        if (program_->tasks[next].kind == Task::Kind::work) waits_[next]--;
    }
}

void PipelineSlot::finish_started(uint32_t task) {
    done_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) {
        const uint32_t next = program_->next[i];
        if (program_->tasks[next].kind != Task::Kind::work) waits_[next]--;
    }
}

} // namespace qccl
