// A temporary folder with files as Linux has them in /sys, for tests of code that reads sysfs.
#pragma once

#include "tests/kit/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <string>

class SysfsTree {
public:
    // Returns the path to put before /sys.
    const std::string &root() const { return root_.path(); }

    void write(const std::string &file, const std::string &text) const {
        std::ofstream(made(file)) << text << "\n";
    }
    void link(const std::string &file, const std::string &target) const {
        std::filesystem::create_directories(in_sys(target));
        std::filesystem::create_symlink(in_sys(target), made(file));
    }
    bool has(const std::string &file) const { return std::filesystem::exists(in_sys(file)); }

private:
    std::filesystem::path made(const std::string &file) const {
        const std::filesystem::path path = in_sys(file);
        std::filesystem::create_directories(path.parent_path());
        return path;
    }
    std::filesystem::path in_sys(const std::string &file) const { return root_ / ("sys/" + file); }

    const qtest::TemporaryFolder root_;
};
