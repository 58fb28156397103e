// The network over UCX: active messages of UCP, over any transports that UCX finds. A module of its
// own that fills the table in network_module.hpp; it turns a network's settings into UCX's own
// (transports, devices, timeouts and logging). One thread at a time may use an end.

#include "transport/network_module.hpp"
#include "transport/ucx/ucx_end.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <ucp/api/ucp.h>

// From UCX's service library (UCS), whose headers are not for C++.
extern "C" {
void ucs_debug_disable_signals(void);
ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);
}

namespace qccl {

namespace {

// Writes "what: " and UCX's text for the status into `error`. Returns false.
bool refuse(char *error, size_t error_bytes, const char *what, ucs_status_t status) {
    std::snprintf(error, error_bytes, "%s: %s", what, ucs_status_string(status));
    return false;
}

// The transports with which UCX would share memory between ranks that are on different hosts to
// this library. UCX takes the first name for all of them.
constexpr const char *sharing[] = {"shm", "sm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};

bool shares_memory(std::string_view name) {
    return std::find(std::begin(sharing), std::end(sharing), name) != std::end(sharing);
}

// Returns the user's list in UCX's form, without the transports that share memory.
std::string allowed_transports(std::string_view wished) {
    std::string without = std::string("^") + sharing[0];
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
// without these settings, 77 ms with them. A shorter message, and its head, fit into one frame:
// four hosts on two cores exchange 8 KiB in 345 us instead of 450.
void set_frames(ucp_config_t *config) {
    prefer(config, "UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "16384");
    prefer(config, "UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "32k");
    prefer(config, "UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "1m");
}

// Of several sockets that are ready, UCX takes one at a time. Over TCP, at least 1.13 to 1.19, it
// ends the process ("conn_state != UCT_TCP_EP_CONN_STATE_CLOSED") if what it does for one of them
// closes another one whose turn has not come, as when a rank dies while connections are made.
void take_sockets_one_by_one(ucp_config_t *config) {
    prefer(config, "UCX_TCP_MAX_POLL", "MAX_POLL", "1");
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

bool stays(std::string_view name) {
    return std::any_of(std::begin(staying), std::end(staying),
                       [name](std::string_view word) { return name.starts_with(word); });
}

// Returns what `print` writes to the stream that it is given; empty if there is no memory.
template <class Print> std::string printed(Print print) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *const stream = open_memstream(&text, &bytes);
    if (!stream) return {};
    print(stream);
    std::fclose(stream);
    const std::unique_ptr<char, decltype(&std::free)> owner(text, std::free);
    return {text, bytes};
}

// Returns the names of UCX's resources, such as "tcp/eth0". UCX 1.13 tells them only in text, in a
// line for each:
//   #  resource 1  :  md 0  dev 1  flags -- tcp/eth0
// The name of a line of an unknown form is empty.
std::vector<std::string> resource_names(ucp_context_h context) {
    static constexpr std::string_view row = " resource ", before_name = "-- ";
    const std::string text = printed([context](FILE *to) { ucp_context_print_info(context, to); });
    std::vector<std::string> names;
    for (size_t at = text.find(row); at != text.npos; at = text.find(row, at + row.size())) {
        const std::string_view line = std::string_view(text).substr(at, text.find('\n', at) - at);
        const size_t name = line.find(before_name);
        names.emplace_back(name == line.npos ? "" : line.substr(name + before_name.size()));
    }
    return names;
}

// UCX opens even if none of the requested devices is there. Only its printed description names
// those that it has opened. If the description has an unknown form, this assumes that they are
// there.
bool reaches_others(ucp_context_h context) {
    const std::vector<std::string> names = resource_names(context);
    return names.empty() || !std::all_of(names.begin(), names.end(), stays);
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

// Creates `context`. None of its transports shares memory, it handles no signals, and it prints
// nothing unless UCX_LOG_LEVEL is set. On failure, returns false and writes the reason into
// `error`.
static bool open_ucx(const NetworkSettings &settings, ucp_context_h &context, char *error,
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
    take_sockets_one_by_one(config);

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

// Larger messages wait at the sender until they are pulled. So a receiver never gets more than it
// has buffers for, and network cards move the bytes from memory to memory. A large message that may
// go eagerly does not wait if it goes through sockets: the request to pull it would queue behind
// other data.
static constexpr size_t eager_bytes = always_eager_bytes;

static constexpr unsigned message_id = 0;

namespace {

ucs_status_t on_message(void *argument, const void *head, size_t head_bytes, void *data,
                        size_t bytes, const ucp_am_recv_param_t *how) {
    auto &end = *static_cast<NetworkEnd *>(argument);
    const NetworkEvents &events = end.events;
    const bool waits_at_sender = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    const bool may_stay = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    if (!waits_at_sender && (!may_stay || bytes <= eager_bytes)) {
        events.on_message(events.context, head, head_bytes, data, bytes, nullptr);
        return UCS_OK;
    }
    end.arriving = static_cast<RendezvousHandle *>(data);
    events.on_message(events.context, head, head_bytes, waits_at_sender ? nullptr : data, bytes,
                      end.arriving);
    return std::exchange(end.arriving, nullptr) ? UCS_INPROGRESS : UCS_OK;
}

bool open_worker(NetworkEnd &end, char *error, size_t error_bytes) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucs_status_t status = ucp_worker_create(end.context, &params, &end.worker);
    if (status != UCS_OK) return refuse(error, error_bytes, "a worker of UCX", status);

    status = set_message_handler(end, message_id, on_message);
    if (status == UCS_OK) status = set_wireup_handlers(end);
    if (status == UCS_OK) status = ucp_worker_get_efd(end.worker, &end.descriptor);
    return status == UCS_OK || refuse(error, error_bytes, "a worker of UCX", status);
}

NetworkEnd *open(const NetworkSettings *settings, const NetworkEvents *events, char *error,
                 size_t error_bytes) {
    auto end = std::make_unique<NetworkEnd>();
    end->events = *events;
    end->own = settings->own;
    if (getrandom(&end->secret, sizeof end->secret, 0) != sizeof end->secret) {
        refuse(error, error_bytes, "the system's random numbers", UCS_ERR_IO_ERROR);
        return nullptr;
    }
    end->peers = std::vector<NetworkEnd::UcxPeer>(settings->peers);
    for (uint32_t peer = 0; peer < settings->peers; peer++) {
        end->peers[peer].end = end.get();
        end->peers[peer].number = peer;
    }
    if (!open_ucx(*settings, end->context, error, error_bytes)) return nullptr;
    if (!open_worker(*end, error, error_bytes)) return nullptr;
    return end.release();
}

// The address is the end's secret, followed by UCX's address.
size_t address(NetworkEnd *end, void *out, size_t capacity) {
    ucp_address_t *own = nullptr;
    size_t bytes = 0;
    if (ucp_worker_get_address(end->worker, &own, &bytes) != UCS_OK) return 0;
    std::vector<std::byte> whole(sizeof end->secret + bytes);
    std::memcpy(whole.data(), &end->secret, sizeof end->secret);
    std::memcpy(whole.data() + sizeof end->secret, own, bytes);
    ucp_worker_release_address(end->worker, own);
    if (out) std::memcpy(out, whole.data(), std::min(whole.size(), capacity));
    return whole.size();
}

void describe(NetworkEnd *end, char *out, size_t capacity) {
    std::string text = std::string(ucp_get_version_string()) + ":";
    for (const std::string &name : resource_names(end->context))
        if (!stays(name)) text.append(" ").append(name);
    std::snprintf(out, capacity, "%s", text.c_str());
}

void add_peer(NetworkEnd *end, uint32_t number, const void *address, size_t bytes) {
    NetworkEnd::UcxPeer &peer = end->peers[number];
    if (bytes <= sizeof peer.secret) return lose(peer, UCS_ERR_INVALID_ADDR);
    const auto *const first = static_cast<const std::byte *>(address);
    std::memcpy(&peer.secret, first, sizeof peer.secret);
    peer.address.assign(first + sizeof peer.secret, first + bytes);
}

void on_sent(void *request, ucs_status_t, void *user_data) {
    const std::unique_ptr<UcxOperation> operation(static_cast<UcxOperation *>(user_data));
    ucp_request_free(request);
    operation->end->sent.push_back(operation->token);
}

using Posted = NetworkModule::Posted;

Posted send(NetworkEnd::UcxPeer &peer, std::unique_ptr<UcxOperation> operation) {
    size_t bytes = 0;
    for (size_t i = 0; i < operation->part_count; i++) bytes += operation->parts[i].length;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
    const bool is_eager = bytes <= eager_bytes || (operation->is_eager && peer.takes_copies);
    how.flags = is_eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    how.cb.send = on_sent;
    how.user_data = operation.get();
    const bool is_one = operation->part_count <= 1;
    how.datatype = is_one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
    const void *const one = operation->part_count == 1 ? operation->parts[0].buffer : nullptr;
    const void *const data = is_one ? one : operation->parts;
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(peer.endpoint, message_id, operation->head, operation->head_bytes, data,
                        is_one ? bytes : operation->part_count, &how);
    if (!request) return Posted::done;
    if (UCS_PTR_IS_ERR(request)) {
        lose(peer, UCS_PTR_STATUS(request));
        return Posted::refused;
    }
    (void)operation.release(); // on_sent takes it back
    return Posted::under_way;
}

Posted post(NetworkEnd *end, uint32_t number, const void *head, size_t head_bytes,
            const NetworkPart *parts, size_t part_count, bool is_eager, uint64_t token) {
    NetworkEnd::UcxPeer &peer = end->peers[number];
    if (!peer.endpoint && !peer.is_lost) send_wireup(peer);
    if (peer.is_lost) return Posted::refused;
    auto operation = std::make_unique<UcxOperation>();
    operation->end = end;
    operation->token = token;
    operation->head_bytes = head_bytes;
    std::memcpy(operation->head, head, head_bytes);
    operation->part_count = part_count;
    operation->is_eager = is_eager;
    for (size_t i = 0; i < part_count; i++)
        operation->parts[i] = {const_cast<void *>(parts[i].data), parts[i].bytes};
    if (peer.is_settled && peer.waiting.empty()) return send(peer, std::move(operation));
    peer.waiting.push_back(std::move(operation));
    return Posted::under_way;
}

size_t occurrences(std::string_view text, std::string_view word) {
    size_t found = 0;
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) found++;
    return found;
}

// UCX 1.13 tells this only in text: one line "lane[0]: 1:tcp/eth0 ..." for each connection.
bool goes_through_sockets(ucp_ep_h endpoint) {
    const std::string text = printed([endpoint](FILE *to) { ucp_ep_print_info(endpoint, to); });
    const size_t lanes = occurrences(text, "lane[");
    return lanes > 0 && occurrences(text, ":tcp/") == lanes;
}

void send_waiting(NetworkEnd::UcxPeer &peer) {
    while (!peer.waiting.empty()) {
        std::unique_ptr<UcxOperation> operation = std::move(peer.waiting.front());
        peer.waiting.pop_front();
        const uint64_t token = operation->token;
        if (send(peer, std::move(operation)) != Posted::under_way) peer.end->sent.push_back(token);
    }
}

void on_pulled(void *request, ucs_status_t status, size_t, void *user_data) {
    const std::unique_ptr<UcxOperation> operation(static_cast<UcxOperation *>(user_data));
    ucp_request_free(request);
    operation->end->pulled.push_back({operation->token, status == UCS_OK});
}

void pull(NetworkEnd *end, RendezvousHandle *handle, void *to, size_t bytes, uint64_t token) {
    auto operation = std::make_unique<UcxOperation>();
    operation->end = end;
    operation->token = token;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    how.cb.recv_am = on_pulled;
    how.user_data = operation.get();
    how.datatype = ucp_dt_make_contig(1);
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(end->worker, handle, to, bytes, &how);
    if (!request || UCS_PTR_IS_ERR(request))
        end->pulled.push_back({token, request == nullptr});
    else
        (void)operation.release(); // on_pulled takes it back
}

// UCX 1.13 still uses a message that it has put together from pieces after the callback has seen
// it. So a message that is discarded inside the callback is left to UCX.
void discard(NetworkEnd *end, RendezvousHandle *handle) {
    if (handle == end->arriving)
        end->arriving = nullptr;
    else
        ucp_am_data_release(end->worker, handle);
}

bool progress(NetworkEnd *end) {
    const bool has_moved = ucp_worker_progress(end->worker) != 0;
    if (!end->has_news()) return has_moved;
    answer_wireups(*end);
    for (const uint32_t number : std::exchange(end->settled, {})) {
        NetworkEnd::UcxPeer &peer = end->peers[number];
        peer.takes_copies = !peer.is_lost && goes_through_sockets(peer.endpoint);
        send_waiting(peer);
    }
    const NetworkEvents &events = end->events;
    for (const uint64_t token : std::exchange(end->sent, {})) events.on_sent(events.context, token);
    for (const auto &[token, whole] : std::exchange(end->pulled, {}))
        events.on_pulled(events.context, token, whole);
    for (const auto &[peer, why] : std::exchange(end->lost, {}))
        events.on_peer_lost(events.context, peer, ucs_status_string(why));
    return true;
}

int descriptor(NetworkEnd *end) { return end->descriptor; }

bool arm(NetworkEnd *end) { return !end->has_news() && ucp_worker_arm(end->worker) == UCS_OK; }

// Closes the endpoints, since peers would otherwise find the connections broken. Does not wait for
// peers that do not answer.
void close_endpoints(NetworkEnd &end) {
    constexpr int most_looks = 10000;
    std::vector<ucs_status_ptr_t> closing;
    for (NetworkEnd::UcxPeer &peer : end.peers) {
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
    events.context = this;
    events.on_message = [](void *self, const void *, size_t, const void *, size_t,
                           RendezvousHandle *handle) {
        if (handle) discard(static_cast<NetworkEnd *>(self), handle);
    };
    if (worker) {
        close_endpoints(*this);
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
                                          .describe = describe,
                                          .add_peer = add_peer,
                                          .post = post,
                                          .pull = pull,
                                          .discard = discard,
                                          .progress = progress,
                                          .descriptor = descriptor,
                                          .arm = arm};
    return &module;
}
