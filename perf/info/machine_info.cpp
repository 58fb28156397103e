// Implements the commands of qccl-info about this library on this machine: prints versions,
// devices, transports, codecs and settings to standard output. Implements qccl-info topology: reads
// or discovers the graph, orders the ranks, and writes the outputs.

#include "base/settings.hpp"
#include "base/text.hpp"
#include "bootstrap/launcher.hpp"
#include "codec/codec.hpp"
#include "codec/codec_names.hpp"
#include "codec/error_model.hpp"
#include "device/device.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/info/info_commands.hpp"
#include "perf/info/simulated_job.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "topology/formats/picture_svg.hpp"
#include "topology/formats/read_topology.hpp"
#include "topology/formats/topology_report.hpp"
#include "topology/graph.hpp"
#include "topology/sources/calibration_source.hpp"
#include "topology/sources/machine_sources.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include <qccl/qccl.h>
#include <unistd.h>

namespace qccl::perf {

void print_version() {
    int version = 0;
    (void)qcclGetVersion(&version);
    std::printf("version %d.%d.%d\nhwloc %s\n", version / 10000, version / 100 % 100, version % 100,
                hwloc_version().c_str());
}

static void print_none(const std::string &vendor, std::string_view why) {
    if (why.starts_with(vendor + ": ")) why.remove_prefix(vendor.size() + 2);
    std::printf("  %s: none; %.*s\n", vendor.c_str(), static_cast<int>(why.size()), why.data());
}

static void print_gpu(const std::string &device) {
    const auto gpu = open_gpu(device);
    if (!gpu) {
        std::printf("  %s: %s\n", device.c_str(), gpu.error().text);
        return;
    }
    const GpuTraits &traits = (*gpu)->traits();
    std::printf("  %s: %s, %u multiprocessors, warps of %u lanes; calls %s\n", device.c_str(),
                traits.model.c_str(), traits.multiprocessors, traits.lanes,
                !traits.has_stream_waits ? "with QCCL_STREAM_SYNC alone"
                : traits.can_capture     ? "in streams and graphs"
                                         : "in streams");
}

void print_devices() {
    std::printf("devices\n  host: %s, %ld cores; computes with %s, has", processor_name().c_str(),
                sysconf(_SC_NPROCESSORS_ONLN), name(best_kernels().tier));
    for (const Kernels *const kernels : available_kernels())
        std::printf(" %s", name(kernels->tier));
    std::printf("\n  measured as: %s\n", machine_identity().c_str());
    const std::string figures = calibration_path();
    const bool is_there = access(figures.c_str(), R_OK) == 0;
    if (!figures.empty())
        std::printf("  calibration: %s%s\n", figures.c_str(),
                    is_there ? "" : ", not there; `qccl-perf calibrate` writes it");
    for (const std::string &vendor : gpu_vendors()) {
        const Result<uint32_t> count = count_gpus(vendor);
        if (!count) print_none(vendor, count.error().text);
        for (uint32_t number = 0; count && number < *count; number++)
            print_gpu(vendor + ":" + std::to_string(number));
    }
}

void print_transports() {
    std::printf("transports\n  shm: between processes of one host, through shared memory\n"
                "  inproc: between threads of one process\n"
                "  ucx: between hosts, over what UCX finds (libqccl_ucx.so, loaded when needed)\n");
}

void print_tools() {
    std::printf("tools\n  pqccl...: every function once more, for profilers and tracers, as MPI's "
                "PMPI. A tool that is\n  linked or preloaded before the library defines "
                "qcclAllReduce itself and calls pqcclAllReduce\n  to have it done "
                "(qccl/tools.h)\n");
}

void print_run(const std::vector<std::string> &command_line) {
    const auto text =
        describe_run(command_line).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
    std::printf("%s\n", text.c_str());
}

Done print_codecs() {
    static constexpr uint64_t sample = uint64_t{1} << 20;
    std::printf("codecs\n  %-10s %14s %18s  %s\n", "name", "bits per fp32", "NMSE, one encode",
                "keys");
    for (const CodecName &row : codec_names()) {
        QCCL_TRY(const Codec codec, parse_codec(row.name));
        const size_t bytes = encoded_bytes(codec, DataType::float32, sample);
        std::printf("  %-10s %14.2f %18.2g  %s\n", row.name.data(),
                    static_cast<double>(bytes) * 8 / sample, unit_nmse(codec, DataType::float32),
                    row.keys.empty() ? "-" : listed(row.keys).c_str());
    }
    std::printf("  %-10s %14.2f %18.2g  -\n", exact_name.data(), 32.0, 0.0);
    // Of one rank's integers and the scales; sums have more bits.
    std::printf("  %-10s %14.2f %18.2g  %s\n", shared_name().name.data(),
                usual_shared.shared_bits + 16.0 / usual_shared.shared_block,
                unit_nmse(usual_shared, DataType::float32), listed(shared_name().keys).c_str());
    std::printf("  %-10s %14s %18s  %s\n", auto_name().name.data(), "-", "-",
                listed(auto_name().keys).c_str());
    std::printf("keys\n");
    for (const CodecKey &key : codec_keys())
        std::printf("  %-16s %s\n", key.name.data(), listed(key.possible).c_str());
    return {};
}

// Only the library can check names and limits. This function therefore creates a communicator of
// one rank and a stream, and reads the secret file.
static Done check_settings(const Settings &settings) {
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.log.function = [](int32_t, const char *, void *) {}; // its warnings are printed below
    qcclUniqueId id;
    qcclComm_t comm = nullptr;
    if (qcclGetUniqueId(&id) != qcclSuccess ||
        qcclCommInitRankConfig(&comm, 1, &id, 0, &config) != qcclSuccess ||
        qcclCommDestroy(comm) != qcclSuccess)
        return invalid_argument("no communicator can be made: %.400s", qcclGetLastError(nullptr));
    qcclStream_t stream = nullptr;
    if (qcclStreamCreate(&stream) != qcclSuccess || qcclStreamDestroy(stream) != qcclSuccess)
        return invalid_argument("no stream can be made: %.200s", qcclGetLastError(nullptr));
    if (settings.secret_file.empty()) return {};
    const auto secret = read_secret_file(settings.secret_file);
    return secret
               ? Done()
               : Error::make(secret.error().code, "QCCL_SECRET_FILE: %.200s", secret.error().text);
}

Done print_settings() {
    QCCL_TRY(const Settings settings, read_settings(environ));
    const auto rows = settings_table();
    std::printf("settings\n");
    for (size_t i = 0; i < rows.size(); i++) {
        const SettingValue &value = settings.values[i];
        const char *const origin = value.origin == Origin::environment ? "environment" : "built in";
        std::printf("  %-20s %-14s (%s) %s; expects %s\n", rows[i].name,
                    value.text.empty() ? "\"\"" : value.text.c_str(), origin, rows[i].help,
                    rows[i].type);
    }
    for (const std::string &warning : settings.warnings)
        std::printf("  warning: %s\n", warning.c_str());
    QCCL_TRY(const EnvRules rules, read_env_rules(settings));
    print_rules(rules);
    // A plan file for a larger job would be refused in the job of one rank below.
    unsetenv("QCCL_PLAN_FILE");
    return check_settings(settings);
}

Done print_everything() {
    print_version();
    print_devices();
    print_transports();
    print_tools();
    QCCL_TRY(print_codecs());
    return print_settings();
}

// Discovers this machine with all interfaces that lead out of it, because there is no job that
// selects some of them.
static Result<Graph> this_machine() {
    const DiscoveredMachine machine = discover_machine(GpuLinks::asked_for);
    if (!machine.warning.empty()) std::fprintf(stderr, "qccl-info: %s\n", machine.warning.c_str());
    if (!machine.instead_of_hardware.empty())
        std::fprintf(stderr, "qccl-info: this is not the hardware, but what %s says\n",
                     machine.instead_of_hardware.c_str());
    const std::vector<NetworkPort> ports = list_ports();
    QCCL_TRY(const Settings settings, read_settings(environ));
    NetworkChoice choice = network_choice(settings);
    for (const NetworkPort &port : ports)
        if (port.is_up && !port.is_loopback && !port.is_internal)
            choice.interfaces.push_back(port.name);
    return connect_to_network(machine.graph, ports, choice);
}

static void print_rings(const RankOrder &order) {
    for (const RingLabel &ring : ring_labels(order)) std::printf("%s\n", ring.text.c_str());
}

Done print_topology(const TopologyRequest &request) {
    const auto outputs = {&request.svg, &request.json, &request.text};
    const auto printed =
        std::ranges::count_if(outputs, [](const std::string *file) { return *file == "-"; });
    if (printed > 1)
        return invalid_argument("only one of --svg, --json and --text can go to "
                                "standard output; name files for the others");
    QCCL_TRY(const Graph graph,
             request.topology.empty() ? this_machine() : read_topology(request.topology));
    QCCL_TRY(const std::vector<uint32_t> places, rank_places(graph, request.ranks));
    const bool needs_rings = !request.has_matrix || !request.svg.empty() || !request.json.empty();
    const RankOrder order = needs_rings ? order_ranks(graph, places) : RankOrder();
    if (printed == 0 && request.has_matrix) {
        std::fputs(print_matrix(graph).c_str(), stdout);
    } else if (printed == 0) {
        std::fputs(print_tree(graph).c_str(), stdout);
        print_rings(order);
    }
    if (!request.svg.empty()) QCCL_TRY(write_file(request.svg, draw_picture(graph, places, order)));
    if (!request.json.empty())
        QCCL_TRY(write_file(request.json, print_graph_json(graph, places, order)));
    if (!request.text.empty()) QCCL_TRY(write_file(request.text, print_graph_text(graph)));
    return {};
}

} // namespace qccl::perf
