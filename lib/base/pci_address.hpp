// Writes the address of a PCI device as Linux and hwloc do: "0000:1b:00.0". Pure.
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
