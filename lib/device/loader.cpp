// Loads libqccl_VENDOR.so, the module that drives a vendor's GPUs, and says what is missing if the
// module or the GPU cannot be had.
#include "device/device.hpp"

#include "base/module.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace qccl {
namespace {

struct Vendor {
    std::string_view name, first; // `first`: the name of the vendor's first GPU
    const char *built_with;       // what a build of the module needs
};
constexpr Vendor vendors[] = {
    {"cuda", "cuda:0", "nvcc"},
    {"hip", "hip:0", "ROCm, or HIP's headers (libamdhip64-dev) and clang 22"},
    {"emulated", "emulated:0", "Boost.Context (libboost-context-dev)"}};

struct DeviceSpec {
    std::string_view vendor; // empty: the host
    uint32_t number = 0;
};

// Returns nothing if the text does not have the form of a device's name.
std::optional<DeviceSpec> parse(std::string_view spec) {
    if (spec == "host") return DeviceSpec{};
    const size_t colon = spec.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    DeviceSpec parsed{.vendor = spec.substr(0, colon)};
    if (std::ranges::find(vendors, parsed.vendor, &Vendor::name) == std::end(vendors))
        return std::nullopt;
    const auto number = parse_number<decltype(parsed.number)>(spec.substr(colon + 1));
    if (!number) return std::nullopt;
    parsed.number = *number;
    return parsed;
}

// A device that this build or this machine lacks is the caller's mistake (invalid_argument): the
// caller can name another device, and the system has refused nothing.
Error not_loaded(const std::string &vendor, const Error &why) {
    if (why.got != ENOENT) return invalid_argument("%.300s", why.text);
    return invalid_argument("%.300s; build it with -D%s=enabled (needs %s)", why.text,
                            vendor.c_str(),
                            std::ranges::find(vendors, vendor, &Vendor::name)->built_with);
}

Result<const GpuModule *> load(const std::string &vendor) {
    const std::string file = "libqccl_" + vendor + ".so";
    const auto found = find_in_module(file.c_str(), gpu_module_symbol);
    if (!found) return not_loaded(vendor, found.error());
    const GpuModule *const module = reinterpret_cast<GpuModuleFunction *>(*found)();
    QCCL_TRY(check_abi(file.c_str(), module->abi, GpuModule::current_abi));
    return module;
}

Result<uint32_t> count_of(const GpuModule &module) {
    std::array<char, 200> why{};
    const uint32_t count = module.count(why.data(), why.size());
    if (count != 0) return count;
    return invalid_argument("%s: there is no GPU: %.180s", module.vendor, why.data());
}

Error no_such_gpu(std::string_view spec, const char *vendor, uint32_t count) {
    const std::string name(spec);
    if (count == 1)
        return invalid_argument("%s: this machine has 1 GPU of the kind, %s:0", name.c_str(),
                                vendor);
    return invalid_argument("%s: this machine has %u GPUs of the kind, %s:0 to %s:%u", name.c_str(),
                            count, vendor, vendor, count - 1);
}

} // namespace

std::vector<std::string> gpu_vendors() {
    std::vector<std::string> names;
    for (const Vendor &vendor : vendors) names.emplace_back(vendor.name);
    return names;
}

Done check_device(const std::string &who, std::string_view spec) {
    if (parse(spec)) return {};
    Names possible{"host"};
    for (const Vendor &vendor : vendors) possible.push_back(vendor.first);
    return no_choice(who, spec, possible);
}

Result<uint32_t> count_gpus(const std::string &vendor) {
    QCCL_TRY(const GpuModule *const module, load(vendor));
    return count_of(*module);
}

Result<std::shared_ptr<Gpu>> open_gpu(std::string_view spec) {
    const auto parsed = parse(spec);
    if (!parsed) return invalid_argument("\"%.100s\" names no device", std::string(spec).c_str());
    if (parsed->vendor.empty()) return std::shared_ptr<Gpu>();
    QCCL_TRY(const GpuModule *const module, load(std::string(parsed->vendor)));
    QCCL_TRY(const uint32_t count, count_of(*module));
    if (parsed->number >= count)
        return no_such_gpu(spec, module->vendor, count).compared(count, parsed->number);
    Error error;
    Gpu *const gpu = module->open(parsed->number, &error);
    if (!gpu) return error;
    return std::shared_ptr<Gpu>(gpu);
}

} // namespace qccl
