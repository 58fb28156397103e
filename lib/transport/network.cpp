#include "transport/network.hpp"

#include "base/module.hpp"

#include <array>

namespace qccl {

Result<const NetworkModule *> load_network_module(const char *file_name) {
    QCCL_TRY(void *const found, find_in_module(file_name, network_module_symbol));
    const NetworkModule *const module = reinterpret_cast<NetworkModuleFunction *>(found)();
    QCCL_TRY(check_abi(file_name, module->abi, NetworkModule::current_abi));
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
