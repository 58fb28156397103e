// Loads modules with dlopen. A module is searched first in the library's own folder, where the
// modules of a build folder lie.
#include "base/module.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <dlfcn.h>

namespace qccl {

// Returns the folder of the shared object that contains this code.
static std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&find_in_module), &info) == 0) return {};
    return std::filesystem::path(info.dli_fname).parent_path();
}

// Whether dlerror reports that `file_name` itself was not found. If a library that the module needs
// is missing, dlerror names that library, and if the module was found but does not load, dlerror
// names its path.
static bool is_about_no_file(std::string_view said, const std::string &file_name) {
    return said.starts_with(file_name + ":") && said.ends_with(std::strerror(ENOENT));
}

static Error not_loaded(const char *file_name) {
    const char *const said = dlerror();
    if (is_about_no_file(said, file_name))
        return Error::make(Code::system_error, "there is no %s", file_name).compared(0, ENOENT);
    return Error::make(Code::system_error, "%s cannot be loaded: %.200s", file_name, said);
}

Result<void *> find_in_module(const char *file_name, const char *symbol) {
    const std::filesystem::path beside = own_folder() / file_name;
    std::error_code ignored;
    const bool is_beside = std::filesystem::exists(beside, ignored);
    void *const library =
        dlopen(is_beside ? beside.c_str() : file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return not_loaded(file_name);
    void *const found = dlsym(library, symbol);
    if (!found)
        return Error::make(Code::system_error, "%s is no module of this library: it has no %s",
                           file_name, symbol);
    return found;
}

Done check_abi(const char *file_name, uint32_t built_for, uint32_t needed) {
    if (built_for == needed) return {};
    return Error::make(Code::system_error, "%s belongs to another version: built for %u, need %u",
                       file_name, built_for, needed)
        .compared(needed, built_for);
}

} // namespace qccl
