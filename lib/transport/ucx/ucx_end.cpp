// Sends and receives the wireup messages and confirmations by which two ends connect.
// ucx_network.cpp opens and closes ends.
#include "transport/ucx/ucx_end.hpp"

#include <cstring>
#include <utility>

namespace qccl {

namespace {

constexpr unsigned confirmation_id = 1;

void on_error(void *argument, ucp_ep_h, ucs_status_t status) {
    lose(*static_cast<NetworkEnd::UcxPeer *>(argument), status);
}

ucs_status_t connect(NetworkEnd::UcxPeer &peer) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t *>(peer.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {on_error, &peer};
    return ucp_ep_create(peer.end->worker, &params, &peer.endpoint);
}

void settle(NetworkEnd::UcxPeer &peer) {
    if (peer.is_settled || peer.is_lost) return;
    peer.is_settled = true;
    peer.end->settled.push_back(peer.number);
}

void on_confirmation_sent(void *request, ucs_status_t status, void *user_data) {
    ucp_request_free(request);
    if (status != UCS_OK) lose(*static_cast<NetworkEnd::UcxPeer *>(user_data), status);
}

void confirm_wireup(NetworkEnd::UcxPeer &peer) {
    peer.confirmation = {.secret = peer.secret, .number = peer.end->own};
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_AM_SEND_FLAG_REPLY; // a reply always needs the id of the peer's endpoint
    how.cb.send = on_confirmation_sent;
    how.user_data = &peer;
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(peer.endpoint, confirmation_id, &peer.confirmation,
                        sizeof peer.confirmation, nullptr, 0, &how);
    if (UCS_PTR_IS_ERR(request)) lose(peer, UCS_PTR_STATUS(request));
}

void go_on(NetworkEnd::UcxPeer &peer) {
    if (peer.is_settled || peer.is_lost || !peer.is_wireup_sent || !peer.is_wireup_received) return;
    if (peer.end->own > peer.number) return; // the peer sends the confirmation
    confirm_wireup(peer);
    settle(peer);
}

ucs_status_t on_confirmation(void *argument, const void *head, size_t head_bytes, void *, size_t,
                             const ucp_am_recv_param_t *) {
    auto &end = *static_cast<NetworkEnd *>(argument);
    WireupMessage confirmation{};
    if (head_bytes != sizeof confirmation) return UCS_OK;
    std::memcpy(&confirmation, head, sizeof confirmation);
    if (confirmation.secret == end.secret && confirmation.number < end.own)
        settle(end.peers[confirmation.number]);
    return UCS_OK;
}

void on_wireup_sent(void *request, ucs_status_t status, void *user_data) {
    ucp_request_free(request);
    auto &peer = *static_cast<NetworkEnd::UcxPeer *>(user_data);
    if (status != UCS_OK) return lose(peer, status);
    peer.is_wireup_sent = true;
    go_on(peer);
}

void on_wireup(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
               void *user_data) {
    ucp_request_free(request);
    auto &end = *static_cast<NetworkEnd *>(user_data);
    end.has_wireup = true;
    if (status != UCS_OK || info->length != sizeof end.wireup_from) end.wireup_from = end.own;
}

ucs_status_t listen(NetworkEnd &end) {
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    how.cb.recv = on_wireup;
    how.user_data = &end;
    constexpr ucp_tag_t whole_tag = ~ucp_tag_t{0};
    const ucs_status_ptr_t request = ucp_tag_recv_nbx(
        end.worker, &end.wireup_from, sizeof end.wireup_from, end.secret, whole_tag, &how);
    return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;
}

// A wireup message from an end that is no peer is ignored.
void take_wireup(NetworkEnd &end) {
    if (end.wireup_from == end.own || end.wireup_from >= end.peers.size()) return;
    NetworkEnd::UcxPeer &peer = end.peers[end.wireup_from];
    if (peer.address.empty() || peer.is_lost) return;
    peer.is_wireup_received = true;
    if (!peer.endpoint) send_wireup(peer);
    go_on(peer);
}

} // namespace

void send_wireup(NetworkEnd::UcxPeer &peer) {
    ucs_status_t status = connect(peer);
    if (status != UCS_OK) return lose(peer, status);
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.send = on_wireup_sent;
    how.user_data = &peer;
    const ucs_status_ptr_t request =
        ucp_tag_send_nbx(peer.endpoint, &peer.end->own, sizeof peer.end->own, peer.secret, &how);
    if (UCS_PTR_IS_ERR(request)) return lose(peer, UCS_PTR_STATUS(request));
    peer.is_wireup_sent = !request;
}

ucs_status_t set_wireup_handlers(NetworkEnd &end) {
    const ucs_status_t status = set_message_handler(end, confirmation_id, on_confirmation);
    return status == UCS_OK ? listen(end) : status;
}

void answer_wireups(NetworkEnd &end) {
    while (std::exchange(end.has_wireup, false)) {
        take_wireup(end);
        const ucs_status_t status = listen(end);
        for (NetworkEnd::UcxPeer &peer : end.peers)
            if (status != UCS_OK && !peer.is_settled && !peer.address.empty()) lose(peer, status);
    }
}

} // namespace qccl
