// Modules are looked for beside the library first: in a build folder that is where they lie.
#include "transport/network.hpp"

#include <array>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>

namespace qccl {

// The folder of the file that this code was loaded from.
static std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&load_network_module), &info) == 0) return {};
    return std::filesystem::path(info.dli_fname).parent_path();
}

Result<const NetworkModule *> load_network_module(const char *file_name) {
    const std::filesystem::path beside = own_folder() / file_name;
    std::error_code ignored;
    const bool is_beside = std::filesystem::exists(beside, ignored);
    void *const library =
        dlopen(is_beside ? beside.c_str() : file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return Error::make(Code::system_error, "%s cannot be loaded: %.200s", file_name, dlerror());
    const auto function =
        reinterpret_cast<NetworkModuleFunction *>(dlsym(library, network_module_symbol));
    const NetworkModule *const module = function ? function() : nullptr;
    const uint32_t abi = module ? module->abi : 0;
    if (abi != NetworkModule::current_abi)
        return Error::make(Code::system_error,
                           "%s belongs to another version: built for %u, need %u", file_name, abi,
                           NetworkModule::current_abi)
            .compared(NetworkModule::current_abi, abi);
    return module;
}

Result<Network> Network::open(const NetworkModule &module, const NetworkSettings &settings,
                              const NetworkEvents &events) {
    std::array<char, 200> error{};
    NetworkEnd *const end = module.open(&settings, &events, error.data(), error.size());
    if (!end) return Error::make(Code::system_error, "%s: %.180s", module.name, error.data());
    return Network(module, end);
}

std::vector<std::byte> Network::address() const {
    std::vector<std::byte> bytes(module_->address(end_, nullptr, 0));
    module_->address(end_, bytes.data(), bytes.size());
    return bytes;
}

} // namespace qccl
