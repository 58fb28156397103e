// How a PCI device is named: "0000:1b:00.0", as Linux and hwloc write it. Pure.
#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace qccl {

inline std::string pci_address(unsigned domain, unsigned bus, unsigned device,
                               unsigned function = 0) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", domain, bus, device, function);
    return text.data();
}

} // namespace qccl
