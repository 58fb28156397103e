// Tests lib/net/acceptor: of the connections that stay silent the newest are kept, and the oldest
// gives its descriptor up when there is no other.
#include "tests/kit/open_descriptors.hpp"

#include "net/acceptor.hpp"

#include <algorithm>

#include <sys/un.h>
#include <unistd.h>

using namespace qccl;

namespace {

// A listening socket, and the connections that others have made to it.
struct Door {
    FileDescriptor listener{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    std::vector<FileDescriptor> callers;

    Door() {
        const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = {}};
        CHECK_EQ(bind(listener.number(), reinterpret_cast<const sockaddr *>(&any),
                      sizeof any.sun_family),
                 0);
        CHECK_EQ(listen(listener.number(), 64), 0);
    }
    void knock() {
        sockaddr_un address{};
        socklen_t bytes = sizeof address;
        CHECK_EQ(getsockname(listener.number(), reinterpret_cast<sockaddr *>(&address), &bytes), 0);
        callers.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        CHECK_EQ(
            connect(callers.back().number(), reinterpret_cast<const sockaddr *>(&address), bytes),
            0);
    }
    bool is_closed(size_t caller) const {
        char byte = 0;
        return recv(callers[caller].number(), &byte, 1, MSG_DONTWAIT) == 0;
    }
};

bool all(const FileDescriptor &) { return true; }

void the_oldest_gives_way() {
    Door door;
    Acceptor acceptor(2);
    CHECK_OK(acceptor.accept_at(door.listener, all)); // no connection waits
    CHECK_EQ(acceptor.size(), 0U);
    for (int i = 0; i < 4; i++) {
        door.knock();
        CHECK_OK(acceptor.accept_at(door.listener, all));
        CHECK_EQ(acceptor.size(), std::min<size_t>(2, door.callers.size()));
    }
    CHECK(door.is_closed(0) && door.is_closed(1));
    CHECK(!door.is_closed(2) && !door.is_closed(3));
}

void who_may_not_enter_is_turned_away() {
    Door door;
    Acceptor acceptor(2);
    door.knock();
    CHECK_OK(acceptor.accept_at(door.listener, [](const FileDescriptor &) { return false; }));
    CHECK_EQ(acceptor.size(), 0U);
    CHECK(door.is_closed(0));
}

// Only the connections that have something to say are read, and those that say no more are closed.
void who_speaks_is_identified() {
    Door door;
    Acceptor acceptor(8);
    for (int i = 0; i < 4; i++) {
        door.knock();
        CHECK_OK(acceptor.accept_at(door.listener, all));
    }
    for (const size_t caller : {0U, 2U, 3U})
        CHECK_EQ(send(door.callers[caller].number(), &"a-bc"[caller], 1, 0), ssize_t{1});
    std::vector<pollfd> polls;
    acceptor.append_polls(polls);
    CHECK_EQ(polls.size(), 4U);
    CHECK_EQ(poll(polls.data(), polls.size(), 0), 3);
    std::string heard;
    FileDescriptor moved;
    acceptor.identify_from(polls.data(), [&](FileDescriptor &connection) {
        char byte = 0;
        CHECK_EQ(recv(connection.number(), &byte, 1, 0), ssize_t{1});
        heard += byte;
        if (byte == 'b') moved = std::move(connection);
        return byte == 'a';
    });
    CHECK_EQ(heard, std::string("abc"));
    CHECK_EQ(acceptor.size(), 2U);
    for (size_t caller = 0; caller < 4; caller++) CHECK_EQ(door.is_closed(caller), caller == 3);
}

void a_lack_of_descriptors_costs_the_oldest_its_place() {
    Door door;
    Acceptor acceptor(8);
    for (int i = 0; i < 3; i++) door.knock();
    for (int i = 0; i < 2; i++) CHECK_OK(acceptor.accept_at(door.listener, all));
    {
        const DescriptorLimit limit(DescriptorLimit::with_spare(0));
        CHECK_OK(acceptor.accept_at(door.listener, all));
        CHECK_EQ(acceptor.size(), 1U);
    }
    CHECK(door.is_closed(0) && !door.is_closed(1));
    CHECK_OK(acceptor.accept_at(door.listener, all));
    CHECK_EQ(acceptor.size(), 2U);
    CHECK(is_out_of_descriptors(EMFILE) && is_out_of_descriptors(ENFILE));
    CHECK(!is_out_of_descriptors(EAGAIN));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_oldest_gives_way),
        QTEST(who_may_not_enter_is_turned_away),
        QTEST(who_speaks_is_identified),
        QTEST(a_lack_of_descriptors_costs_the_oldest_its_place),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
