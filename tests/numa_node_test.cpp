// topology/numa_node: the node that has all CPUs of a thread, as Linux's files say it.
#include "qtest.hpp"

#include "topology/numa_node.hpp"

#include <filesystem>
#include <fstream>

using namespace qccl;

namespace {

using Numbers = std::vector<uint32_t>;

// /sys/devices/system/node of a machine whose nodes have these CPUs.
class Machine {
public:
    Machine(const std::string &online, const std::vector<std::string> &cpus_of_nodes) {
        char name[] = "/tmp/qccl_nodes_XXXXXX";
        CHECK(mkdtemp(name) != nullptr);
        folder_ = name;
        std::ofstream(folder_ + "/online") << online << "\n";
        for (size_t node = 0; node < cpus_of_nodes.size(); node++) {
            const std::string path = folder_ + "/node" + std::to_string(node);
            std::filesystem::create_directory(path);
            std::ofstream(path + "/cpulist") << cpus_of_nodes[node] << "\n";
        }
    }
    ~Machine() { std::filesystem::remove_all(folder_); }
    std::optional<uint32_t> node_of(const Numbers &cpus) const {
        return numa_node_of(cpus, folder_);
    }

private:
    std::string folder_;
};

void lists_are_read() {
    CHECK(parse_number_list("0-3,8\n") == Numbers({0, 1, 2, 3, 8}));
    CHECK(parse_number_list("5") == Numbers({5}));
    CHECK(parse_number_list("\n") == Numbers());
    for (const char *text : {"a", "1-", "3-1", "1,", ",1", "1;2", "-1", "0-99999999"})
        CHECK(!parse_number_list(text));
}

void a_thread_has_the_node_that_has_its_cpus() {
    const Machine machine("0-1", {"0-3,8-11", "4-7,12-15"});
    CHECK(machine.node_of({1}) == 0U);
    CHECK(machine.node_of({4, 12, 15}) == 1U);
    CHECK(machine.node_of({8, 9}) == 0U);
}

void who_is_not_bound_has_none() {
    const Machine machine("0-1", {"0-3", "4-7"});
    CHECK(!machine.node_of({3, 4}));
    CHECK(!machine.node_of({}));
    CHECK(!machine.node_of({9}));
    CHECK(!Machine("0", {"0-7"}).node_of({1})); // of one node there is nothing to say
    CHECK(!numa_node_of({1}, "/nowhere"));
    (void)numa_node_here();
}

// Of memory alone: no CPU is in it.
void nodes_without_processors_are_passed_over() {
    const Machine machine("0-2", {"", "0-3", "4-7"});
    CHECK(machine.node_of({0, 1}) == 1U);
    CHECK(machine.node_of({7}) == 2U);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(lists_are_read),
        QTEST(a_thread_has_the_node_that_has_its_cpus),
        QTEST(who_is_not_bound_has_none),
        QTEST(nodes_without_processors_are_passed_over),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
