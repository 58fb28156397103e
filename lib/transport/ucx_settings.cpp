#include "transport/ucx_settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

// Of UCX's library of services, whose headers are not for C++.
extern "C" {
void ucs_debug_disable_signals(void);
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);
}

namespace qccl {

namespace {

// With these UCX would share memory across what the library calls hosts; UCX's name for all of them
// is the first.
constexpr const char *sharing[] = {"shm", "sm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};

bool shares_memory(std::string_view name) {
    return std::find(std::begin(sharing), std::end(sharing), name) != std::end(sharing);
}

// The user's list without what shares memory, in UCX's form.
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

// A third of the patience before the first question, and the rest for the answers.
void set_keepalive(ucp_config_t *config, double timeout_s) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", seconds(timeout_s / 3).c_str());
    ucp_config_modify(config, "KEEPIDLE", seconds(timeout_s / 2).c_str());
    ucp_config_modify(config, "KEEPINTVL", seconds(timeout_s / 8).c_str());
    ucp_config_modify(config, "KEEPCNT", "4");
}

// Not where the user has said otherwise in UCX's own way.
void prefer(ucp_config_t *config, const char *variable, const char *name, const char *value) {
    if (!std::getenv(variable)) ucp_config_modify(config, name, value);
}

// Over sockets UCX would copy a message of two parts into frames of 8 KiB, a system call for each,
// and put it together again from pieces of 64 KiB. 2 hosts at 10 Gbit/s, 64 MiB, no codec: 148 ms
// before, 77 ms so.
void set_frames(ucp_config_t *config) {
    prefer(config, "UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "16384");
    prefer(config, "UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "1m");
}

// A connection is made on first use, in the middle of a call. UCX would wait for it inside the
// system, where for two minutes nobody would see that the other host has gone.
void never_block(ucp_config_t *config) { ucp_config_modify(config, "CONN_NB", "y"); }

// UCX takes signals when it is loaded, and tells the terminal of every connection that breaks. The
// ranks word that themselves.
void keep_quiet() {
    ucs_debug_disable_signals();
    if (!std::getenv("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
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
    const char *wished = settings.transports ? settings.transports : std::getenv("UCX_TLS");
    const std::string transports = allowed_transports(wished ? wished : "");
    status = ucp_config_modify(config, "TLS", transports.c_str());
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
    if (status == UCS_OK) return true;
    return refuse(error, error_bytes, ("UCX with transports " + transports).c_str(), status);
}

} // namespace qccl
