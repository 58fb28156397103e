#include "device_ranks.hpp"

#include <algorithm>

namespace qtest {

GpuRanks::GpuRanks(const std::vector<const char *> &devices) : GpuRanks(devices.size()) {
    std::vector<qcclComm_t> comms(devices.size());
    if (qcclCommInitAll(comms.data(), static_cast<int>(devices.size()), devices.data()) !=
        qcclSuccess)
        throw Failure{qcclGetLastError(nullptr)};
    for (size_t i = 0; i < ranks_.size(); i++) ranks_[i].comm = comms[i];
    create_streams(devices);
}

GpuRanks::GpuRanks(const std::vector<const char *> &devices, const qcclConfig_t &config)
    : GpuRanks(devices.size()) {
    qcclUniqueId id;
    if (qcclGetUniqueId(&id) != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
    on_each_thread(ranks_.size(), [&](size_t i) {
        qcclConfig_t own = config;
        own.device = devices[i];
        if (qcclCommInitRankConfig(&ranks_[i].comm, static_cast<int>(ranks_.size()), &id,
                                   static_cast<int>(i), &own) != qcclSuccess)
            throw Failure{qcclGetLastError(nullptr)};
    });
    create_streams(devices);
}

GpuRanks::~GpuRanks() {
    for (GpuRank &rank : ranks_) {
        if (rank.comm) (void)qcclCommDestroy(rank.comm);
        if (rank.stream) (void)qcclEmulatedStreamDestroy(rank.stream);
    }
}

void GpuRanks::on_each(const std::function<void(size_t rank, GpuRank &)> &body) {
    on_each_rank(
        ranks_.size(), [&](size_t i) { return ranks_[i].comm; },
        [&](size_t i) {
            CHECK_EMULATED(qcclEmulatedSetDevice(ranks_[i].gpu));
            body(i, ranks_[i]);
        });
}

void GpuRanks::create_streams(const std::vector<const char *> &devices) {
    for (size_t i = 0; i < ranks_.size(); i++) {
        ranks_[i].gpu = *gpu_number(devices[i]);
        CHECK_EMULATED(qcclEmulatedSetDevice(ranks_[i].gpu));
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&ranks_[i].stream));
    }
}

qcclConfig_t LogLines::config() {
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.log = {.function = keep, .context = this};
    return config;
}

size_t LogLines::count(const std::string &part) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(
        lines_, [&](const std::string &line) { return line.find(part) != std::string::npos; }));
}

void LogLines::keep(int32_t, const char *line, void *context) {
    auto &own = *static_cast<LogLines *>(context);
    const std::lock_guard lock(own.mutex_);
    own.lines_.emplace_back(line);
}

GpuFloats::GpuFloats(size_t count, float value) : count_(count) {
    CHECK_EMULATED(qcclEmulatedMalloc(&memory_, count * sizeof(float)));
    fill(value);
}

void GpuFloats::fill(float value) {
    const std::vector<float> values(count_, value);
    CHECK_EMULATED(qcclEmulatedMemcpy(memory_, values.data(), count_ * sizeof(float)));
}

std::vector<float> GpuFloats::read() {
    std::vector<float> values(count_);
    CHECK_EMULATED(qcclEmulatedMemcpy(values.data(), memory_, count_ * sizeof(float)));
    return values;
}

bool GpuFloats::are(float value) {
    const auto values = read();
    return std::ranges::all_of(values, [=](float v) { return v == value; });
}

RankValues::RankValues(const char *device, size_t count, float value) {
    if (const auto gpu = gpu_number(device)) {
        CHECK_EMULATED(qcclEmulatedSetDevice(*gpu));
        of_gpu_.emplace(count, value);
    } else {
        of_host_.assign(count, value);
    }
}

void RankValues::write(const std::vector<float> &values) {
    if (of_gpu_)
        CHECK_EMULATED(
            qcclEmulatedMemcpy(of_gpu_->data(), values.data(), values.size() * sizeof(float)));
    else
        of_host_ = values;
}

bool RankValues::are(float value) {
    const auto values = read();
    return std::ranges::all_of(values, [=](float v) { return v == value; });
}

void check(qcclResult_t result) {
    if (result != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
}

qcclResult_t async_error(qcclComm_t comm) {
    qcclResult_t result = qcclSuccess;
    check(qcclCommGetAsyncError(comm, &result));
    return result;
}

qcclResult_t all_reduce(GpuFloats &values, const GpuRank &rank, qcclStream_t stream,
                        const qcclCollConfig_t *config) {
    return qcclAllReduceConfig(values.data(), values.data(), values.count(), qcclFloat32, qcclSum,
                               rank.comm, stream, config);
}

} // namespace qtest
