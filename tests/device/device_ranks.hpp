// Ranks of a communicator as threads, each with an emulated GPU and a stream there; floats in the
// memory of such a GPU or of a rank's device; and a collector of log lines. For tests of calls on
// GPUs.
#pragma once

#include "device_kit.hpp"

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qtest {

// One rank: a thread's GPU, communicator and stream.
struct GpuRank {
    int gpu = 0;
    qcclComm_t comm = nullptr;
    qcclEmulatedStream_t stream = nullptr;
};

class GpuRanks {
public:
    explicit GpuRanks(const std::vector<const char *> &devices);
    // Each rank gets `config` with its own device.
    GpuRanks(const std::vector<const char *> &devices, const qcclConfig_t &config);
    ~GpuRanks();
    GpuRanks(const GpuRanks &) = delete;
    GpuRank &operator[](size_t rank) { return ranks_[rank]; }
    size_t size() const { return ranks_.size(); }

    void on_each(const std::function<void(size_t rank, GpuRank &)> &body);

private:
    explicit GpuRanks(size_t ranks)
        : ranks_(ranks) {} // the destructor runs if a constructor throws
    void create_streams(const std::vector<const char *> &devices);

    std::vector<GpuRank> ranks_;
};

// Collects the lines that ranks log with this configuration.
class LogLines {
public:
    qcclConfig_t config();
    // Returns the number of lines that contain `part`.
    size_t count(const std::string &part);

private:
    static void keep(int32_t level, const char *line, void *context);
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

// Floats in a GPU's memory.
class GpuFloats {
public:
    GpuFloats(size_t count, float value);
    ~GpuFloats() { (void)qcclEmulatedFree(memory_); }
    GpuFloats(const GpuFloats &) = delete;
    float *data() { return static_cast<float *>(memory_); }
    size_t count() const { return count_; }
    void fill(float value);
    std::vector<float> read();
    bool are(float value);

private:
    const size_t count_;
    void *memory_ = nullptr;
};

// Values in the memory of a rank's device, at first all alike.
class RankValues {
public:
    RankValues(const char *device, size_t count, float value);
    float *data() { return of_gpu_ ? of_gpu_->data() : of_host_.data(); }
    void write(const std::vector<float> &values); // as many as there are
    std::vector<float> read() { return of_gpu_ ? of_gpu_->read() : of_host_; }
    bool are(float value);

private:
    std::optional<GpuFloats> of_gpu_;
    std::vector<float> of_host_;
};

void check(qcclResult_t result);
qcclResult_t async_error(qcclComm_t comm);
qcclResult_t all_reduce(GpuFloats &values, const GpuRank &rank, qcclStream_t stream,
                        const qcclCollConfig_t *config = nullptr);

} // namespace qtest
