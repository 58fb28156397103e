// Tests RankTopology for ranks with emulated GPUs: each rank is placed where the machine's topology
// has its GPU, and the slots decide the ring order.
#include "device_ranks.hpp"
#include "tests/kit/hwloc_files.hpp"

#include <cstdlib>
#include <fstream>

#include <unistd.h>

using namespace qtest;

namespace {

constexpr int buses[] = {0x03, 0x43, 0x04, 0x44}; // alternates between the two packages

std::string machine_with_gpus() {
    using namespace hwloc_file_parts;
    const auto gpu = [](const std::string &number, const std::string &bus) {
        return bridge("6" + number, "0000:00:0" + number + ".0", bus + "-" + bus, "1", "31.5",
                      pci("4" + number, "0000:" + bus + ":00.0",
                          "0302 [10de:2330] [10de:16c1] a1 00", "31.5", ""));
    };
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
           "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\"" +
           cpus("0x00000003", "0x3") +
           " allowed_cpuset=\"0x00000003\" allowed_nodeset=\"0x3\" gp_index=\"1\">" +
           package("0", "0x00000001", "0x1",
                   pu("0", "0x00000001", "0x1") +
                       host_bridge("70", "00-04", gpu("1", "03") + gpu("2", "04"))) +
           package("1", "0x00000002", "0x2",
                   pu("1", "0x00000002", "0x2") +
                       host_bridge("71", "40-44", gpu("3", "43") + gpu("4", "44"))) +
           "</object>\n</topology>\n";
}

std::string explained(qcclComm_t comm) {
    size_t bytes = 0;
    CHECK_EQ(qcclExplain(comm, "all_reduce bytes=1M", nullptr, &bytes), qcclSuccess);
    std::string text(bytes, '\0');
    CHECK_EQ(qcclExplain(comm, "all_reduce bytes=1M", text.data(), &bytes), qcclSuccess);
    return text;
}

bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

void gpus_that_are_in_no_slot_follow_their_ranks() {
    GpuRanks ranks({"emulated:0", "emulated:1", "emulated:2", "emulated:3"});
    CHECK(!contains(explained(ranks[0].comm), "rings go by"));
}

void slots_decide_the_ring_order() {
    for (int gpu = 0; gpu < 4; gpu++) qcclEmulatedPlugIn(gpu, 0, buses[gpu], 0);
    GpuRanks ranks({"emulated:0", "emulated:1", "emulated:2", "emulated:3"});
    const std::string text = explained(ranks[2].comm);
    if (!contains(text, "rings go by 0 2 1 3\n") && !contains(text, "rings go by 0 2 3 1\n"))
        throw Failure{text};
    CHECK(contains(text, "  2 nodes with 2 and 2 ranks\n"));
    ranks.on_each([&](size_t, GpuRank &rank) {
        GpuFloats values(1000, 1);
        check(all_reduce(values, rank, QCCL_STREAM_SYNC));
        CHECK(values.are(4));
    });
    for (int gpu = 0; gpu < 4; gpu++) qcclEmulatedPlugIn(gpu, -1, -1, -1);
}

} // namespace

int main() {
    char path[] = "/tmp/qccl_hwloc_XXXXXX";
    close(mkstemp(path));
    std::ofstream(path) << machine_with_gpus();
    setenv("HWLOC_XMLFILE", path, 1);
    // The process reads its machine's topology once, so the test with slots runs first.
    const CMUnitTest tests[] = {
        QTEST(slots_decide_the_ring_order),
        QTEST(gpus_that_are_in_no_slot_follow_their_ranks),
    };
    const int failures = cmocka_run_group_tests(tests, nullptr, nullptr);
    unlink(path);
    return failures;
}
