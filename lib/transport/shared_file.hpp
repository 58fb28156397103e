// Describes a file without a name so that other processes recognise it. Used for windows, shared
// memory and record files. Any thread may call.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

// The identity and size of an open file.
struct SharedFile {
    uint64_t device = 0, inode = 0;
    uint64_t bytes = 0;
    int32_t number = -1; // its descriptor in the process that has it open

    bool operator==(const SharedFile &) const = default;
};

// Describes an open file of this process. Returns system_error if `file` cannot be examined.
Result<SharedFile> describe(int file);
// Returns whether the file's descriptor still refers to this file in this process. Programs close
// descriptors that they do not know, and then another file gets the number.
bool is_open(const SharedFile &file);

} // namespace qccl
