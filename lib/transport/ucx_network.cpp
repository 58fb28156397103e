// The network over UCX: active messages of UCP, whatever transports UCX finds. A module of its own;
// knows nothing of the library but the table that it fills.
#include "transport/network_module.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

// Of UCX's library of services, whose headers are not for C++.
extern "C" {
void ucs_debug_disable_signals(void);
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);
}

namespace qccl {

// What nobody but the two ends' memory has to do with: larger messages wait at the sender until
// they are fetched, so that a receiver is never given more than it has room for.
static constexpr size_t eager_bytes = size_t{8} << 10;

// With these UCX would share memory across what the library calls hosts; UCX's name for all of them
// is the first.
static constexpr const char *sharing[] = {"shm",  "sm",  "mm",   "posix",
                                          "sysv", "cma", "knem", "xpmem"};

static constexpr unsigned message_id = 0;

struct NetworkEnd {
    NetworkEvents events{};
    int64_t peer_timeout_ns = 0;
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    int descriptor = -1;

    struct Peer {
        NetworkEnd *end = nullptr;
        uint32_t number = 0;
        std::vector<std::byte> address;
        ucp_ep_h endpoint = nullptr;
        bool is_lost = false;
    };
    std::vector<Peer> peers;

    // What the next progress tells, since only that tells anything.
    struct Fetched {
        uint64_t token;
        bool whole;
    };
    struct Lost {
        uint32_t peer;
        ucs_status_t why;
    };
    std::vector<Fetched> fetched;
    std::vector<Lost> lost;

    NetworkEnd() = default;
    NetworkEnd(const NetworkEnd &) = delete;
    ~NetworkEnd();
};

namespace {

// What is posted or fetched and not done at once.
struct Operation {
    NetworkEnd *end;
    uint64_t token;
    std::byte head[most_network_head_bytes];
    ucp_dt_iov_t parts[most_network_parts];
};

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

bool fail(char *error, size_t error_bytes, const char *what, ucs_status_t status) {
    std::snprintf(error, error_bytes, "%s: %s", what, ucs_status_string(status));
    return false;
}

// A third of the patience before the first question, and the rest for the answers.
void set_keepalive(ucp_config_t *config, double timeout_s) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", seconds(timeout_s / 3).c_str());
    ucp_config_modify(config, "KEEPIDLE", seconds(timeout_s / 2).c_str());
    ucp_config_modify(config, "KEEPINTVL", seconds(timeout_s / 8).c_str());
    ucp_config_modify(config, "KEEPCNT", "4");
}

bool open_context(NetworkEnd &end, const NetworkSettings &settings, char *error,
                  size_t error_bytes) {
    ucp_config_t *config = nullptr;
    ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return fail(error, error_bytes, "UCX's settings", status);
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config,
                                                                             ucp_config_release);
    const char *wished = settings.transports ? settings.transports : std::getenv("UCX_TLS");
    const std::string transports = allowed_transports(wished ? wished : "");
    status = ucp_config_modify(config, "TLS", transports.c_str());
    if (status == UCS_OK && settings.devices)
        status = ucp_config_modify(config, "NET_DEVICES", settings.devices);
    if (status != UCS_OK) return fail(error, error_bytes, "UCX's transports or devices", status);
    set_keepalive(config, static_cast<double>(settings.peer_timeout_ns) / 1e9);

    ucp_params_t params{};
    params.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.estimated_num_eps = settings.peers;
    params.name = "qccl";
    status = ucp_init(&params, config, &end.context);
    if (status == UCS_OK) return true;
    return fail(error, error_bytes, ("UCX with transports " + transports).c_str(), status);
}

ucs_status_t on_message(void *argument, const void *head, size_t head_bytes, void *data,
                        size_t bytes, const ucp_am_recv_param_t *how) {
    const NetworkEvents &events = static_cast<NetworkEnd *>(argument)->events;
    const bool waits_at_sender = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (!waits_at_sender) {
        events.came(events.context, head, head_bytes, data, bytes, nullptr);
        return UCS_OK;
    }
    events.came(events.context, head, head_bytes, nullptr, bytes,
                static_cast<NetworkTicket *>(data));
    return UCS_INPROGRESS;
}

bool open_worker(NetworkEnd &end, char *error, size_t error_bytes) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucs_status_t status = ucp_worker_create(end.context, &params, &end.worker);
    if (status != UCS_OK) return fail(error, error_bytes, "a worker of UCX", status);

    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = on_message;
    handler.arg = &end;
    status = ucp_worker_set_am_recv_handler(end.worker, &handler);
    if (status == UCS_OK) status = ucp_worker_get_efd(end.worker, &end.descriptor);
    return status == UCS_OK || fail(error, error_bytes, "a worker of UCX", status);
}

// UCX takes signals when it is loaded, and tells the terminal of every connection that breaks. The
// ranks word that themselves.
void keep_quiet() {
    ucs_debug_disable_signals();
    if (!std::getenv("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

NetworkEnd *open(const NetworkSettings *settings, const NetworkEvents *events, char *error,
                 size_t error_bytes) {
    keep_quiet();
    auto end = std::make_unique<NetworkEnd>();
    end->events = *events;
    end->peer_timeout_ns = settings->peer_timeout_ns;
    end->peers.resize(settings->peers);
    for (uint32_t peer = 0; peer < settings->peers; peer++) {
        end->peers[peer].end = end.get();
        end->peers[peer].number = peer;
    }
    if (!open_context(*end, *settings, error, error_bytes)) return nullptr;
    if (!open_worker(*end, error, error_bytes)) return nullptr;
    return end.release();
}

size_t address(NetworkEnd *end, void *out, size_t capacity) {
    ucp_address_t *own = nullptr;
    size_t bytes = 0;
    if (ucp_worker_get_address(end->worker, &own, &bytes) != UCS_OK) return 0;
    if (out) std::memcpy(out, own, std::min(bytes, capacity));
    ucp_worker_release_address(end->worker, own);
    return bytes;
}

void introduce(NetworkEnd *end, uint32_t peer, const void *address, size_t bytes) {
    const auto *const first = static_cast<const std::byte *>(address);
    end->peers[peer].address.assign(first, first + bytes);
}

void lose(NetworkEnd::Peer &peer, ucs_status_t status) {
    if (peer.is_lost) return;
    peer.is_lost = true;
    peer.end->lost.push_back({peer.number, status});
}

void on_error(void *argument, ucp_ep_h, ucs_status_t status) {
    lose(*static_cast<NetworkEnd::Peer *>(argument), status);
}

ucs_status_t connect(NetworkEnd::Peer &peer) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t *>(peer.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {on_error, &peer};
    return ucp_ep_create(peer.end->worker, &params, &peer.endpoint);
}

void on_sent(void *request, ucs_status_t, void *user_data) {
    const std::unique_ptr<Operation> operation(static_cast<Operation *>(user_data));
    const NetworkEvents &events = operation->end->events;
    ucp_request_free(request);
    events.sent(events.context, operation->token);
}

NetworkModule::Posted post(NetworkEnd *end, uint32_t number, const void *head, size_t head_bytes,
                           const NetworkPart *parts, size_t part_count, uint64_t token) {
    using Posted = NetworkModule::Posted;
    NetworkEnd::Peer &peer = end->peers[number];
    if (peer.is_lost) return Posted::refused;
    if (!peer.endpoint)
        if (const ucs_status_t status = connect(peer); status != UCS_OK) {
            lose(peer, status);
            return Posted::refused;
        }
    auto operation = std::make_unique<Operation>();
    operation->end = end;
    operation->token = token;
    std::memcpy(operation->head, head, head_bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++) {
        operation->parts[i] = {const_cast<void *>(parts[i].data), parts[i].bytes};
        bytes += parts[i].bytes;
    }
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = bytes <= eager_bytes ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    how.cb.send = on_sent;
    how.user_data = operation.get();
    const bool is_one = part_count <= 1;
    how.datatype = is_one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
    const void *const one = part_count == 1 ? parts[0].data : nullptr;
    const void *const data = is_one ? one : operation->parts;
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(peer.endpoint, message_id, operation->head, head_bytes, data,
                        is_one ? bytes : part_count, &how);
    if (!request) return Posted::done;
    if (UCS_PTR_IS_ERR(request)) {
        lose(peer, UCS_PTR_STATUS(request));
        return Posted::refused;
    }
    (void)operation.release(); // on_sent's
    return Posted::under_way;
}

void on_fetched(void *request, ucs_status_t status, size_t, void *user_data) {
    const std::unique_ptr<Operation> operation(static_cast<Operation *>(user_data));
    const NetworkEvents &events = operation->end->events;
    ucp_request_free(request);
    events.fetched(events.context, operation->token, status == UCS_OK);
}

void fetch(NetworkEnd *end, NetworkTicket *ticket, void *to, size_t bytes, uint64_t token) {
    auto operation = std::make_unique<Operation>();
    operation->end = end;
    operation->token = token;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    how.cb.recv_am = on_fetched;
    how.user_data = operation.get();
    how.datatype = ucp_dt_make_contig(1);
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(end->worker, ticket, to, bytes, &how);
    if (!request || UCS_PTR_IS_ERR(request))
        end->fetched.push_back({token, request == nullptr});
    else
        (void)operation.release(); // on_fetched's
}

void discard(NetworkEnd *end, NetworkTicket *ticket) { ucp_am_data_release(end->worker, ticket); }

bool progress(NetworkEnd *end) {
    const bool has_moved = ucp_worker_progress(end->worker) != 0;
    if (end->fetched.empty() && end->lost.empty()) return has_moved;
    const NetworkEvents &events = end->events;
    for (const auto &[token, whole] : std::exchange(end->fetched, {}))
        events.fetched(events.context, token, whole);
    for (const auto &[peer, why] : std::exchange(end->lost, {}))
        events.lost(events.context, peer, ucs_status_string(why));
    return true;
}

int descriptor(NetworkEnd *end) { return end->descriptor; }

bool arm(NetworkEnd *end) {
    return end->fetched.empty() && end->lost.empty() && ucp_worker_arm(end->worker) == UCS_OK;
}

// Says goodbye to peers, who would otherwise find the connection broken. Whoever does not answer is
// not waited for.
void say_goodbye(NetworkEnd &end) {
    constexpr int most_looks = 10000;
    std::vector<ucs_status_ptr_t> closing;
    for (NetworkEnd::Peer &peer : end.peers) {
        if (!peer.endpoint) continue;
        ucp_request_param_t how{};
        how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        how.flags = UCP_EP_CLOSE_FLAG_FORCE;
        const ucs_status_ptr_t request = ucp_ep_close_nbx(peer.endpoint, &how);
        if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    }
    for (int look = 0; look < most_looks && !closing.empty(); look++) {
        ucp_worker_progress(end.worker);
        std::erase_if(closing, [](ucs_status_ptr_t request) {
            if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
            ucp_request_free(request);
            return true;
        });
    }
}

} // namespace

NetworkEnd::~NetworkEnd() {
    events = {.context = nullptr,
              .came = [](void *, const void *, size_t, const void *, size_t, NetworkTicket *) {},
              .sent = [](void *, uint64_t) {},
              .fetched = [](void *, uint64_t, bool) {},
              .lost = [](void *, uint32_t, const char *) {}};
    if (worker) {
        say_goodbye(*this);
        ucp_worker_destroy(worker);
    }
    if (context) ucp_cleanup(context);
}

} // namespace qccl

extern "C" [[gnu::visibility("default")]] qccl::NetworkModuleFunction qccl_network_module;

const qccl::NetworkModule *qccl_network_module() {
    using namespace qccl;
    static constexpr NetworkModule module{.abi = NetworkModule::current_abi,
                                          .name = "ucx",
                                          .open = open,
                                          .close = [](NetworkEnd *end) { delete end; },
                                          .address = address,
                                          .introduce = introduce,
                                          .post = post,
                                          .fetch = fetch,
                                          .discard = discard,
                                          .progress = progress,
                                          .descriptor = descriptor,
                                          .arm = arm};
    return &module;
}
