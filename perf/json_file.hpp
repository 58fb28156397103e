// A JSON document that grows row by row in its file and is whole after each of them, so that an
// interrupted run, however it ends, leaves what it has measured. Knows nothing of the rows.
#pragma once

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl::perf {

class JsonFile {
public:
    // Opens for writing, so that what cannot be written is known before anything is measured;
    // what the file holds stays until `begin`. "-" is standard output. What has no position to go
    // back to (standard output, a pipe) receives the document in `deliver`. An object and what
    // forked processes have of it are one file; one of them writes.
    static Result<JsonFile> open(const std::string &path);
    // As nccl-tests does: never over a file that is there; ".0", ".1", ... are tried after the
    // name.
    static Result<JsonFile> create(const std::string &path);

    const std::string &path() const { return path_; }

    // The document is `head`, rows separated by commas, `tail`.
    Done begin(std::string_view head, std::string_view tail);
    Done add(std::string_view row, std::string_view tail);
    // Replaces the tail.
    Done finish(std::string_view tail);
    // When the run is over, however it ended; once, by a process that opened the file or forked
    // from it.
    Done deliver() const;

private:
    JsonFile(std::string path, FileDescriptor target, FileDescriptor held)
        : path_(std::move(path)), target_(std::move(target)), held_(std::move(held)) {}

    static Result<JsonFile> around(const std::string &path, FileDescriptor target);
    // Writes `text` over the tail.
    Done put(std::string_view text);

    std::string path_;
    FileDescriptor target_;
    FileDescriptor held_; // the document, where the target has no positions
    uint64_t rows_end_ = 0;
    bool has_rows_ = false;
};

} // namespace qccl::perf
