#include "device_kit.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

namespace qtest {
namespace {

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

} // namespace

void check_emulated(qcclEmulatedResult_t result, const char *file, int line, const char *call) {
    if (result != qcclEmulatedSuccess)
        fail_at(file, line, call, qcclEmulatedGetErrorString(result));
}

std::optional<int> gpu_number(const std::string &device) {
    const size_t colon = device.find(':');
    if (colon == std::string::npos) return std::nullopt;
    int number = 0;
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
    return number;
}

void LateId::make() {
    if (qcclGetUniqueId(&slot_[0].id) != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
    slot_[0].is_made.store(true);
}

const qcclUniqueId &LateId::await() const {
    while (!slot_[0].is_made.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return slot_[0].id;
}

Bytes run_on_device(const TwinCall &call, uint32_t rank, qcclComm_t comm, const Bytes &input,
                    bool in_place, qcclEmulatedStream_t stream, bool is_synchronous) {
    const size_t value = type_bytes(call.type), offset = rank % 3 * value;
    const size_t send_bytes = send_count(call) * value;
    const size_t recv_bytes = recv_count(call, rank) * value;
    const SharedBuffer shared = in_place ? in_place_buffer(call, rank) : SharedBuffer();
    DeviceBuffer send(stream, in_place ? shared.count * value : send_bytes, offset);
    DeviceBuffer recv(stream, in_place ? 0 : recv_bytes, offset);
    const size_t from = shared.send * value, to = shared.recv * value;
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

size_t count_held() {
    for (int gpu = 0; gpu < 4; gpu++) {
        CHECK_EMULATED(qcclEmulatedSetDevice(gpu));
        CHECK_EMULATED(qcclEmulatedDeviceSynchronize());
    }
    return qcclEmulatedCountHeld();
}

} // namespace qtest
