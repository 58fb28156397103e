// Tests the codec shared on emulated GPUs of both widths: calls have the bytes of the slow twin and
// of communicators of hosts, with every collective of the codec, type and block, with ranks of
// hosts among them, from streams, prepared calls, groups and graphs, and with states.
#include "tests/kit/case_table.hpp"
#include "device_ranks.hpp"

#include <array>
#include <cmath>
#include <memory>

using namespace qtest;

namespace {

using Devices = std::vector<const char *>;

struct SharedShape {
    Collective collective;
    DataType type;
    RedOp op;
    const char *codec;
    uint64_t count;
};

const char *algorithm_for(Collective collective, size_t number) {
    std::vector<const char *> possible;
    for (const char *const name : {"direct", "ring", "tree", "oneshot"})
        if (parse_algorithm(name)->has(collective)) possible.push_back(name);
    return possible[number % possible.size()];
}

TwinCall call_of(const SharedShape &shape, uint32_t ranks, size_t number) {
    return {.collective = shape.collective,
            .algorithm = algorithm_for(shape.collective, number),
            .type = shape.type,
            .op = shape.op,
            .codec = *parse_codec(shape.codec),
            .count = shape.count,
            .ranks = ranks,
            .root = 1};
}

std::vector<SharedShape> all_shapes() {
    std::vector<SharedShape> shapes;
    constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                          Collective::reduce};
    constexpr const char *codecs[] = {"shared",
                                      "shared:bits=8,block=1",
                                      "shared:bits=2,block=7",
                                      "shared:bits=6,block=128",
                                      "shared:bits=5,block=3000",
                                      "shared:bits=3,block=16,min=0"};
    constexpr DataType types[] = {DataType::float32,   DataType::float16,    DataType::bfloat16,
                                  DataType::float64,   DataType::float8e4m3, DataType::float8e5m2,
                                  DataType::complex64, DataType::complex128};
    size_t number = 0;
    for (const DataType type : types)
        for (const char *const codec : codecs) {
            const uint64_t counts[] = {0, 1, 40, 1037, 7000};
            shapes.push_back({collectives[number % 3], type,
                              number % 2 == 0 ? RedOp::sum : RedOp::avg, codec,
                              counts[number % 5]});
            number++;
        }
    return shapes;
}

golden::Kind kind_of(size_t number) {
    return number % 4 == 1 ? golden::Kind::few_specials : golden::Kind::spread;
}

// Returns what a rank gets of a call, in place or not, at once or from a stream.
Bytes run_on(const char *device, const TwinCall &call, uint32_t rank, qcclComm_t comm,
             const Bytes &input, size_t number) {
    qcclEmulatedStream_t stream = nullptr;
    if (const auto gpu = gpu_number(device)) {
        CHECK_EMULATED(qcclEmulatedSetDevice(*gpu));
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&stream));
    }
    const Bytes got =
        run_on_device(call, rank, comm, input, number % 3 == 0, stream, number % 2 == 0);
    if (stream) CHECK_EMULATED(qcclEmulatedStreamDestroy(stream));
    return got;
}

// Returns what every rank gets of every call.
std::vector<std::vector<Bytes>> run_all(const Devices &devices,
                                        const std::vector<TwinCall> &calls) {
    std::vector<std::vector<Bytes>> got(devices.size());
    Comms(devices).on_each([&](uint32_t rank, qcclComm_t comm) {
        for (size_t i = 0; i < calls.size(); i++) {
            const Bytes input = make_inputs(calls[i], kind_of(i))[rank];
            got[rank].push_back(run_on(devices[rank], calls[i], rank, comm, input, i));
        }
    });
    return got;
}

void calls_have_the_slow_twins_bytes() {
    for (const Devices &devices :
         {Devices{"emulated:0", "emulated:1"}, Devices{"emulated:1", "host"},
          Devices{"emulated:0", "emulated:0", "emulated:1"},
          Devices{"host", "emulated:3", "emulated:2", "host"},
          Devices{"emulated:0", "emulated:1", "emulated:2", "emulated:3"}}) {
        const auto ranks = static_cast<uint32_t>(devices.size());
        std::vector<TwinCall> calls;
        for (const SharedShape &shape : all_shapes())
            calls.push_back(call_of(shape, ranks, calls.size()));
        const auto of_hosts = run_all(Devices(ranks, "host"), calls), got = run_all(devices, calls);
        for (size_t i = 0; i < calls.size(); i++) {
            const auto twin = slow_twin(calls[i], make_inputs(calls[i], kind_of(i)));
            for (uint32_t rank = 0; rank < ranks; rank++)
                if (got[rank][i] != twin[rank] || of_hosts[rank][i] != twin[rank])
                    throw Failure{words_of(calls[i], i % 3 == 0) + ": rank " +
                                  std::to_string(rank) + " has not the slow twin's bytes, on " +
                                  (got[rank][i] != twin[rank] ? devices[rank] : "a host")};
        }
    }
}

// ---- States, prepared calls, groups and graphs

const Devices two{"emulated:0", "emulated:1"};
constexpr size_t count = 5004;

std::vector<float> input_of(size_t rank, size_t call) {
    std::vector<float> input(count);
    for (size_t i = 0; i < count; i++)
        input[i] =
            std::sin(static_cast<float>(i + 31 * rank + 7 * call + 1)) * static_cast<float>(i % 77);
    return input;
}

// What a rank gets of some calls, and of some the state behind them.
struct Outcome {
    std::vector<std::vector<float>> sums;
    std::vector<Bytes> residuals;
    bool operator==(const Outcome &) const = default;
};

Bytes residual_of(qcclState_t state) {
    constexpr size_t header = 64;
    size_t bytes = 0;
    check(qcclStateBytes(state, &bytes));
    Bytes saved(bytes);
    check(qcclStateSave(state, saved.data(), saved.size()));
    return {saved.begin() + header, saved.end()};
}

// Averages the values of all ranks in place.
qcclResult_t average(Collective collective, float *values, size_t rank, qcclComm_t comm,
                     qcclStream_t stream, const qcclCollConfig_t &config) {
    const size_t part = count / two.size();
    if (collective == Collective::reduce_scatter)
        return qcclReduceScatterConfig(values, values + rank * part, part, qcclFloat32, qcclAvg,
                                       comm, stream, &config);
    return qcclAllReduceConfig(values, values, count, qcclFloat32, qcclAvg, comm, stream, &config);
}

// Calls of hosts, one after the other: the slow twin of the GPUs' calls below.
std::vector<Outcome> sums_of_hosts(size_t calls, bool has_state,
                                   Collective collective = Collective::all_reduce) {
    std::vector<Outcome> outcomes(two.size());
    Comms(Devices(two.size(), "host")).on_each([&](uint32_t rank, qcclComm_t comm) {
        const CodecHandle codec(*parse_codec("shared:bits=3"), 0);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.codec = codec.get();
        if (has_state) check(qcclStateCreate(&config.state, comm, count, qcclFloat32, nullptr));
        for (size_t call = 0; call < calls; call++) {
            std::vector<float> values = input_of(rank, call);
            check(average(collective, values.data(), rank, comm, QCCL_STREAM_SYNC, config));
            outcomes[rank].sums.push_back(values);
            if (has_state) outcomes[rank].residuals.push_back(residual_of(config.state));
        }
        if (has_state) check(qcclStateDestroy(config.state));
    });
    return outcomes;
}

// The calls of one rank on a GPU.
struct GpuCalls {
    GpuCalls(size_t rank, GpuRank &on, size_t calls)
        : rank_(rank), on_(on), codec_(*parse_codec("shared:bits=3"), 0) {
        config.codec = codec_.get();
        for (size_t call = 0; call < calls; call++) {
            inputs.push_back(input_of(rank, call));
            values.push_back(std::make_unique<GpuFloats>(count, 0));
        }
        write();
    }
    void write() {
        for (size_t call = 0; call < values.size(); call++)
            CHECK_EMULATED(qcclEmulatedMemcpy(values[call]->data(), inputs[call].data(),
                                              count * sizeof(float)));
    }
    void make(size_t call, qcclStream_t stream) { check(result_of(call, stream)); }
    qcclResult_t result_of(size_t call, qcclStream_t stream) {
        return average(collective, values[call]->data(), rank_, on_.comm, stream, config);
    }
    void synchronize() { CHECK_EMULATED(qcclEmulatedStreamSynchronize(on_.stream)); }
    void check_sums(const Outcome &want) {
        for (size_t call = 0; call < values.size(); call++)
            CHECK(values[call]->read() == want.sums[call]);
    }

    Collective collective = Collective::all_reduce;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    std::vector<std::vector<float>> inputs;
    std::vector<std::unique_ptr<GpuFloats>> values;

private:
    const size_t rank_;
    GpuRank &on_;
    const CodecHandle codec_;
};

void streams_and_groups_make_the_same_sums() {
    const auto want = sums_of_hosts(4, false);
    GpuRanks(two).on_each([&](size_t number, GpuRank &rank) {
        GpuCalls calls(number, rank, 4);
        for (size_t call = 0; call < 4; call++) calls.make(call, rank.stream);
        GpuFloats others(50, 1); // another call waits behind them
        check(all_reduce(others, rank, rank.stream));
        calls.synchronize();
        calls.check_sums(want[number]);
        CHECK(others.are(2));
        calls.write();
        check(qcclGroupStart());
        for (size_t call = 0; call < 4; call++) calls.make(call, rank.stream);
        check(all_reduce(others, rank, rank.stream));
        check(qcclGroupEnd());
        calls.synchronize();
        calls.check_sums(want[number]);
        CHECK(others.are(4));
    });
}

// Parts of two counts, which overlap in the memory of the GPU and lie apart in that of the host.
void parts_of_any_counts_have_the_sums_of_hosts() {
    const std::array<size_t, 2> counts{1200, 3001}, displs{2003, 0};
    std::vector<std::vector<float>> want(two.size());
    const auto reduce = [&](const float *send, float *recv, const size_t *places, qcclComm_t comm,
                            qcclStream_t stream) {
        const CodecHandle codec(*parse_codec("shared:block=7"), 0);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.codec = codec.get();
        check(qcclReduceScatterVConfig(send, recv, counts.data(), places, qcclFloat32, qcclSum,
                                       comm, stream, &config));
    };
    Comms(Devices(two.size(), "host")).on_each([&](uint32_t rank, qcclComm_t comm) {
        const std::vector<float> input = input_of(rank, 0);
        std::vector<float> parts;
        for (size_t part = 0; part < two.size(); part++)
            parts.insert(parts.end(), input.begin() + static_cast<long>(displs[part]),
                         input.begin() + static_cast<long>(displs[part] + counts[part]));
        want[rank].resize(counts[rank]);
        reduce(parts.data(), want[rank].data(), nullptr, comm, QCCL_STREAM_SYNC);
    });
    GpuRanks(two).on_each([&](size_t number, GpuRank &rank) {
        GpuCalls calls(number, rank, 1);
        GpuFloats got(counts[number], 0);
        reduce(calls.values[0]->data(), got.data(), displs.data(), rank.comm, rank.stream);
        calls.synchronize();
        CHECK(got.read() == want[number]);
        CHECK(calls.values[0]->read() == calls.inputs[0]);
    });
}

void a_state_makes_good_what_rounding_has_lost() {
    constexpr size_t many = 4;
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
        const auto want = sums_of_hosts(many, true, collective);
        CHECK(want[0].sums != sums_of_hosts(many, false, collective)[0].sums);
        GpuRanks(two).on_each([&](size_t number, GpuRank &rank) {
            GpuCalls calls(number, rank, many);
            calls.collective = collective;
            check(qcclStateCreate(&calls.config.state, rank.comm, count, qcclFloat32, nullptr));
            for (size_t call = 0; call < many; call++) {
                calls.make(call, call % 2 == 0 ? rank.stream : QCCL_STREAM_SYNC);
                calls.synchronize();
                CHECK(residual_of(calls.config.state) == want[number].residuals[call]);
            }
            calls.check_sums(want[number]);
            check(qcclStateDestroy(calls.config.state));
        });
    }
}

void a_failure_between_the_two_collectives_leaves_the_state_as_it_was() {
    const auto want = sums_of_hosts(1, true);
    for (const bool on_stream : {false, true}) {
        setenv("QCCL_INJECT", "rank=0,call=4,revoke", 1); // the sums of the second call
        GpuRanks ranks(two);
        unsetenv("QCCL_INJECT");
        ranks.on_each([&](size_t number, GpuRank &rank) {
            GpuCalls calls(number, rank, 2);
            check(qcclStateCreate(&calls.config.state, rank.comm, count, qcclFloat32, nullptr));
            calls.make(0, rank.stream);
            calls.synchronize();
            CHECK(residual_of(calls.config.state) == want[number].residuals[0]);
            const qcclResult_t result =
                calls.result_of(1, on_stream ? static_cast<void *>(rank.stream) : QCCL_STREAM_SYNC);
            calls.synchronize();
            CHECK_EQ(on_stream ? async_error(rank.comm) : result, qcclRevoked);
            CHECK(residual_of(calls.config.state) == want[number].residuals[0]);
            check(qcclStateDestroy(calls.config.state));
        });
    }
}

void prepared_calls_and_replays_are_made_again() {
    const auto want = sums_of_hosts(1, false);
    GpuRanks(two).on_each([&](size_t number, GpuRank &rank) {
        GpuCalls calls(number, rank, 1);
        float *const values = calls.values[0]->data();
        qcclColl_t prepared = nullptr;
        check(qcclCollCreate(&prepared, qcclCollAllReduce, values, values, count, qcclFloat32,
                             qcclAvg, 0, rank.comm, rank.stream, &calls.config));
        for (int i = 0; i < 3; i++) {
            calls.write();
            check(qcclCollStart(prepared));
            calls.synchronize();
            calls.check_sums(want[number]);
        }
        check(qcclCollFree(prepared));
        calls.write();
        CHECK_EMULATED(
            qcclEmulatedStreamBeginCapture(rank.stream, qcclEmulatedCaptureModeThreadLocal));
        calls.make(0, rank.stream);
        qcclEmulatedGraph_t graph = nullptr;
        qcclEmulatedGraphExec_t exec = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamEndCapture(rank.stream, &graph));
        CHECK_EMULATED(qcclEmulatedGraphInstantiate(&exec, graph));
        CHECK(calls.values[0]->read() == calls.inputs[0]); // the capture has run nothing
        for (int i = 0; i < 3; i++) {
            calls.write();
            CHECK_EMULATED(qcclEmulatedGraphLaunch(exec, rank.stream));
            calls.synchronize();
            calls.check_sums(want[number]);
        }
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(exec));
        CHECK_EMULATED(qcclEmulatedGraphDestroy(graph));
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(calls_have_the_slow_twins_bytes),
        QTEST(streams_and_groups_make_the_same_sums),
        QTEST(parts_of_any_counts_have_the_sums_of_hosts),
        QTEST(a_state_makes_good_what_rounding_has_lost),
        QTEST(a_failure_between_the_two_collectives_leaves_the_state_as_it_was),
        QTEST(prepared_calls_and_replays_are_made_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
