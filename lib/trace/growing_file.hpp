// A file that grows while others may read it and is complete at every moment: its ending is written
// with each piece and overwritten by the next piece. Used by the trace's thread; blocks as the disk
// does.
#pragma once

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

class GrowingFile {
public:
    // Creates a new file and never overwrites an existing one: if `path` exists, the file gets the
    // lowest free number from 2 on before its extension. `ending` always stands behind everything
    // that is appended. Returns system_error with the reason if the file cannot be created or
    // written.
    static Result<GrowingFile> create(const std::string &path, std::string ending);

    // Appends a piece. After an error the file ends with what was appended before.
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
