// The tables of the data sheets.
#include "topology/data_sheets.hpp"

#include <charconv>

namespace qccl {

// PCI Express Base Specification: 8b/10b code up to 5 GT/s, 128b/130b up to 32 GT/s, beyond that
// flits of 256 bytes with 236 bytes of payload.
double pcie_rate(double gigatransfers, uint32_t lanes) {
    const double code = gigatransfers <= 5    ? 8.0 / 10
                        : gigatransfers <= 32 ? 128.0 / 130
                                              : 236.0 / 256;
    return gigatransfers * code * lanes / 8;
}

// NVIDIA's data sheets give the sum of both ways of all links: P100 160 GB/s with 4 links, V100 300
// with 6, A40 112.5 with 4 (sm86), A100 600 with 12, H100 900 with 18, B200 1800 with 18.
double nvlink_rate(std::string_view arch) {
    uint32_t number = 0;
    if (!arch.starts_with("sm")) return 0;
    const char *const end = arch.data() + arch.size();
    const auto [stop, problem] = std::from_chars(arch.data() + 2, end, number);
    if (problem != std::errc() || stop != end || number < 60) return 0;
    if (number == 86) return 14.0625;
    return number < 70 ? 20 : number < 100 ? 25 : 50;
}

// A link has 16 lanes. AMD's data sheets give the sum of both ways: Instinct MI50 184 GB/s with 2
// links, MI100 276 with 3, MI250X 800 with 8 (25 GT/s), MI300X 896 with 7 (32 GT/s), MI355X 1075
// with 7 (38.4 GT/s).
double xgmi_rate(std::string_view arch) {
    struct Row {
        std::string_view arch;
        double rate;
    };
    static constexpr Row rows[] = {{"gfx906", 46}, {"gfx908", 46}, {"gfx90a", 50},  {"gfx940", 64},
                                   {"gfx941", 64}, {"gfx942", 64}, {"gfx950", 76.8}};
    for (const Row &row : rows)
        if (row.arch == arch) return row.rate;
    return 0;
}

// Number and speed of links from ark.intel.com and AMD's EPYC product briefs, for the model with
// the most links. Each transfer moves 16 bits.
double cpu_interconnect_rate(std::string_view vendor, uint32_t family, uint32_t model) {
    struct Row {
        std::string_view vendor;
        uint32_t family, first_model, last_model;
        double links, gigatransfers;
    };
    static constexpr double bytes_each = 2;
    static constexpr Row rows[] = {
        {"GenuineIntel", 6, 0x3f, 0x3f, 2, 9.6},   // Haswell: QPI
        {"GenuineIntel", 6, 0x4f, 0x4f, 2, 9.6},   // Broadwell: QPI
        {"GenuineIntel", 6, 0x55, 0x55, 3, 10.4},  // Skylake, Cascade Lake: UPI
        {"GenuineIntel", 6, 0x6a, 0x6a, 3, 11.2},  // Ice Lake
        {"GenuineIntel", 6, 0x8f, 0x8f, 4, 16},    // Sapphire Rapids: UPI 2.0
        {"GenuineIntel", 6, 0xcf, 0xcf, 4, 20},    // Emerald Rapids
        {"GenuineIntel", 6, 0xad, 0xad, 6, 24},    // Granite Rapids
        {"AuthenticAMD", 0x17, 0x30, 0x3f, 4, 16}, // Rome: Infinity Fabric
        {"AuthenticAMD", 0x19, 0x00, 0x0f, 4, 18}, // Milan
        {"AuthenticAMD", 0x19, 0x10, 0x1f, 4, 32}, // Genoa
        {"AuthenticAMD", 0x1a, 0x00, 0x1f, 4, 32}, // Turin
    };
    for (const Row &row : rows)
        if (row.vendor == vendor && row.family == family && row.first_model <= model &&
            model <= row.last_model)
            return row.links * row.gigatransfers * bytes_each;
    return 0;
}

} // namespace qccl
