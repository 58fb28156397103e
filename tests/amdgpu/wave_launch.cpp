// Executes launches of translated AMD GPU kernels on the CPU, one wave after another (see
// wave_launch.hpp). Used by the machine-code tests; a launch blocks until it has ended.
#include "wave_launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <memory>

namespace amdgpu {
namespace {

// Steps of one wave in one launch. A wave that needs more waits for an event that never comes.
constexpr size_t most_steps = 50'000'000;

template <class T> void place(std::vector<std::byte> &to, size_t offset, T value, size_t bytes) {
    std::memcpy(to.data() + offset, &value, bytes);
}

u64 value_of(Meaning meaning, const Shape &shape) {
    switch (meaning) {
    case Meaning::block_count_x: return shape.groups.x;
    case Meaning::block_count_y: return shape.groups.y;
    case Meaning::block_count_z: return shape.groups.z;
    case Meaning::group_size_x: return shape.threads.x;
    case Meaning::group_size_y: return shape.threads.y;
    case Meaning::group_size_z: return shape.threads.z;
    case Meaning::grid_dims:
        return shape.groups.z * shape.threads.z > 1   ? 3
               : shape.groups.y * shape.threads.y > 1 ? 2
                                                      : 1;
    case Meaning::dynamic_lds_size: return shape.dynamic_local_bytes;
    default: return 0;
    }
}

// Returns the kernel argument buffer. Sets `error` if an argument does not fit.
std::vector<std::byte> argument_bytes(const Kernel &kernel, const Shape &shape,
                                      const Gpu::Arguments &given, std::string &error) {
    std::vector<std::byte> bytes(kernel.argument_bytes);
    size_t next = 0;
    for (const Argument &argument : kernel.arguments) {
        if (argument.meaning != Meaning::value) {
            place(bytes, argument.offset, value_of(argument.meaning, shape), argument.size);
            continue;
        }
        if (next == given.size() || given[next].size() != argument.size) {
            error = "argument " + std::to_string(next) + " should have " +
                    std::to_string(argument.size) + " bytes";
            return bytes;
        }
        std::memcpy(bytes.data() + argument.offset, given[next].data(), argument.size);
        ++next;
    }
    if (next != given.size()) error = "there are too many arguments";
    return bytes;
}

// The packet with which the runtime starts a kernel on the hardware; kernels read the grid sizes
// from it.
struct DispatchPacket {
    u16 header = 0, dimensions = 3;
    std::array<u16, 3> group_size{};
    u16 reserved = 0;
    std::array<u32, 3> grid_size{};
    std::array<u32, 10> others{};
};
static_assert(sizeof(DispatchPacket) == 64);

DispatchPacket packet_of(const Shape &shape) {
    const auto &[groups, threads, _] = shape;
    DispatchPacket packet;
    packet.group_size = {static_cast<u16>(threads.x), static_cast<u16>(threads.y),
                         static_cast<u16>(threads.z)};
    packet.grid_size = {groups.x * threads.x, groups.y * threads.y, groups.z * threads.z};
    return packet;
}

// State that all waves of a launch share.
struct Launch {
    const CodeObject &code;
    const Kernel &kernel;
    const Shape &shape;
    std::span<const std::byte> arguments;
    Memory &memory;
    u64 base;
    Order order;
    DispatchPacket packet;
    std::string complaint;
};

// The content of registers and memory that nothing has set. The value differs between the two
// orders, so that a kernel that reads such memory gives different results.
u32 leftover(Order order) { return order == Order::forward ? 0xDEADBEEF : 0x7FA5A5A5; }

void give_address(Wave &wave, const Start &start, const void *pointer) {
    const u64 address = reinterpret_cast<std::uintptr_t>(pointer);
    std::memcpy(&wave.s[start.at], &address, sizeof address);
}

void give(Wave &wave, const Launch &launch, const Grid &group, const Start &start) {
    switch (start.given) {
    case Given::dispatch_packet: give_address(wave, start, &launch.packet); break;
    case Given::kernarg_address: give_address(wave, start, launch.arguments.data()); break;
    case Given::preloaded:
        std::memcpy(&wave.s[start.at], launch.arguments.data() + start.offset, 4 * start.registers);
        break;
    case Given::group_x: wave.s[start.at] = group.x; break;
    case Given::group_y: wave.s[start.at] = group.y; break;
    case Given::group_z: wave.s[start.at] = group.z; break;
    case Given::nothing: break;
    }
}

// Sets up wave `index` of the group as the hardware does.
void start_wave(Wave &wave, Launch &launch, const Grid &group, unsigned index) {
    const unsigned lanes = launch.code.lanes;
    for (unsigned r = 0; r < launch.kernel.vector_registers; ++r)
        wave.v[r].fill(leftover(launch.order));
    wave.s.fill(leftover(launch.order));
    for (const Start &start : launch.kernel.starts) give(wave, launch, group, start);
    const Grid &threads = launch.shape.threads;
    u64 exec = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        const unsigned thread = index * lanes + lane;
        if (thread >= threads.volume()) break;
        exec |= u64{1} << lane;
        wave.v[0][lane] = thread % threads.x | thread / threads.x % threads.y << 10 |
                          thread / threads.x / threads.y << 20;
    }
    wave.s[exec_register] = static_cast<u32>(exec);
    wave.s[exec_register + 1] = static_cast<u32>(exec >> 32);
    wave.state = State::running;
    wave.next = launch.kernel.entry;
    wave.steps = launch.code.steps;
    wave.memory = &launch.memory;
    wave.base = launch.base;
    wave.error_direction = launch.order == Order::forward ? 1 : -1;
    wave.complaint = &launch.complaint;
}

void complain(Launch &launch, const std::string &where) {
    launch.complaint = std::string(launch.kernel.name) + " (" + launch.code.target + "), " + where +
                       ": " + launch.complaint;
}

// Runs the wave up to its next barrier or its end.
void run_wave(Wave &wave, Launch &launch) {
    wave.state = State::running;
    const Step *step = nullptr;
    size_t left = most_steps;
    while (wave.state == State::running) {
        if (left-- == 0) wave.fail("does not come to an end");
        step = &wave.steps[wave.next++];
        step->run(wave, *step);
    }
    if (wave.state != State::failed) return;
    std::array<char, 16> address{};
    std::snprintf(address.data(), address.size(), "at 0x%x", step->address);
    complain(launch, std::string(address.data()) + " `" + step->text + "`");
}

class Group {
public:
    // `waves` is a pool that launches share, so that no launch has to allocate its own.
    Group(Launch &launch, std::vector<Wave> &waves)
        : launch_(launch), waves_(enough(waves, launch)),
          local_(launch.kernel.local_bytes + launch.shape.dynamic_local_bytes),
          own_(waves_.size() * most_lanes * launch.kernel.scratch_bytes) {}

    bool run(const Grid &group) {
        const auto old_value = static_cast<std::byte>(leftover(launch_.order));
        std::fill(local_.begin(), local_.end(), old_value);
        std::fill(own_.begin(), own_.end(), old_value);
        for (unsigned i = 0; i < waves_.size(); ++i) {
            start_wave(waves_[i], launch_, group, i);
            const size_t bytes = most_lanes * launch_.kernel.scratch_bytes;
            waves_[i].local = local_;
            waves_[i].own = std::span(own_).subspan(i * bytes, bytes);
        }
        while (!is_over())
            if (!run_to_barrier()) return false;
        return true;
    }

private:
    static std::span<Wave> enough(std::vector<Wave> &waves, const Launch &launch) {
        const size_t count =
            (launch.shape.threads.volume() + launch.code.lanes - 1) / launch.code.lanes;
        if (waves.size() < count) waves.resize(count);
        return std::span(waves).first(count);
    }
    bool is_over() const {
        return std::all_of(waves_.begin(), waves_.end(),
                           [](const Wave &wave) { return wave.state == State::ended; });
    }
    bool run_to_barrier() {
        for (size_t i = 0; i < waves_.size(); ++i) {
            Wave &wave = waves_[launch_.order == Order::forward ? i : waves_.size() - 1 - i];
            if (wave.state == State::ended) continue;
            run_wave(wave, launch_);
            if (wave.state == State::failed) return false;
        }
        return true;
    }

    Launch &launch_;
    std::span<Wave> waves_;
    std::vector<std::byte> local_, own_;
};

// Whether `name` is the symbol of the kernel, or its C++ name without the arguments.
bool is_called(const Kernel &kernel, std::string_view name) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void *)> spelled(
        abi::__cxa_demangle(kernel.name, nullptr, nullptr, &status), std::free);
    const std::string_view text = status == 0 ? spelled.get() : kernel.name;
    return name == kernel.name ||
           (text.starts_with(name) && text.substr(name.size()).starts_with('('));
}

} // namespace

void Wave::jump(u64 address) {
    const u64 offset = address - base;
    const auto found = std::lower_bound(steps.begin(), steps.end(), offset,
                                        [](const Step &step, u64 at) { return step.address < at; });
    if (found == steps.end() || found->address != offset) return fail("jumps to where no code is");
    next = static_cast<size_t>(found - steps.begin());
}

Gpu::Gpu(const CodeObject &code) : code_(code) {
    u64 end = code.steps.empty() ? 0 : code.steps.back().address;
    for (const Segment &segment : code.segments)
        end = std::max(end, segment.address + segment.bytes.size());
    image_.resize(end);
    for (const Segment &segment : code.segments) {
        if (segment.bytes.empty()) continue;
        std::memcpy(image_.data() + segment.address, segment.bytes.data(), segment.bytes.size());
        memory_.lend(image_.data() + segment.address, segment.bytes.size(), Memory::Use::read_only);
    }
}

std::string Gpu::run(const Kernel &kernel, const Shape &shape, std::span<const std::byte> arguments,
                     Order order) {
    Launch launch{code_,     kernel,           shape,
                  arguments, memory_,          reinterpret_cast<std::uintptr_t>(image_.data()),
                  order,     packet_of(shape), {}};
    memory_.lend(&launch.packet, sizeof launch.packet, Memory::Use::read_only);
    Group group(launch, waves_);
    const unsigned count = shape.groups.volume();
    for (unsigned i = 0; i < count; ++i) {
        const unsigned index = order == Order::forward ? i : count - 1 - i;
        const Grid place{index % shape.groups.x, index / shape.groups.x % shape.groups.y,
                         index / shape.groups.x / shape.groups.y};
        if (!group.run(place)) break;
    }
    memory_.forget(&launch.packet);
    return launch.complaint;
}

std::string Gpu::launch_with(const char *name, const Shape &shape, const Arguments &given) {
    if (!code_.refused.empty())
        return std::string("the code has instructions that are not known: ") +
               code_.refused.front();
    const auto kernel = std::find_if(code_.kernels.begin(), code_.kernels.end(),
                                     [name](const Kernel &each) { return is_called(each, name); });
    if (kernel == code_.kernels.end()) return std::string("there is no kernel ") + name;
    std::string error;
    const std::vector<std::byte> arguments = argument_bytes(*kernel, shape, given, error);
    if (!error.empty()) return error;
    memory_.lend(arguments.data(), arguments.size(), Memory::Use::read_only);
    const std::vector<std::byte> before = memory_.contents();
    error = run(*kernel, shape, arguments, Order::forward);
    if (error.empty()) {
        const std::vector<std::byte> after = memory_.contents();
        memory_.restore(before);
        error = run(*kernel, shape, arguments, Order::backward);
        if (error.empty() && memory_.contents() != after)
            error = std::string(name) + " (" + code_.target +
                    "): the result depends on the order of waves, on an approximate "
                    "instruction, or on what nobody has set";
    }
    memory_.forget(arguments.data());
    return error;
}

} // namespace amdgpu
