// Tests groups and layers on communicators of hosts and emulated GPUs, whose ranks have to cut and
// compare calls alike.
#include "device_ranks.hpp"

#include <array>
#include <memory>

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

struct NoisyLayer {
    size_t count;
    const char *codec;
};
// Hosts run the lossless ones as one call, before the others.
constexpr std::array<NoisyLayer, 7> noisy_layers{{{100, "none"},
                                                  {2000, "int4:round=stochastic,min=0"},
                                                  {50, "none"},
                                                  {3000, "shared:bits=4,min=0"},
                                                  {64, "none"},
                                                  {1500, "terngrad:bucket=100,min=0"},
                                                  {2500, "int8:round=stochastic,min=0"}}};
constexpr size_t noisy_count = 100 + 2000 + 50 + 3000 + 64 + 1500 + 2500;

std::vector<float> inputs_of(uint32_t rank) {
    std::vector<float> values(noisy_count);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = static_cast<float>((i * 37 + rank * 101) % 997) / 997 - 0.5F;
    return values;
}

// Sums the layers by one call, or each by a call of its own.
void sum_layers(RankValues &values, qcclComm_t comm, bool is_one_call) {
    std::vector<std::unique_ptr<CodecHandle>> codecs;
    std::array<qcclLayer_t, noisy_layers.size()> layers{};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.algorithm = "ring";
    size_t at = 0;
    for (size_t i = 0; i < layers.size(); i++) {
        codecs.push_back(std::make_unique<CodecHandle>(*parse_codec(noisy_layers[i].codec), 7));
        layers[i].count = noisy_layers[i].count;
        layers[i].codec = config.codec = codecs[i]->get();
        if (is_one_call) continue;
        float *const layer = values.data() + at;
        check(qcclAllReduceConfig(layer, layer, layers[i].count, qcclFloat32, qcclSum, comm,
                                  QCCL_STREAM_SYNC, &config));
        at += layers[i].count;
    }
    if (!is_one_call) return;
    config.codec = nullptr;
    config.layers = layers.data();
    config.nlayers = layers.size();
    config.layer_min_size = 1;
    check(all_reduce(values, noisy_count, comm, &config));
}

// Returns rank 1's sums. The second ones come after calls that hosts have fused.
std::vector<float> sums_with_noise(const Devices &devices, bool is_one_call) {
    std::vector<float> sums;
    Comms(devices).on_each([&](uint32_t rank, qcclComm_t comm) {
        for (int i = 0; i < 2; i++) {
            RankValues values(devices[rank], noisy_count, 0);
            values.write(inputs_of(rank));
            sum_layers(values, comm, is_one_call);
            if (rank != 1) continue;
            const auto got = values.read();
            sums.insert(sums.end(), got.begin(), got.end());
        }
    });
    return sums;
}

// Noise depends on the number of a call, which hosts and GPUs have to count alike.
void noise_of_layers_is_that_of_their_own_calls() {
    const Devices hosts{"host", "host"};
    const auto expected = sums_with_noise(hosts, false);
    CHECK(sums_with_noise(hosts, true) == expected);
    for (const Devices &devices : {Devices{"emulated:0", "emulated:1"}, mixes[0], mixes[1]}) {
        CHECK(sums_with_noise(devices, false) == expected);
        CHECK(sums_with_noise(devices, true) == expected);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(groups_make_the_same_calls_on_all_ranks),
        QTEST(layers_are_alike_on_all_ranks),
        QTEST(other_layers_are_refused_on_gpus_too),
        QTEST(noise_of_layers_is_that_of_their_own_calls),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
