// Ranks of a communicator as threads, each with an emulated GPU and a stream there; floats in such
// a GPU's memory; and a collector of log lines. For tests of calls on GPUs.
#pragma once

#include "device_kit.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace qtest {

// One rank: a thread's GPU, communicator and stream.
struct GpuRank {
    int gpu = 0;
    qcclComm_t comm = nullptr;
    qcclEmulatedStream_t stream = nullptr;
};

class Threads {
public:
    explicit Threads(const std::vector<const char *> &devices) : Threads(devices.size()) {
        std::vector<qcclComm_t> comms(devices.size());
        if (qcclCommInitAll(comms.data(), static_cast<int>(devices.size()), devices.data()) !=
            qcclSuccess)
            throw Failure{qcclGetLastError(nullptr)};
        for (size_t i = 0; i < ranks_.size(); i++) ranks_[i].comm = comms[i];
        create_streams(devices);
    }
    // Each rank gets `config` with its own device.
    Threads(const std::vector<const char *> &devices, const qcclConfig_t &config)
        : Threads(devices.size()) {
        qcclUniqueId id;
        if (qcclGetUniqueId(&id) != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
        std::vector<std::string> said(ranks_.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < ranks_.size(); i++)
            threads.emplace_back([&, i] {
                qcclConfig_t own = config;
                own.device = devices[i];
                if (qcclCommInitRankConfig(&ranks_[i].comm, static_cast<int>(ranks_.size()), &id,
                                           static_cast<int>(i), &own) != qcclSuccess)
                    said[i] = qcclGetLastError(nullptr);
            });
        for (std::thread &thread : threads) thread.join();
        for (const std::string &failure : said)
            if (!failure.empty()) throw Failure{failure};
        create_streams(devices);
    }
    ~Threads() {
        for (GpuRank &rank : ranks_) {
            if (rank.comm) (void)qcclCommDestroy(rank.comm);
            if (rank.stream) (void)qcclEmulatedStreamDestroy(rank.stream);
        }
    }
    Threads(const Threads &) = delete;
    GpuRank &operator[](size_t rank) { return ranks_[rank]; }
    size_t size() const { return ranks_.size(); }

    void on_each(const std::function<void(size_t rank, GpuRank &)> &body) {
        std::vector<std::string> said(ranks_.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < ranks_.size(); i++)
            threads.emplace_back([&, i] {
                try {
                    CHECK_EMULATED(qcclEmulatedSetDevice(ranks_[i].gpu));
                    body(i, ranks_[i]);
                } catch (const Failure &failure) {
                    said[i] = failure.text;
                    (void)qcclCommRevoke(ranks_[i].comm);
                }
            });
        for (std::thread &thread : threads) thread.join();
        for (size_t i = 0; i < ranks_.size(); i++)
            if (!said[i].empty()) throw Failure{"rank " + std::to_string(i) + ": " + said[i]};
    }

private:
    explicit Threads(size_t ranks) : ranks_(ranks) {} // the destructor runs if a constructor throws
    void create_streams(const std::vector<const char *> &devices) {
        for (size_t i = 0; i < ranks_.size(); i++) {
            ranks_[i].gpu = *gpu_number(devices[i]);
            CHECK_EMULATED(qcclEmulatedSetDevice(ranks_[i].gpu));
            CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&ranks_[i].stream));
        }
    }

    std::vector<GpuRank> ranks_;
};

// Collects the lines that ranks log with this configuration.
class LogLines {
public:
    qcclConfig_t config() {
        qcclConfig_t config = QCCL_CONFIG_INIT;
        config.log = {.function = keep, .context = this};
        return config;
    }
    // Returns the number of lines that contain `part`.
    size_t count(const std::string &part) {
        const std::lock_guard lock(mutex_);
        return static_cast<size_t>(std::ranges::count_if(
            lines_, [&](const std::string &line) { return line.find(part) != std::string::npos; }));
    }

private:
    static void keep(int32_t, const char *line, void *context) {
        auto &own = *static_cast<LogLines *>(context);
        const std::lock_guard lock(own.mutex_);
        own.lines_.emplace_back(line);
    }
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

// Floats in a GPU's memory.
class GpuFloats {
public:
    GpuFloats(size_t count, float value) : count_(count) {
        CHECK_EMULATED(qcclEmulatedMalloc(&memory_, count * sizeof(float)));
        fill(value);
    }
    ~GpuFloats() { (void)qcclEmulatedFree(memory_); }
    GpuFloats(const GpuFloats &) = delete;
    float *data() { return static_cast<float *>(memory_); }
    size_t count() const { return count_; }
    void fill(float value) {
        const std::vector<float> values(count_, value);
        CHECK_EMULATED(qcclEmulatedMemcpy(memory_, values.data(), count_ * sizeof(float)));
    }
    std::vector<float> read() {
        std::vector<float> values(count_);
        CHECK_EMULATED(qcclEmulatedMemcpy(values.data(), memory_, count_ * sizeof(float)));
        return values;
    }
    bool are(float value) {
        const auto values = read();
        return std::ranges::all_of(values, [=](float v) { return v == value; });
    }

private:
    const size_t count_;
    void *memory_ = nullptr;
};

inline void check(qcclResult_t result) {
    if (result != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
}

inline qcclResult_t async_error(qcclComm_t comm) {
    qcclResult_t result = qcclSuccess;
    check(qcclCommGetAsyncError(comm, &result));
    return result;
}

inline qcclResult_t all_reduce(GpuFloats &values, const GpuRank &rank, qcclStream_t stream,
                               const qcclCollConfig_t *config = nullptr) {
    return qcclAllReduceConfig(values.data(), values.data(), values.count(), qcclFloat32, qcclSum,
                               rank.comm, stream, config);
}

} // namespace qtest
