// Turns a network's settings into UCX's own: transports, devices, timeouts and logging.
#include "transport/ucx/ucx_settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

// From UCX's service library (UCS), whose headers are not for C++.
extern "C" {
void ucs_debug_disable_signals(void);
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);
}

namespace qccl {

namespace {

// The transports with which UCX would share memory between ranks that are on different hosts to
// this library. UCX takes the first name for all of them.
constexpr const char *sharing[] = {"shm", "sm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};

bool shares_memory(std::string_view name) {
    return std::find(std::begin(sharing), std::end(sharing), name) != std::end(sharing);
}

// Returns the user's list in UCX's form, without the transports that share memory.
std::string allowed_transports(std::string_view wished) {
    const std::string without = std::string("^") + sharing[0];
    if (wished.empty() || wished == "all") return without;
    if (wished.front() == '^') return without + "," + std::string(wished.substr(1));
    std::string kept;
    while (!wished.empty()) {
        const size_t comma = wished.find(',');
        const std::string_view name = wished.substr(0, comma);
        wished.remove_prefix(comma == wished.npos ? wished.size() : comma + 1);
        if (name == "all") return without;
        if (name.empty() || shares_memory(name)) continue;
        kept.append(kept.empty() ? "" : ",").append(name);
    }
    return kept;
}

std::string seconds(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3fs", value);
    return text;
}

// Gives UCX a third of the timeout before its first keepalive, and the rest for the answers.
void set_keepalive(ucp_config_t *config, double timeout_s) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", seconds(timeout_s / 3).c_str());
    ucp_config_modify(config, "KEEPIDLE", seconds(timeout_s / 2).c_str());
    ucp_config_modify(config, "KEEPINTVL", seconds(timeout_s / 8).c_str());
    ucp_config_modify(config, "KEEPCNT", "4");
}

// Changes a setting unless the user has set UCX's own variable for it.
void prefer(ucp_config_t *config, const char *variable, const char *name, const char *value) {
    if (!std::getenv(variable)) ucp_config_modify(config, name, value);
}

// Over sockets, UCX would copy a message of two parts into frames of 8 KiB, with a system call for
// each, and join it again from pieces of 64 KiB. 2 hosts at 10 Gbit/s, 64 MiB, no codec: 148 ms
// without these settings, 77 ms with them.
void set_frames(ucp_config_t *config) {
    prefer(config, "UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "16384");
    prefer(config, "UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "1m");
}

// UCX makes a connection on first use, in the middle of a call. It would wait for the connection
// inside a system call, where the rank would not notice for two minutes that the other host has
// gone.
void never_block(ucp_config_t *config) { ucp_config_modify(config, "CONN_NB", "y"); }

// UCX installs signal handlers when it is loaded, and prints every broken connection. The ranks
// report those themselves.
void keep_quiet() {
    ucs_debug_disable_signals();
    if (!std::getenv("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

struct Wish {
    std::string variable;
    std::string value; // empty: none
};

Wish wish(const char *setting, const char *variable, const char *ucx_variable) {
    const char *const value = setting ? setting : std::getenv(ucx_variable);
    return {setting ? variable : ucx_variable, value ? value : ""};
}

// The names of UCX's resources that carry nothing between hosts begin with these: those within one
// process, and copies to and from devices.
constexpr std::string_view staying[] = {"self", "cuda", "gdr", "rocm", "ze_"};

// UCX opens even if none of the requested devices is there. Only its printed description names
// those that it has opened. If the description has an unknown form, this assumes that they are
// there.
bool reaches_others(ucp_context_h context) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *const stream = open_memstream(&text, &bytes);
    if (!stream) return true;
    ucp_context_print_info(context, stream);
    std::fclose(stream);
    const std::unique_ptr<char, decltype(&std::free)> owner(text, std::free);
    static constexpr std::string_view row = " resource ", before_name = "-- ";
    std::string_view rest(text, bytes);
    size_t at = rest.find(row);
    if (at == rest.npos) return true;
    for (; at != rest.npos; at = rest.find(row)) {
        rest.remove_prefix(at + row.size());
        const std::string_view line = rest.substr(0, rest.find('\n'));
        const size_t name = line.find(before_name);
        const auto begins_name = [&](std::string_view word) {
            return line.substr(name + before_name.size()).starts_with(word);
        };
        if (name == line.npos || std::none_of(std::begin(staying), std::end(staying), begins_name))
            return true;
    }
    return false;
}

bool refuse_choices(char *error, size_t error_bytes, const Wish &transports, const Wish &devices,
                    ucs_status_t status) {
    std::string said = "UCX finds no network";
    const char *between = " with ";
    for (const Wish &one : {transports, devices}) {
        if (one.value.empty()) continue;
        said += between + one.variable + "=" + one.value;
        between = " and ";
    }
    return refuse(error, error_bytes, said.c_str(), status);
}

} // namespace

bool refuse(char *error, size_t error_bytes, const char *what, ucs_status_t status) {
    std::snprintf(error, error_bytes, "%s: %s", what, ucs_status_string(status));
    return false;
}

bool open_ucx(const NetworkSettings &settings, ucp_context_h &context, char *error,
              size_t error_bytes) {
    keep_quiet();
    ucp_config_t *config = nullptr;
    ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return refuse(error, error_bytes, "UCX's settings", status);
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config,
                                                                             ucp_config_release);
    const Wish transports = wish(settings.transports, "QCCL_UCX_TLS", "UCX_TLS");
    const Wish devices = wish(settings.devices, "QCCL_UCX_DEVICES", "UCX_NET_DEVICES");
    status = ucp_config_modify(config, "TLS", allowed_transports(transports.value).c_str());
    if (status == UCS_OK && settings.devices)
        status = ucp_config_modify(config, "NET_DEVICES", settings.devices);
    if (status != UCS_OK) return refuse(error, error_bytes, "UCX's transports or devices", status);
    set_keepalive(config, static_cast<double>(settings.peer_timeout_ns) / 1e9);
    never_block(config);
    set_frames(config);

    ucp_params_t params{};
    params.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    params.estimated_num_eps = settings.peers;
    params.name = "qccl";
    status = ucp_init(&params, config, &context);
    if (status == UCS_OK && !reaches_others(context)) status = UCS_ERR_NO_DEVICE;
    return status == UCS_OK || refuse_choices(error, error_bytes, transports, devices, status);
}

} // namespace qccl
