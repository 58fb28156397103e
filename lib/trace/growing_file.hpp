// A file that grows while others may read it, and is whole at every moment: what ends it is written
// with each piece and overwritten by the next. Used by the trace's thread; blocks as the disk does.
#pragma once

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

class GrowingFile {
public:
    // A new file; nothing that is there already is written over: where `path` is taken, the file is
    // named with the lowest free number from 2 on before its extension. `ending` stands behind all
    // that is appended. system_error: it cannot be created or written, and why.
    static Result<GrowingFile> create(const std::string &path, std::string ending);

    // After an error the file ends with what was appended before.
    Done append(std::string_view text);
    const std::string &path() const { return path_; }
    uint64_t bytes() const { return bytes_; }

private:
    Done write_at(uint64_t offset, std::string_view text) const;

    FileDescriptor file_;
    std::string path_, ending_, piece_;
    uint64_t bytes_ = 0; // before the ending
};

} // namespace qccl
