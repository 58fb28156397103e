// Tests groups of one thread that has the communicators of several ranks, of emulated GPUs and of
// hosts: calls that block go on side by side, and calls on streams keep their order.
#include "device_ranks.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <list>
#include <optional>

using namespace qtest;

namespace {

using Devices = std::vector<const char *>;

const std::array<Devices, 5> mixes{
    Devices{"emulated:0", "emulated:1"}, Devices{"emulated:2", "emulated:2", "emulated:2"},
    Devices{"emulated:0", "host"}, Devices{"host", "emulated:1", "emulated:0"},
    Devices{"host", "emulated:0", "host", "emulated:1"}};

// The ranks of a communicator, all of which this thread has.
class OwnRanks {
public:
    explicit OwnRanks(const Devices &devices) : devices_(devices), comms_(devices) {}

    size_t size() const { return comms_.size(); }
    qcclComm_t operator[](size_t rank) const { return comms_[rank]; }
    // Runs the body for each rank, in a group.
    void in_group(const std::function<void(size_t rank, qcclComm_t comm)> &body) const {
        check(qcclGroupStart());
        for (size_t rank = 0; rank < size(); rank++) body(rank, comms_[rank]);
        check(qcclGroupEnd());
    }
    // Adds values for each rank, value(rank) of them alike.
    using Values = std::list<RankValues>;
    template <class Value> Values values(size_t count, Value value) const {
        Values all;
        for (size_t rank = 0; rank < size(); rank++)
            all.emplace_back(devices_[rank], count, value(rank));
        return all;
    }
    Values ones(size_t count) const {
        return values(count, [](size_t) { return 1.0F; });
    }
    float sum() const { return static_cast<float>(size()); }

private:
    const Devices devices_;
    const Comms comms_;
};

RankValues &of(OwnRanks::Values &values, size_t rank) {
    return *std::next(values.begin(), static_cast<ptrdiff_t>(rank));
}

qcclResult_t all_reduce(RankValues &values, size_t count, qcclComm_t comm, qcclStream_t stream,
                        const qcclCollConfig_t *config = nullptr) {
    return qcclAllReduceConfig(values.data(), values.data(), count, qcclFloat32, qcclSum, comm,
                               stream, config);
}

// Codecs may lose as much of a value as this.
constexpr float most_lost = 0.01F;

void check_sums(OwnRanks::Values &values, float sum, float lost = 0) {
    for (RankValues &each : values)
        for (const float value : each.read()) CHECK(std::abs(value - sum) <= lost * sum);
}

void collectives_wait_side_by_side() {
    for (const Devices &devices : mixes)
        for (const char *const spec : {"none", "int8:min=0", "shared:bits=8,min=0"}) {
            const CodecHandle codec(*parse_codec(spec), 0);
            qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
            config.codec = codec.get();
            const OwnRanks ranks(devices);
            auto small = ranks.ones(100), large = ranks.ones(100'000);
            auto sent = ranks.values(10, [](size_t rank) { return rank == 1 ? 7.0F : 0.0F; });
            ranks.in_group([&](size_t rank, qcclComm_t comm) {
                check(all_reduce(of(small, rank), 100, comm, QCCL_STREAM_SYNC, &config));
                check(qcclBarrier(comm, QCCL_STREAM_SYNC));
                check(all_reduce(of(large, rank), 100'000, comm, QCCL_STREAM_SYNC, &config));
                void *const values = of(sent, rank).data();
                check(qcclBroadcast(values, values, 10, qcclFloat32, 1, comm, QCCL_STREAM_SYNC));
            });
            check_sums(small, ranks.sum(), most_lost);
            check_sums(large, ranks.sum(), most_lost);
            check_sums(sent, 7);
        }
}

// Ranks of two communicators, whose calls the group has in opposite orders.
void communicators_wait_side_by_side() {
    const OwnRanks some(mixes[0]), others(mixes[3]);
    auto first = some.ones(1000), second = others.ones(2000);
    check(qcclGroupStart());
    for (size_t rank = 0; rank < some.size(); rank++)
        check(all_reduce(of(first, rank), 1000, some[rank], QCCL_STREAM_SYNC));
    for (size_t rank = others.size(); rank-- > 0;)
        check(all_reduce(of(second, rank), 2000, others[rank], QCCL_STREAM_SYNC));
    check(qcclGroupEnd());
    check_sums(first, some.sum());
    check_sums(second, others.sum());
}

void layers_wait_side_by_side() {
    qcclLayer_t layers[2] = {};
    layers[0].count = 1000;
    layers[1].count = 2000;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.layers = layers;
    config.nlayers = 2;
    for (const Devices &devices : mixes) {
        const OwnRanks ranks(devices);
        auto values = ranks.ones(3000);
        ranks.in_group([&](size_t rank, qcclComm_t comm) {
            check(all_reduce(of(values, rank), 3000, comm, QCCL_STREAM_SYNC, &config));
        });
        check_sums(values, ranks.sum());
    }
}

// Every rank sends its number to the next one.
void check_ring(const OwnRanks &ranks, bool both_at_once) {
    auto sent = ranks.values(500, [](size_t rank) { return static_cast<float>(rank); });
    auto received = ranks.values(500, [](size_t) { return -1.0F; });
    auto summed = ranks.ones(300);
    const auto size = static_cast<int>(ranks.size());
    ranks.in_group([&](size_t number, qcclComm_t comm) {
        const int rank = static_cast<int>(number);
        const int to = (rank + 1) % size, from = (rank + size - 1) % size;
        const void *const send = of(sent, number).data();
        void *const recv = of(received, number).data();
        const qcclStream_t sync = QCCL_STREAM_SYNC;
        if (both_at_once) {
            check(qcclSendRecv(send, 500, to, recv, 500, from, qcclFloat32, comm, sync));
        } else {
            check(qcclRecv(recv, 500, qcclFloat32, from, comm, sync));
            check(qcclSend(send, 500, qcclFloat32, to, comm, sync));
        }
        check(all_reduce(of(summed, number), 300, comm, sync));
    });
    for (size_t rank = 0; rank < ranks.size(); rank++)
        CHECK(of(received, rank).are(static_cast<float>((rank + ranks.size() - 1) % ranks.size())));
    check_sums(summed, ranks.sum());
}

void messages_wait_side_by_side() {
    for (const Devices &devices : mixes)
        for (const bool both_at_once : {false, true}) check_ring(OwnRanks(devices), both_at_once);
}

// A stream of a rank's device. The default stream of a GPU and the thread's own have fixed handles.
class OwnStream {
public:
    explicit OwnStream(const char *device) : gpu_(gpu_number(device)), is_made_(true) {
        if (!gpu_) {
            check(qcclStreamCreate(&stream_));
            return;
        }
        CHECK_EMULATED(qcclEmulatedSetDevice(*gpu_));
        qcclEmulatedStream_t made = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&made));
        stream_ = made;
    }
    OwnStream(const char *device, qcclEmulatedStream_t fixed)
        : gpu_(gpu_number(device)), is_made_(false), stream_(fixed) {}
    ~OwnStream() {
        if (!is_made_) return;
        if (gpu_)
            (void)qcclEmulatedStreamDestroy(static_cast<qcclEmulatedStream_t>(stream_));
        else
            (void)qcclStreamDestroy(stream_);
    }
    OwnStream(const OwnStream &) = delete;
    qcclStream_t get() const { return stream_; }
    void synchronize() const {
        if (!gpu_) return check(qcclStreamSynchronize(stream_));
        CHECK_EMULATED(qcclEmulatedSetDevice(*gpu_));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(static_cast<qcclEmulatedStream_t>(stream_)));
    }

private:
    const std::optional<int> gpu_;
    const bool is_made_;
    qcclStream_t stream_ = nullptr;
};

// One rank blocks in a call that the other one has on a stream, and the other way round.
void check_streams_beside_blocking_calls(const Devices &devices, const OwnStream &of_first,
                                         const OwnStream &of_second) {
    const OwnRanks ranks(devices);
    std::array<OwnRanks::Values, 3> calls{ranks.ones(1000), ranks.ones(1000), ranks.ones(1000)};
    ranks.in_group([&](size_t rank, qcclComm_t comm) {
        const qcclStream_t own = rank == 0 ? of_first.get() : of_second.get();
        for (size_t i = 0; i < calls.size(); i++)
            check(
                all_reduce(of(calls[i], rank), 1000, comm, i % 2 == rank ? QCCL_STREAM_SYNC : own));
    });
    of_first.synchronize();
    of_second.synchronize();
    for (OwnRanks::Values &values : calls) check_sums(values, ranks.sum());
}

// Streams of two GPUs may have one handle.
void streams_go_on_beside_blocking_calls() {
    for (const Devices &devices : {mixes[0], mixes[2], Devices{"host", "host"}})
        check_streams_beside_blocking_calls(devices, OwnStream(devices[0]), OwnStream(devices[1]));
    const Devices &gpus = mixes[0];
    for (const qcclEmulatedStream_t fixed : {qcclEmulatedStream_t{}, qcclEmulatedStreamPerThread})
        check_streams_beside_blocking_calls(gpus, OwnStream(gpus[0], fixed),
                                            OwnStream(gpus[1], fixed));
}

void stay_for_a_while(void *) { std::this_thread::sleep_for(300ms); }

// A stream has work before its call, for which the only thread of the process waits meanwhile.
void a_blocking_call_waits_for_a_stream_that_is_late() {
    const OwnRanks ranks(mixes[0]);
    const OwnStream late(mixes[0][0]);
    for (const bool in_group : {true, false}) {
        auto values = ranks.ones(1000);
        CHECK_EMULATED(qcclEmulatedLaunchHostFunc(static_cast<qcclEmulatedStream_t>(late.get()),
                                                  stay_for_a_while, nullptr));
        const auto sum = [&](size_t rank, qcclComm_t comm) {
            check(all_reduce(of(values, rank), 1000, comm,
                             rank == 0 ? late.get() : QCCL_STREAM_SYNC));
        };
        if (in_group) {
            ranks.in_group(sum);
        } else {
            sum(0, ranks[0]);
            sum(1, ranks[1]);
        }
        late.synchronize();
        check_sums(values, ranks.sum());
    }
}

// The thread waits for a call that is on no stream.
void a_call_that_nobody_makes_is_found() {
    const OwnRanks ranks(mixes[0]);
    const OwnStream stream(mixes[0][0]);
    auto values = ranks.ones(1000);
    check(all_reduce(of(values, 0), 1000, ranks[0], stream.get()));
    check(all_reduce(of(values, 1), 1000, ranks[1], QCCL_STREAM_SYNC));
    stream.synchronize();
    CHECK_EQ(all_reduce(of(values, 1), 1000, ranks[1], QCCL_STREAM_SYNC), qcclInvalidUsage);
}

// The calls after one that fails are left out, also those on streams.
void a_failure_ends_the_group() {
    for (const Devices &devices : mixes) {
        const OwnRanks ranks(devices);
        auto values = ranks.ones(1000);
        const qcclStream_t last = gpu_number(devices[1]) ? nullptr : QCCL_STREAM_SYNC;
        check(qcclGroupStart());
        for (size_t rank = 0; rank < ranks.size(); rank++) {
            const size_t count = rank == 1 ? 900 : 1000;
            check(all_reduce(of(values, rank), count, ranks[rank], QCCL_STREAM_SYNC));
            check(all_reduce(of(values, rank), 1000, ranks[rank],
                             rank == 1 ? last : QCCL_STREAM_SYNC));
        }
        CHECK_EQ(qcclGroupEnd(), qcclMismatch);
        for (size_t rank = 0; rank < ranks.size(); rank++)
            CHECK_EQ(async_error(ranks[rank]), qcclMismatch);
    }
}

} // namespace

int main() {
    setenv("QCCL_TIMEOUT", "20", 1);
    const CMUnitTest tests[] = {
        QTEST(collectives_wait_side_by_side),
        QTEST(communicators_wait_side_by_side),
        QTEST(layers_wait_side_by_side),
        QTEST(messages_wait_side_by_side),
        QTEST(streams_go_on_beside_blocking_calls),
        QTEST(a_blocking_call_waits_for_a_stream_that_is_late),
        QTEST(a_call_that_nobody_makes_is_found),
        QTEST(a_failure_ends_the_group),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
