// Rates of links as the vendors' data sheets have them, for sources that learn a link's kind but
// not its rate. Pure data. All rates are bytes a nanosecond (GB/s) each way; 0: unknown.
#pragma once

#include <cstdint>
#include <string_view>

namespace qccl {

// Of `lanes` lanes at `gigatransfers` a second each (GT/s). Line code deducted, packets' headers
// not.
double pcie_rate(double gigatransfers, uint32_t lanes);

// Of one NVLink of a GPU, by its architecture ("sm90").
double nvlink_rate(std::string_view arch);

// Of one Infinity Fabric link between two GPUs, by their architecture ("gfx942").
double xgmi_rate(std::string_view arch);

// From one socket to another, all links together, of processors with that many links. `vendor` is
// CPUID's ("GenuineIntel"); `family` and `model` are CPUID's with the extended bits added.
double cpu_interconnect_rate(std::string_view vendor, uint32_t family, uint32_t model);

} // namespace qccl
