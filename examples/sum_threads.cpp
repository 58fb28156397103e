// Sums vectors on GPUs over the threads of this process, and checks the sums. The arguments name
// devices. Each device has a rank, and each rank is a thread with a stream of its own; several
// ranks may share a GPU. With a codec, as in QCCL_CODEC=int8, the vectors are sent compressed.
//
//     c++ -std=c++17 sum_threads.cpp -o sum_threads $(pkg-config --cflags --libs qccl)
//     -lqccl_emulated -pthread
//     ./sum_threads emulated:0 emulated:1 emulated:1
//
// For GPUs of NVIDIA use -DUSE_CUDA, -lcudart in place of -lqccl_emulated, and cuda:0 cuda:1.
#include <qccl/qccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#ifdef USE_CUDA
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define COPY(to, from, bytes, stream) cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream)
#else
#include <qccl/emulated.h>
#define GPU(name) qcclEmulated##name
#define COPY(to, from, bytes, stream) qcclEmulatedMemcpyAsync(to, from, bytes, stream)
#endif

static void require(bool is_right, const char *why) {
    if (is_right) return;
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
}

// Exits with the error's text if the call has failed. Asks for the text only after the call has
// returned.
static void qccl(qcclResult_t result, qcclComm_t comm) {
    if (result != qcclSuccess) require(false, qcclGetLastError(comm));
}

// A vector on the thread's GPU, for use in one stream.
class Vector {
public:
    Vector(size_t count, GPU(Stream_t) stream) : count_(count), stream_(stream) {
        // The memory is allocated in the order of the stream, because an ordinary allocation may
        // wait for streams of other ranks, which wait for this rank.
        require(GPU(MallocAsync)(&memory_, bytes(), stream) == GPU(Success), "no memory");
    }
    ~Vector() { (void)GPU(FreeAsync)(memory_, stream_); }
    Vector(const Vector &) = delete;

    void *data() { return memory_; }
    void write(const std::vector<float> &from) {
        require(COPY(memory_, from.data(), bytes(), stream_) == GPU(Success), "no copy");
    }
    std::vector<float> read() {
        std::vector<float> values(count_);
        // A copy to pageable memory may hold up other threads that use the GPU, so the stream
        // has to be idle first.
        require(GPU(StreamSynchronize)(stream_) == GPU(Success), "the stream has failed");
        require(COPY(values.data(), memory_, bytes(), stream_) == GPU(Success), "no copy");
        require(GPU(StreamSynchronize)(stream_) == GPU(Success), "the stream has failed");
        return values;
    }

private:
    size_t bytes() const { return count_ * sizeof(float); }
    size_t count_;
    GPU(Stream_t) stream_;
    void *memory_ = nullptr;
};

// Each rank contributes its own number, so the sum is known.
static void run_rank(size_t rank, size_t ranks, const std::string &device, qcclComm_t comm) {
    constexpr size_t count = 100'000;
    require(GPU(SetDevice)(std::atoi(device.substr(device.find(':') + 1).c_str())) == GPU(Success),
            "no such GPU");
    GPU(Stream_t) stream = nullptr;
    require(GPU(StreamCreate)(&stream) == GPU(Success), "no stream");
    {
        Vector vector(count, stream);
        const std::vector<float> mine(count, static_cast<float>(rank));
        vector.write(mine);
        qccl(qcclAllReduce(vector.data(), vector.data(), count, qcclFloat32, qcclSum, comm, stream),
             comm);
        const auto right = static_cast<float>(ranks * (ranks - 1) / 2);
        const auto sums = vector.read();
        const auto wrong =
            std::count_if(sums.begin(), sums.end(), [=](float sum) { return sum != right; });
        std::printf("rank %zu on %s has %td wrong values\n", rank, device.c_str(), wrong);
    }
    (void)GPU(StreamSynchronize)(stream);
    (void)GPU(StreamDestroy)(stream);
}

int main(int argc, char **argv) {
    require(argc > 1, "usage: sum_threads DEVICE...");
    const std::vector<const char *> devices(argv + 1, argv + argc);
    std::vector<qcclComm_t> comms(devices.size());
    qccl(qcclCommInitAll(comms.data(), static_cast<int>(comms.size()), devices.data()), nullptr);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < comms.size(); rank++)
        threads.emplace_back(run_rank, rank, comms.size(), std::string(devices[rank]), comms[rank]);
    for (std::thread &thread : threads) thread.join();
    for (const qcclComm_t comm : comms) qccl(qcclCommDestroy(comm), nullptr);
}
