// A file without a name, as its process knows it and others recognise it. Knows not what is in it.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

struct SharedFile {
    uint64_t device = 0, inode = 0;
    uint64_t bytes = 0;
    int32_t number = -1; // in its process

    bool operator==(const SharedFile &) const = default;
};

Result<SharedFile> describe(int file);
// Whether its number still names it in this process; programs close what they do not know, and then
// the number goes to another file.
bool is_open(const SharedFile &file);

} // namespace qccl
