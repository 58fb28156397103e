// Files and texts that the tools read and write. Formats numbers for tables and sentences; checks
// that printed output has been written, because a full disk must not count as success; reads a text
// that the user supplies into memory; writes text files piece by piece, with errors that name the
// file; and writes JSON documents that grow row by row and are valid after each row, so that an
// interrupted run keeps what it has measured. Used by all tools. One thread at a time uses a file;
// read_text blocks until its file has ended.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace qccl::perf {

// ---- Numbers as text

// Formats into `width` columns like nccl-tests: the larger the value, the fewer of at most two
// decimals, then an exponent.
std::string fitted(double value, int width);
// Returns a text such as "1.50 MB"; units are powers of 1024.
std::string memory_text(double bytes);
// Returns a text such as "12.3 ms", with three digits.
std::string time_text(double ns);

// ---- Standard output

// Fails with the reason if anything printed is lost. The caller must report the error, because the
// stream's error state is cleared.
Done flush(std::FILE *out);

// The last call of a process on standard output. Returns `status`. If output is lost, prints that
// on standard error in the name of `program` and returns a failure status.
int end_output(const char *program, int status);

// ---- Reading a text

// Returns the content of the file; "-" is standard input. Fails with system_error if the file
// cannot be read, and with invalid_argument if it holds more than `most` bytes. `called` is the
// file's name in the error.
Result<std::string> read_text(const std::string &path, const std::string &called,
                              uint64_t most = uint64_t{1} << 30);

// ---- Writing a text

class OutputFile {
public:
    static Result<OutputFile> open(const std::string &path);

    Done write(const std::string &text);
    // Call after the last piece. Fails if anything written has not reached the file.
    Done close();

private:
    struct Closer {
        void operator()(std::FILE *file) const {
            if (file != stdout) (void)std::fclose(file);
        }
    };
    OutputFile(std::string path, std::FILE *file) : path_(std::move(path)), file_(file) {}
    Error refusal() const;

    std::string path_;
    std::unique_ptr<std::FILE, Closer> file_;
};

// Writes a whole file and replaces the old content.
Done write_file(const std::string &path, const std::string &content);

// ---- JSON documents

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
