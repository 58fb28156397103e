// A temporary folder for the files of a test, removed with its contents.
#pragma once

#include "tests/kit/qtest.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace qtest {

class TemporaryFolder {
public:
    TemporaryFolder() { CHECK(mkdtemp(path_.data()) != nullptr); }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder &) = delete;

    const std::string &path() const { return path_; }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

private:
    std::string path_ = std::filesystem::temp_directory_path() / "qccl-test-XXXXXX";
};

} // namespace qtest
