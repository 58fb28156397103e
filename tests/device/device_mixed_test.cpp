// Tests groups and layers on communicators of hosts and emulated GPUs, whose ranks have to cut and
// compare calls alike.
#include "device_ranks.hpp"

#include <array>

using namespace qtest;

namespace {

using Devices = std::vector<const char *>;

const std::array<Devices, 3> mixes{Devices{"emulated:0", "host"}, Devices{"host", "emulated:1"},
                                   Devices{"host", "emulated:0", "host", "emulated:1"}};

qcclResult_t all_reduce(RankValues &values, size_t count, qcclComm_t comm,
                        const qcclCollConfig_t *config) {
    return qcclAllReduceConfig(values.data(), values.data(), count, qcclFloat32, qcclSum, comm,
                               QCCL_STREAM_SYNC, config);
}

// Hosts alone fuse such calls into one.
void groups_make_the_same_calls_on_all_ranks() {
    for (const Devices &devices : mixes)
        for (const char *const spec : {"none", "int8:min=0"}) {
            const CodecHandle codec(*parse_codec(spec), 0);
            qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
            config.codec = codec.get();
            Comms(devices).on_each([&](uint32_t rank, qcclComm_t comm) {
                RankValues first(devices[rank], 100, 1), second(devices[rank], 40, 1),
                    third(devices[rank], 100, 1);
                check(qcclGroupStart());
                check(all_reduce(first, 100, comm, &config));
                check(all_reduce(second, 40, comm, &config));
                check(all_reduce(third, 100, comm, &config));
                check(qcclGroupEnd());
                const auto sum = static_cast<float>(devices.size());
                CHECK(first.are(sum) && second.are(sum) && third.are(sum));
            });
        }
}

qcclResult_t reduce_layers(RankValues &values, std::array<size_t, 2> counts, qcclComm_t comm) {
    qcclLayer_t layers[2] = {};
    layers[0].count = counts[0];
    layers[1].count = counts[1];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.layers = layers;
    config.nlayers = 2;
    return all_reduce(values, counts[0] + counts[1], comm, &config);
}

void layers_are_alike_on_all_ranks() {
    for (const Devices &devices : mixes)
        Comms(devices).on_each([&](uint32_t rank, qcclComm_t comm) {
            RankValues values(devices[rank], 3000, 1);
            check(reduce_layers(values, {1000, 2000}, comm));
            CHECK(values.are(static_cast<float>(devices.size())));
        });
}

// The first layers are alike, so only the hash of all layers tells the ranks apart at once.
void other_layers_are_refused_on_gpus_too() {
    for (const Devices &devices :
         {Devices{"emulated:0", "emulated:1"}, Devices{"emulated:0", "host"}})
        Comms(devices).on_each([&](uint32_t rank, qcclComm_t comm) {
            RankValues values(devices[rank], 3000, 1);
            const size_t second = rank == 0 ? 2000 : 1900;
            CHECK_EQ(reduce_layers(values, {1000, second}, comm), qcclMismatch);
            const std::string text = qcclGetLastError(comm);
            if (text.find("layers[0]") == std::string::npos)
                throw Failure{"the first layer does not say it: " + text};
        });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(groups_make_the_same_calls_on_all_ranks),
        QTEST(layers_are_alike_on_all_ranks),
        QTEST(other_layers_are_refused_on_gpus_too),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
