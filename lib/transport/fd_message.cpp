// Implements messages with descriptors over sendmsg and recvmsg.
#include "transport/fd_message.hpp"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

namespace qccl {

using Clock = std::chrono::steady_clock;

namespace {

// Control data of one message, aligned as the kernel requires.
union Control {
    cmsghdr header;
    std::byte buffer[CMSG_SPACE(2 * pairs_per_message * sizeof(int))];
};

// Takes ownership of all descriptors that came before the message is checked, so that none can
// leak.
std::vector<FileDescriptor> take_descriptors(msghdr &packet) {
    std::vector<FileDescriptor> taken;
    for (cmsghdr *header = CMSG_FIRSTHDR(&packet); header; header = CMSG_NXTHDR(&packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int number;
            std::memcpy(&number, CMSG_DATA(header) + at, sizeof number);
            taken.emplace_back(number);
        }
    }
    return taken;
}

} // namespace

bool await(const FileDescriptor &connection, short events, TimePoint deadline) {
    for (;;) {
        const TimePoint now = Clock::now();
        pollfd one{connection.number(), events, 0};
        const int ready = poll(&one, 1, poll_timeout_ms(now, deadline));
        if (ready > 0) return true;
        if (now >= deadline) return false;
        if (ready < 0) std::this_thread::sleep_for(retry_pause);
    }
}

int send_fds(const FileDescriptor &connection, const FdMessage &message, const FdPair *pairs,
             TimePoint deadline) {
    Control control{};
    iovec bytes{const_cast<FdMessage *>(&message), sizeof message};
    msghdr packet{};
    packet.msg_iov = &bytes;
    packet.msg_iovlen = 1;
    packet.msg_control = &control;
    packet.msg_controllen = CMSG_SPACE(2 * message.pairs * sizeof(int));
    cmsghdr *const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * message.pairs * sizeof(int));
    for (size_t i = 0; i < 2 * size_t{message.pairs}; i++) {
        const int number = pairs[i / 2][i % 2].number();
        std::memcpy(CMSG_DATA(header) + i * sizeof number, &number, sizeof number);
    }
    for (;;) {
        const TimePoint now = Clock::now();
        if (sendmsg(connection.number(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
        const int reason = errno;
        if (reason == EINTR) continue;
        const bool may_pass = reason == EAGAIN || reason == ETOOMANYREFS;
        if (!may_pass || now >= deadline) return reason;
        // The kernel limits the descriptors of one user that are sent and not received yet, so
        // other receivers must read theirs before this message can go out.
        if (reason == ETOOMANYREFS)
            std::this_thread::sleep_for(retry_pause);
        else
            (void)await(connection, POLLOUT, deadline);
    }
}

std::optional<ReceivedFds> receive_fds(const FileDescriptor &connection, const FdCookie &cookie) {
    Control control{};
    ReceivedFds received;
    iovec bytes{&received.message, sizeof received.message};
    msghdr packet{};
    packet.msg_iov = &bytes;
    packet.msg_iovlen = 1;
    packet.msg_control = &control;
    packet.msg_controllen = sizeof control;
    ssize_t got;
    do got = recvmsg(connection.number(), &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) return std::nullopt;
    std::vector<FileDescriptor> taken = take_descriptors(packet);
    const bool is_ours = got == sizeof received.message && (packet.msg_flags & MSG_TRUNC) == 0 &&
                         received.message.cookie == cookie;
    const bool is_whole =
        (packet.msg_flags & MSG_CTRUNC) == 0 && taken.size() == 2 * size_t{received.message.pairs};
    if (is_ours && is_whole) {
        for (size_t i = 0; i < taken.size(); i += 2)
            received.pairs.push_back({std::move(taken[i]), std::move(taken[i + 1])});
        return received;
    }
    taken.clear();
    // The kernel leaves descriptors out if this process has no number free for them.
    const bool is_short = is_ours && (packet.msg_flags & MSG_CTRUNC) != 0;
    errno = is_short ? EMFILE : got == 0 ? ECONNRESET : EPROTO;
    return std::nullopt;
}

} // namespace qccl
