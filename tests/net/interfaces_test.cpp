// Tests lib/net/addresses: which addresses a list of interfaces stands for, and that ranks meet
// although some of the addresses lead nowhere. The networks are made for the test, where that is
// allowed.
#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"
#include "net/addresses.hpp"

#include <cstring>
#include <exception>
#include <future>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace kit;

static std::string chosen(const std::string &wanted) {
    const auto endpoints = choose_endpoints(wanted);
    if (!endpoints) return endpoints.error().text;
    std::string all;
    for (const Endpoint &endpoint : *endpoints) {
        const std::string one = text(endpoint);
        all.append(all.empty() ? "" : " ").append(one.substr(0, one.rfind(':')));
    }
    return all;
}

static bool shell(const std::string &commands) {
    const std::string quietly = std::string("exec 2>/dev/null; set -e; ").append(commands);
    return std::system(quietly.c_str()) == 0;
}

// Runs `body` on a thread in a network of its own, which `commands` sets up. Prints that the test
// is skipped if there can be no such network.
static void in_a_network(const std::string &commands, const std::function<void()> &body) {
    std::exception_ptr failed;
    bool is_made = false;
    std::thread([&] {
        is_made = unshare(CLONE_NEWNET) == 0 &&
                  shell(std::string("ip link set lo up; ").append(commands));
        if (!is_made) return;
        try {
            body();
        } catch (const qtest::Failure &) {
            failed = std::current_exception();
        }
    }).join();
    if (!is_made) print_message("skipped: networks can be made by root alone, with iproute2\n");
    if (failed) std::rethrow_exception(failed);
}

// Returns the commands for an interface whose other end has no address.
static std::string cable(const std::string &name, const std::vector<std::string> &addresses) {
    std::string commands = std::string("ip link add name ").append(name);
    commands.append(" type veth peer name to_").append(name).append(";");
    for (const char *end : {"to_", ""})
        commands.append("ip link set ").append(end).append(name).append(" addrgenmode none up;");
    for (const std::string &address : addresses) {
        commands.append("ip addr add ").append(address).append(" dev ").append(name);
        commands.append(address.find(':') != std::string::npos ? " nodad;" : ";");
    }
    return commands;
}

static const std::string four_interfaces =
    cable("eth1", {"10.1.0.1/24", "fd01::1/64"}) + cable("eth10", {"10.10.0.1/24"}) +
    cable("ib0", {"fd02::1/64", "10.2.0.1/24", "fe80::2/64"}) + cable("docker0", {"172.17.0.1/16"});

static void lists_name_interfaces() {
    in_a_network(four_interfaces, [] {
        CHECK_EQ(chosen(""), "10.1.0.1 10.10.0.1 10.2.0.1 172.17.0.1 [fd01::1] [fd02::1]");
        CHECK_EQ(chosen("ib0"), "10.2.0.1 [fd02::1] [fe80::2%ib0]");
        CHECK_EQ(chosen("ib0,eth"),
                 "10.2.0.1 [fd02::1] [fe80::2%ib0] 10.1.0.1 10.10.0.1 [fd01::1]");
        CHECK_EQ(chosen("eth1"), "10.1.0.1 [fd01::1]"); // exact names come first
        CHECK_EQ(chosen("nosuch,eth10"), "10.10.0.1");
        CHECK_EQ(chosen("^docker,eth1"), "10.10.0.1 10.2.0.1 [fd02::1]");
        CHECK_EQ(chosen("^eth,=ib,docker"), "10.2.0.1 [fd02::1]");
        CHECK_EQ(chosen("=eth"), "QCCL_SOCKET_IFNAME: \"=eth\" is neither an address nor an "
                                 "interface that is up (there are: docker0, "
                                 "eth1, eth10, ib0, lo)");
        CHECK_EQ(chosen("10.1.0.1,ib0,fd01::1"),
                 "10.1.0.1 10.2.0.1 [fd02::1] [fe80::2%ib0] [fd01::1]");
        CHECK_EQ(chosen("lo"), "127.0.0.1 [::1]");
        CHECK_EQ(chosen("eth1,^ib0"),
                 "QCCL_SOCKET_IFNAME: \"eth1,^ib0\": ^ stands before the whole list, and once");
        CHECK_EQ(chosen("x,y").find(
                     "QCCL_SOCKET_IFNAME: \"x,y\" names neither an address nor an interface"),
                 size_t{0});
        CHECK_EQ(chosen("^eth,ib,docker")
                     .find("QCCL_SOCKET_IFNAME: \"^eth,ib,docker\" leaves no interface"),
                 size_t{0});
        CHECK_EQ(chosen("eth1,0.0.0.0"),
                 "QCCL_SOCKET_IFNAME: \"0.0.0.0\" is no address of one interface");
    });
    in_a_network(cable("net0", {"fe80::5/64"}), [] { CHECK_EQ(chosen(""), "[fe80::5%net0]"); });
    in_a_network("true", [] { CHECK_EQ(chosen(""), "127.0.0.1"); });
}

static void ranks_meet_on_every_interface() {
    in_a_network(four_interfaces, [] {
        for (const char *wanted : {"", "ib0,eth", "lo", "^docker", "fd01::1", "::1"}) {
            RendezvousOptions some = options();
            some.interface = wanted;
            const UniqueId id = make_id(some);
            const auto fields = unpack(id);
            CHECK_OK(fields);
            // Each of the endpoints alone leads to the server.
            const auto size = static_cast<uint32_t>(fields->endpoints.size());
            const auto done = crowd(size, [&](uint32_t rank) {
                const UniqueId mine = pack({{fields->endpoints[rank]}, fields->secret});
                return join_and_exchange(mine, size, rank);
            });
            // That includes the link-local one, because no other interface could lead to it.
            for (const Done &one : done) CHECK_OK(one);
        }
    });
}

// The endpoints: an address that does not answer, a foreign server, a port without a listener, and
// the right server.
static void endpoints_are_tried_in_turn() {
    in_a_network(four_interfaces + "ip addr add 10.3.0.1/24 dev lo;", [] {
        RendezvousOptions some = options();
        some.interface = "10.3.0.1";
        const UniqueId id = make_id(some);
        auto fields = unpack(id);
        CHECK_OK(fields);
        const Endpoint right = fields->endpoints.front();
        std::vector<Endpoint> wrong;
        for (const char *address : {"10.1.0.77", "10.10.0.1", "127.0.0.1"})
            wrong.push_back(*parse_address(address));
        for (Endpoint &endpoint : wrong) endpoint.port = right.port;
        std::vector<Endpoint> foreign{wrong[1]};
        auto listeners = open_listeners(foreign);
        CHECK_OK(listeners);
        CHECK_OK(
            serve_rendezvous(std::move(*listeners), Secret{}, kit::options(1s), Afterwards::tell));

        fields->endpoints = {wrong[0], wrong[1], wrong[2], right};
        const Timer timer;
        CHECK_OK(join_and_exchange(pack(*fields), 1, 0));
        CHECK(timer.seconds() < 4);

        fields->endpoints = {wrong[2], wrong[1]};
        const Done done = join_and_exchange(pack(*fields), 1, 0);
        CHECK(contains(done, "cannot reach the rendezvous at 127.0.0.1:"));
        fields->endpoints = {wrong[0], wrong[2]};
        CHECK(contains(join_and_exchange(pack(*fields), 1, 0, options(1500ms)), "cannot reach"));
    });
}

// Two networks, connected by a cable only, stand for two machines. The scopes of interfaces have
// other numbers in each.
static void link_local_addresses_lead_to_another_machine() {
    std::promise<pid_t> other_machine;
    std::promise<UniqueId> id;
    std::promise<void> is_over;
    std::thread joiner([&] {
        const bool is_alone = unshare(CLONE_NEWNET) == 0;
        other_machine.set_value(is_alone ? static_cast<pid_t>(syscall(SYS_gettid)) : -1);
        UniqueId mine;
        try {
            mine = id.get_future().get();
        } catch (const std::future_error &) { // the main thread has no network either
            return;
        }
        const bool is_up = shell("ip link set cable1 addrgenmode none up;"
                                 "ip addr add fe80::88/64 dev cable1 nodad");
        if (is_up) (void)join_and_exchange(mine, 2, 1, options(10s));
        is_over.set_value();
    });
    const pid_t other = other_machine.get_future().get();
    const std::string way = std::string("ip link add name x0 type veth peer name x1;"
                                        "ip link add name cable0 type veth peer name cable1;"
                                        "ip link set cable0 addrgenmode none up;"
                                        "ip addr add fe80::77/64 dev cable0 nodad;"
                                        "ip link set cable1 netns ")
                                .append(std::to_string(other));
    bool has_run = false;
    std::exception_ptr failed;
    try {
        in_a_network(other > 0 ? way : "false", [&] {
            has_run = true;
            RendezvousOptions some = options();
            some.interface = "cable0";
            CHECK_EQ(chosen("cable0"), "[fe80::77%cable0]");
            const UniqueId made = make_id(some);
            id.set_value(made);
            // The rank on the server's machine does not know the scope either.
            CHECK_OK(join_and_exchange(made, 2, 0, options(10s)));
            is_over.get_future().wait();
        });
    } catch (const qtest::Failure &) {
        failed = std::current_exception();
    }
    if (!has_run) id = {};
    joiner.join();
    if (failed) std::rethrow_exception(failed);
}

static void addresses_may_have_a_scope() {
    CHECK_EQ(text(*parse_address("fe80::1%lo")), "[fe80::1%lo]:0");
    CHECK_EQ(text(*parse_address("10.0.0.1")), "10.0.0.1:0");
    for (const char *wrong : {"", "10.0.0", "fe80::1%nosuch0", "eth0", "::g"})
        CHECK(!parse_address(wrong));
    CHECK_EQ(text(std::vector{*parse_address("::1"), *parse_address("10.0.0.1")}),
             "[::1]:0 or 10.0.0.1:0");
    CHECK_EQ(text(std::vector<Endpoint>(5, *parse_address("::1"))), "[::1]:0, [::1]:0 or 3 more");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(addresses_may_have_a_scope),
        QTEST(lists_name_interfaces),
        QTEST(ranks_meet_on_every_interface),
        QTEST(endpoints_are_tried_in_turn),
        QTEST(link_local_addresses_lead_to_another_machine),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
