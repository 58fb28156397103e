// The counts and displacements of v-forms, as C passes them, checked and turned into the VFormParts
// that programs are compiled for. collective_call.cpp uses them, on the thread that is inside the
// communicator; nothing here blocks.
#pragma once

#include "api/call/entry.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <cstddef>
#include <memory>

namespace qccl {

// The parts of one of the two buffers, as the caller names them.
struct GivenParts {
    // Of a buffer that has one part, which lies at its start: its count.
    const char *count_name = "count";
    size_t count = 0;
    // Of a buffer with a part for each rank. Without displacements, parts follow one another.
    const char *counts_name = "counts", *displs_name = "displs"; // as the header calls them
    const size_t *counts = nullptr, *displs = nullptr;
};

struct PartArguments {
    GivenParts send, recv;
};

// Checks counts and displacements. The error (invalid_argument) names the argument and the entry:
// of a pointer that is NULL, of a count that memory cannot hold, of counts for this rank's own part
// that differ, and of parts of the receive buffer that overlap.
Result<std::shared_ptr<const VFormParts>> take_parts(Collective v_form, const PartArguments &given,
                                                     DataType type, const Team &team);

// Returns whether take_parts would return these parts again.
bool are_given(const VFormParts &parts, const PartArguments &given, const Team &team);

// Returns the same parts in another unit, of which there are `reals` in an element.
std::shared_ptr<const VFormParts> in_reals(const VFormParts &parts, unsigned reals);

// Returns blocks of all ranks as the parts of the collective's v-form, `stride` elements apart.
VFormParts parts_of_blocks(Collective collective, uint64_t count, uint64_t stride,
                           const Team &team);

// Refuses a part of `send` that overlaps one of `recv`, unless the two are the same memory and of
// the same rank: then the call is in place. The gaps between parts may hold parts of the other
// buffer.
Done check_parts_apart(const VFormParts &parts, const Team &team, const Buffer &send,
                       const Buffer &recv, size_t value_bytes);

} // namespace qccl
