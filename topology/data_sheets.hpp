// Rates of links from the vendors' data sheets, for sources that know the kind of a link but not
// its rate. Pure functions. All rates are bytes per nanosecond (GB/s) each way; 0: unknown.
#pragma once

#include <cstdint>
#include <string_view>

namespace qccl {

// Rate of `lanes` PCIe lanes at `gigatransfers` GT/s each. The line code is deducted, the headers
// of packets are not.
double pcie_rate(double gigatransfers, uint32_t lanes);

// Rate of one NVLink of a GPU with this architecture ("sm90").
double nvlink_rate(std::string_view arch);

// Rate of one Infinity Fabric link between two GPUs of this architecture ("gfx942").
double xgmi_rate(std::string_view arch);

// Rate from one socket to another over all links together, for the processor of this model range
// with the most links. `vendor` is CPUID's ("GenuineIntel"); `family` and `model` are CPUID's with
// the extended bits added.
double cpu_interconnect_rate(std::string_view vendor, uint32_t family, uint32_t model);

} // namespace qccl
