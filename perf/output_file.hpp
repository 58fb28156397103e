// A text file that is written piece by piece. Errors name the file. "-" is standard output. Used by
// the commands of qccl-info and qccl-perf. One thread at a time.
#pragma once

#include "base/result.hpp"

#include <cstdio>
#include <memory>
#include <string>

namespace qccl::perf {

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

} // namespace qccl::perf
