// Tests collectives on whatever GPU there is. The ranks are threads that share the GPU, each with a
// stream of its own, and their results are compared with those of the slow twin. Also tests calls
// that a graph replays. Runs with QCCL_SEGMENT=4K, too, for which small calls have many segments in
// flight. QTEST_FULL=1 runs the whole table of cases, otherwise a sample runs.
#include "tests/kit/case_table.hpp"
#include "c_calls.hpp"
#include "graph_calls.hpp"
#include "real_gpu_kit.hpp"
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/sample.hpp"

#include <functional>
#include <memory>

using namespace qtest;
using real_gpu::GraphCalls;
using real_gpu::GuardedMemory;
using real_gpu::is_emulated;
using real_gpu::Stream;
using real_gpu::tested;

namespace {

// Ranks that are threads and share the GPU, each with a communicator and a stream.
class GpuThreads {
public:
    explicit GpuThreads(uint32_t ranks)
        : ranks_(ranks), comms_(std::vector<const char *>(ranks, tested->traits().name.c_str())) {}

    void on_each(const std::function<void(uint32_t rank, qcclComm_t, const Stream &)> &body) {
        // The streams are created before the threads start: a GPU may delay the creation of a
        // stream until other streams have ended their work.
        std::vector<std::unique_ptr<Stream>> streams;
        for (uint32_t rank = 0; rank < ranks_; rank++)
            streams.push_back(std::make_unique<Stream>());
        comms_.on_each([&](uint32_t rank, qcclComm_t comm) { body(rank, comm, *streams[rank]); });
    }

private:
    uint32_t ranks_;
    Comms comms_;
};

// The buffers of a call on one rank, in place or not.
class CallBuffers {
public:
    CallBuffers(const TwinCall &call, uint32_t rank, bool in_place, const Stream &stream)
        : value_(type_bytes(call.type)), send_bytes_(send_count(call) * value_),
          recv_bytes_(recv_count(call, rank) * value_), in_place_(in_place),
          shared_(in_place ? in_place_buffer(call, rank) : SharedBuffer()),
          from_(shared_.send * value_), to_(shared_.recv * value_),
          send_(stream, in_place ? shared_.count * value_ : send_bytes_, rank % 3 * value_),
          recv_(stream, in_place ? 0 : recv_bytes_, rank % 3 * value_) {}

    void write(const Bytes &input) { send_.write(input.data(), input.size(), from_); }
    const void *send() const { return send_.data() + from_; }
    void *recv() const { return in_place_ ? send_.data() + to_ : recv_.data(); }
    bool has_received(const Bytes &wanted) { return difference(wanted).empty(); }
    // Says how what was received differs; empty: not at all.
    std::string difference(const Bytes &wanted) {
        const std::byte *const got =
            in_place_ ? send_.read(to_ + recv_bytes_) + to_ : recv_.read(recv_bytes_);
        CHECK_EQ(wanted.size(), recv_bytes_);
        size_t first = wanted.size(), differing = 0;
        for (size_t i = wanted.size(); i-- > 0;)
            if (wanted[i] != got[i]) first = i, differing++;
        if (differing == 0) return {};
        return std::to_string(differing) + " bytes of " + std::to_string(wanted.size()) +
               " are not the slow twin's, the first at " + std::to_string(first);
    }

private:
    const size_t value_, send_bytes_, recv_bytes_;
    const bool in_place_;
    const SharedBuffer shared_;
    const size_t from_, to_;
    GuardedMemory send_, recv_;
};

void make(const TwinCall &call, CallBuffers &buffers, qcclComm_t comm, qcclStream_t stream) {
    const CodecHandle codec(call.codec, call.seed);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = codec.get();
    config.algorithm = call.algorithm.c_str();
    if (call_c(call, buffers.send(), buffers.recv(), comm, stream, &config) != qcclSuccess)
        throw Failure{words_of(call, false) + ": " + qcclGetLastError(comm)};
}

struct WrongBytes {
    std::string text;
};

// Makes one call on one rank and compares the result with the slow twin.
void compare(const TwinCall &call, uint32_t rank, qcclComm_t comm, const Stream &stream,
             bool in_place, bool is_synchronous) {
    const auto inputs =
        make_inputs(call, call.number % 5 == 0 ? golden::Kind::few_specials : golden::Kind::spread);
    CallBuffers buffers(call, rank, in_place, stream);
    buffers.write(inputs[rank]);
    const bool blocks = is_synchronous || !tested->traits().has_stream_waits;
    make(call, buffers, comm, blocks ? QCCL_STREAM_SYNC : static_cast<qcclStream_t>(stream.get()));
    stream.wait();
    const std::string difference = buffers.difference(slow_twin(call, inputs)[rank]);
    if (!difference.empty()) throw WrongBytes{words_of(call, in_place) + ": " + difference};
}

// Does the same and keeps what is wrong, so that the other cases are tried, too.
void collect(const TwinCall &call, uint32_t rank, qcclComm_t comm, const Stream &stream,
             bool in_place, bool is_synchronous, std::string &wrong) {
    try {
        compare(call, rank, comm, stream, in_place, is_synchronous);
    } catch (const WrongBytes &bytes) {
        wrong += "\n  " + bytes.text;
    }
}

void compare_cases(uint32_t ranks, uint64_t rarity) {
    GpuThreads comms(ranks);
    comms.on_each([=](uint32_t rank, qcclComm_t comm, const Stream &stream) {
        Sample sample;
        uint64_t number = 0;
        std::string wrong;
        each_case(ranks, [&](TwinCall call) {
            const bool is_first = sample.cases == 0; // taken however few are
            if (!sample.takes(call.count > 4000 ? 2 * rarity : rarity) && !is_first) return;
            // A message's call number, which noise depends on, is that of its channel.
            const bool is_message = call.collective == Collective::send;
            if (is_message && call.codec.rounding != Rounding::nearest) return;
            if (!is_message) call.number = ++number;
            collect(call, rank, comm, stream, sample.taken % 3 == 0, sample.taken % 2 == 0, wrong);
        });
        if (!wrong.empty()) throw Failure{wrong};
        if (number == 0) throw Failure{"no case was taken"};
    });
}

uint64_t rarity() { return is_emulated() ? 1500 : 40; }
void two_ranks_share_the_gpu() { compare_cases(2, rarity()); }
void four_ranks_share_the_gpu() { compare_cases(4, 2 * rarity()); }
void eight_ranks_share_the_gpu() { compare_cases(8, 4 * rarity()); }

// Vectors of many segments and tiles; those of the table have few.
void large_vectors_are_cut() {
    for (const uint32_t ranks : {2U, 4U, 8U}) {
        GpuThreads comms(ranks);
        comms.on_each([=](uint32_t rank, qcclComm_t comm, const Stream &stream) {
            TwinCall call{.count = is_emulated() ? 60'013 : 3'000'013 / thinning(), .ranks = ranks};
            call.number = 0;
            std::string wrong;
            for (const char *algorithm : {"ring", "direct"})
                for (const char *codec : {"none", "int8", "int4", "topk", "shared"}) {
                    call.algorithm = algorithm;
                    call.codec = *parse_codec(codec);
                    call.number++;
                    collect(call, rank, comm, stream, call.number % 2 == 0, false, wrong);
                }
            if (!wrong.empty()) throw Failure{wrong};
        });
    }
}

// With QCCL_SEGMENT=4K the first call of a communicator has many segments in flight, while the
// streams of all ranks wait for it. It needs no stream then that the GPU does not have yet: see
// Engine::open_gpu.
void first_calls_create_no_streams() {
    constexpr uint32_t ranks = 8;
    GpuThreads comms(ranks);
    comms.on_each([&](uint32_t rank, qcclComm_t comm, const Stream &stream) {
        const TwinCall call{.algorithm = "direct", .count = 100'003, .ranks = ranks};
        compare(call, rank, comm, stream, false, false);
    });
}

// Every replay of a graph makes its calls again, with the call numbers of that moment.
void graphs_replay_calls() {
    const GraphCalls graphs;
    if (!tested->traits().can_capture || !graphs.are_there()) {
        std::printf("graphs: skipped, their functions are not found\n");
        return;
    }
    constexpr uint32_t ranks = 2;
    GpuThreads comms(ranks);
    comms.on_each([&](uint32_t rank, qcclComm_t comm, const Stream &stream) {
        const GraphCalls own; // for this thread
        TwinCall call{
            .algorithm = "ring", .codec = *parse_codec("int8"), .count = 5000, .ranks = ranks};
        const auto inputs = make_inputs(call, golden::Kind::spread);
        CallBuffers buffers(call, rank, false, stream);
        buffers.write(inputs[rank]);
        void *const graph = own.capture(
            stream, [&] { make(call, buffers, comm, static_cast<qcclStream_t>(stream.get())); });
        const Bytes wanted = slow_twin(call, inputs)[rank];
        if (buffers.has_received(wanted)) throw Failure{"a capture has made the call"};
        for (int replay = 0; replay < 3; replay++) {
            own.launch(graph, stream);
            stream.wait();
            if (!buffers.has_received(wanted)) throw Failure{"a replay has other bytes"};
        }
    });
}

} // namespace

int main(int argc, char **argv) {
    if (!real_gpu::open_tested(argc, argv)) return real_gpu::skipped;
    const CMUnitTest tests[] = {
        QTEST(two_ranks_share_the_gpu),       QTEST(four_ranks_share_the_gpu),
        QTEST(eight_ranks_share_the_gpu),     QTEST(large_vectors_are_cut),
        QTEST(first_calls_create_no_streams), QTEST(graphs_replay_calls),
    };
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    tested.reset();
    return failed;
}
