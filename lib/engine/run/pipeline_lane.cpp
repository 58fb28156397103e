// Compares a chunk's header with what the schedule expects, and names the sender in the error. The
// state changes of a lane here are the less frequent ones: beginning an instance, and work on a
// device.
#include "engine/run/pipeline_lane.hpp"

#include "device/packed_chunk.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl {

// ---- Received chunks

static Result<OpenChunk> open(std::span<const std::byte> bytes, const ExpectedChunk &expected,
                              const ZeroCopyPayload &zero_copy) {
    if (!zero_copy.bytes.data())
        return open_chunk(bytes, *expected.codec, expected.type, expected.count);
    const uint64_t payload = payload_layout(*expected.codec, expected.type, expected.count).bytes;
    const uint64_t bounded = std::min<uint64_t>(zero_copy.bytes.size(), payload);
    if (zero_copy.is_out_of_sight)
        return open_header(bytes, bounded, *expected.codec, expected.type, expected.count);
    return open_chunk(bytes, zero_copy.bytes.first(bounded), *expected.codec, expected.type,
                      expected.count);
}

static Done check(std::span<const std::byte> bytes, const ExpectedChunk &expected,
                  const Result<OpenChunk> &opened) {
    if (!opened) return opened.error();
    const uint64_t index = opened->chunk.first_index;
    if (index != expected.index)
        return Error::make(Code::damaged_data,
                           "chunk: starts at value %" PRIu64 " instead of %" PRIu64, index,
                           expected.index)
            .compared(static_cast<int64_t>(expected.index), static_cast<int64_t>(index));
    if (!expected.has_checksum) return {};
    return verify_checksum(bytes);
}

static Done from_sender(const Done &checked, const ExpectedChunk &expected) {
    if (checked) return {};
    const Error &error = checked.error();
    return Error::make(error.code, "from rank %" PRIu32 ": %.200s", expected.from, error.text)
        .at_rank(expected.from)
        .compared(error.expected, error.got);
}

Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected,
             const ZeroCopyPayload &zero_copy) {
    return from_sender(check(bytes, expected, open(bytes, expected, zero_copy)), expected);
}

Done inspect_packed(const Kernels &kernels, std::span<const std::byte> bytes,
                    const ExpectedChunk &expected, std::byte *chunk, PackScratch &scratch) {
    const size_t room = encoded_bytes(*expected.codec, expected.type, expected.count);
    const auto opened = [&]() -> Result<OpenChunk> {
        QCCL_TRY(unpack_chunk(kernels, *expected.codec, expected.type, expected.count, bytes, chunk,
                              scratch));
        return open_chunk({chunk, room}, *expected.codec, expected.type, expected.count);
    };
    return from_sender(check(bytes, expected, opened()), expected);
}

// ---- Lanes

void PipelineLane::begin(const Program &program, uint32_t number, uint64_t instance) {
    program_ = &program;
    number_ = number;
    instance_ = instance;
    base_ = 0;
    done_ = started_ = 0;
    waits_.assign(program.waits.begin(), program.waits.end());
    wires_.assign(program.schedule.wires, {});
}

void PipelineLane::start(uint32_t task) {
    started_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) {
        const uint32_t next = program_->next[i];
        if (program_->tasks[next].kind == Task::Kind::work) waits_[next]--;
    }
}

void PipelineLane::finish_started(uint32_t task) {
    done_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) {
        const uint32_t next = program_->next[i];
        if (program_->tasks[next].kind != Task::Kind::work) waits_[next]--;
    }
}

} // namespace qccl
