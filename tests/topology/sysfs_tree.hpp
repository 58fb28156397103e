// A temporary folder with files as Linux has them in /sys, for tests of code that reads sysfs. The
// destructor removes the folder.
#pragma once

#include "tests/kit/qtest.hpp"

#include <filesystem>
#include <fstream>
#include <string>

class SysfsTree {
public:
    SysfsTree() {
        char name[] = "/tmp/qccl_sysfs_XXXXXX";
        CHECK(mkdtemp(name) != nullptr);
        root_ = name;
    }
    ~SysfsTree() { std::filesystem::remove_all(root_); }
    SysfsTree(const SysfsTree &) = delete;
    // Returns the path to put before /sys.
    std::string root() const { return root_; }

    void write(const std::string &file, const std::string &text) const {
        std::ofstream(made(file)) << text << "\n";
    }
    void link(const std::string &file, const std::string &target) const {
        std::filesystem::create_directories(root_ / "sys" / target);
        std::filesystem::create_symlink(root_ / "sys" / target, made(file));
    }
    bool has(const std::string &file) const {
        return std::filesystem::exists(root_ / "sys" / file);
    }

private:
    std::filesystem::path made(const std::string &file) const {
        const std::filesystem::path path = root_ / "sys" / file;
        std::filesystem::create_directories(path.parent_path());
        return path;
    }
    std::filesystem::path root_;
};
