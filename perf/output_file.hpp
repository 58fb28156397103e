// A text file that is written piece by piece; whatever goes wrong is said with the file's name.
// "-" is standard output.
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
    // After the last piece: what was written has arrived, or why not.
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

// A whole file, whatever was there before.
Done write_file(const std::string &path, const std::string &content);

} // namespace qccl::perf
