// Shared by the tests of collectives on the emulated GPU: buffers between guards in GPU memory, and
// calls of the table of cases through the C API.
#pragma once

#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/qtest.hpp"
#include "tests/transport/killable_ranks.hpp"

#include <qccl/emulated.h>
#include <qccl/qccl.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace qtest {

#define CHECK_EMULATED(call)                                                                       \
    do {                                                                                           \
        if (const qcclEmulatedResult_t result_ = (call); result_ != qcclEmulatedSuccess)           \
            throw qtest::Failure{std::string(__FILE__ ":") + std::to_string(__LINE__) +            \
                                 ": " #call ": " + qcclEmulatedGetErrorString(result_)};           \
    } while (false)

// Returns the number of an emulated GPU; nothing for "host".
inline std::optional<int> gpu_number(const std::string &device) {
    const size_t colon = device.find(':');
    if (colon == std::string::npos) return std::nullopt;
    int number = 0;
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
    return number;
}

// The unique id of ranks that are processes. It is made once all of them have been forked: what is
// forked while another thread allocates, as the rendezvous thread does, waits for ever for the
// address sanitizer's allocator.
class LateId {
public:
    LateId() : slot_(1) { CHECK(slot_.are_there()); }
    void make() {
        if (qcclGetUniqueId(&slot_[0].id) != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
        slot_[0].is_made.store(true);
    }
    const qcclUniqueId &await() const {
        while (!slot_[0].is_made.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return slot_[0].id;
    }

private:
    struct Slot {
        qcclUniqueId id;
        std::atomic<bool> is_made;
    };
    const killable::Reports<Slot> slot_;
};

// A buffer between two guards in host memory, or in memory of the GPU of `stream`, at an address
// that is aligned for no vector. All its copies go through that stream and not through the whole
// device, because streams of other ranks may be waiting for this rank.
class DeviceBuffer {
public:
    DeviceBuffer(qcclEmulatedStream_t stream, size_t bytes, size_t offset)
        : stream_(stream), bytes_(bytes), offset_(guard + offset),
          held_(guard + offset + bytes + guard, filler) {
        if (!stream) return;
        CHECK_EMULATED(qcclEmulatedMallocAsync(&memory_, held_.size(), stream));
        copy(memory_, held_.data(), held_.size());
    }
    ~DeviceBuffer() {
        if (memory_) (void)qcclEmulatedFreeAsync(memory_, stream_);
    }
    DeviceBuffer(const DeviceBuffer &) = delete;

    std::byte *data() {
        return (memory_ ? static_cast<std::byte *>(memory_) : held_.data()) + offset_;
    }
    void write(size_t at, const Bytes &content) {
        if (content.empty()) return;
        if (memory_)
            copy(data() + at, content.data(), content.size());
        else
            std::copy(content.begin(), content.end(), data() + at);
    }
    // Returns the content. Fails if a guard is overwritten.
    Bytes read() {
        if (memory_) copy(held_.data(), memory_, held_.size());
        const auto is_filler = [](std::byte b) { return b == filler; };
        CHECK(std::all_of(held_.begin(), held_.begin() + static_cast<long>(offset_), is_filler));
        CHECK(std::all_of(held_.end() - guard, held_.end(), is_filler));
        return {held_.begin() + static_cast<long>(offset_),
                held_.begin() + static_cast<long>(offset_ + bytes_)};
    }

private:
    static constexpr size_t guard = 128;
    static constexpr std::byte filler{0xE7};
    void copy(void *to, const void *from, size_t bytes) {
        CHECK_EMULATED(qcclEmulatedMemcpyAsync(to, from, bytes, stream_));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(stream_));
    }

    const qcclEmulatedStream_t stream_;
    const size_t bytes_, offset_;
    Bytes held_;
    void *memory_ = nullptr;
};

inline qcclResult_t call_c(const TwinCall &call, const void *send, void *recv, qcclComm_t comm,
                           qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = static_cast<qcclDataType_t>(call.type);
    const auto op = static_cast<qcclRedOp_t>(call.op);
    switch (call.collective) {
    case Collective::all_reduce:
        return qcclAllReduceConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::reduce_scatter:
        return qcclReduceScatterConfig(send, recv, call.count, type, op, comm, stream, config);
    case Collective::all_gather:
        return qcclAllGatherConfig(send, recv, call.count, type, comm, stream, config);
    case Collective::broadcast:
        return qcclBroadcastConfig(send, recv, call.count, type, static_cast<int>(call.root), comm,
                                   stream, config);
    default: return qcclBarrierConfig(comm, stream, config);
    }
}

// A codec handle that is destroyed with its owner.
class CodecHandle {
public:
    CodecHandle(Codec codec, uint64_t seed) {
        if (codec.rounding == Rounding::stochastic) codec.seed = seed;
        if (qcclCodecCreate(&codec_, spec(codec).c_str()) != qcclSuccess)
            throw Failure{spec(codec) + ": " + qcclGetLastError(nullptr)};
    }
    ~CodecHandle() { (void)qcclCodecDestroy(codec_); }
    CodecHandle(const CodecHandle &) = delete;
    qcclCodec_t get() const { return codec_; }

private:
    qcclCodec_t codec_ = nullptr;
};

// Makes the call on one rank, on that rank's thread: in guarded memory of the stream's GPU, or of
// the host if `stream` is null, in place or not. Returns the received bytes.
inline Bytes run_on_device(const TwinCall &call, uint32_t rank, qcclComm_t comm, const Bytes &input,
                           bool in_place, qcclEmulatedStream_t stream, bool is_synchronous) {
    const size_t value = type_bytes(call.type), offset = rank % 3 * value;
    const size_t send_bytes = send_count(call) * value, recv_bytes = recv_count(call) * value;
    DeviceBuffer send(stream, in_place ? std::max(send_bytes, recv_bytes) : send_bytes, offset);
    DeviceBuffer recv(stream, in_place ? 0 : recv_bytes, offset);
    const size_t own = rank * call.count * value;
    const size_t from = in_place && call.collective == Collective::all_gather ? own : 0;
    const size_t to = in_place && call.collective == Collective::reduce_scatter ? own : 0;
    send.write(from, input);
    const CodecHandle codec(call.codec, call.seed);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = codec.get();
    config.algorithm = call.algorithm.c_str();
    const bool is_gpu = stream != nullptr;
    const qcclResult_t result =
        call_c(call, send.data() + from, in_place ? send.data() + to : recv.data(), comm,
               is_synchronous || !is_gpu ? QCCL_STREAM_SYNC : static_cast<void *>(stream), &config);
    if (result != qcclSuccess) throw Failure{qcclGetLastError(comm)};
    if (is_gpu && !is_synchronous) CHECK_EMULATED(qcclEmulatedStreamSynchronize(stream));
    const Bytes received = in_place ? send.read() : recv.read();
    if (!in_place) {
        CHECK(send.read() == input);
        return received;
    }
    return {received.begin() + static_cast<long>(to),
            received.begin() + static_cast<long>(to + recv_bytes)};
}

// Returns the number of resources that the runtime holds. Synchronizes all GPUs first, because a
// stream frees memory only when it reaches the request.
inline size_t count_held() {
    for (int gpu = 0; gpu < 4; gpu++) {
        CHECK_EMULATED(qcclEmulatedSetDevice(gpu));
        CHECK_EMULATED(qcclEmulatedDeviceSynchronize());
    }
    return qcclEmulatedCountHeld();
}

} // namespace qtest
