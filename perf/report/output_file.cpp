// Implements OutputFile of tool_files.hpp on C streams.

#include "base/system.hpp"
#include "perf/report/tool_files.hpp"

#include <cerrno>

namespace qccl::perf {

Error OutputFile::refusal() const {
    return Error::make(Code::system_error, "cannot write %s: %s", path_.c_str(),
                       describe_errno(errno).c_str());
}

Result<OutputFile> OutputFile::open(const std::string &path) {
    std::FILE *const file = path == "-" ? stdout : std::fopen(path.c_str(), "we");
    OutputFile opened(path == "-" ? "standard output" : path, file);
    if (!file) return opened.refusal();
    return opened;
}

Done OutputFile::write(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) return refusal();
    return {};
}

Done OutputFile::close() {
    if (std::fflush(file_.get()) != 0) return refusal();
    std::FILE *const file = file_.release();
    if (file != stdout && std::fclose(file) != 0) return refusal();
    return {};
}

Done write_file(const std::string &path, const std::string &content) {
    QCCL_TRY(OutputFile file, OutputFile::open(path));
    QCCL_TRY(file.write(content));
    return file.close();
}

} // namespace qccl::perf
