// A JSON document that grows row by row in its file and is valid after each row, so that an
// interrupted run keeps what it has measured. Used by the tools' --json options. One thread at a
// time.
#pragma once

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl::perf {

class JsonFile {
public:
    // Opens for writing, so that an unwritable file is reported before anything is measured. The
    // old content stays until `begin`. "-" is standard output. A target without positions (standard
    // output, a pipe) receives the document in `deliver`. The object and its copies in forked
    // processes share one file; only one of them writes.
    static Result<JsonFile> open(const std::string &path);
    // Like nccl-tests, never overwrites a file: if the name exists, appends ".0", ".1" and so on.
    static Result<JsonFile> create(const std::string &path);

    const std::string &path() const { return path_; }

    // The document consists of `head`, rows separated by commas, and `tail`.
    Done begin(std::string_view head, std::string_view tail);
    Done add(std::string_view row, std::string_view tail);
    // Replaces the tail.
    Done finish(std::string_view tail);
    // Call once when the run is over, whether it has succeeded or not, in a process that opened the
    // file or was forked from it.
    Done deliver() const;

private:
    JsonFile(std::string path, FileDescriptor target, FileDescriptor held)
        : path_(std::move(path)), target_(std::move(target)), held_(std::move(held)) {}

    static Result<JsonFile> around(const std::string &path, FileDescriptor target);
    // Overwrites the tail with `text`.
    Done put(std::string_view text);

    std::string path_;
    FileDescriptor target_;
    FileDescriptor held_; // holds the document if the target has no positions
    uint64_t rows_end_ = 0;
    bool has_rows_ = false;
};

} // namespace qccl::perf
