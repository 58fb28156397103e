// Reads runs of values at evenly spread places, encodes and decodes them with the host's kernels,
// and sums the errors.
#include "engine/run/call_sampler.hpp"

#include "base/types.hpp"
#include "codec/chunk.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace qccl {

namespace {

constexpr uint64_t fewest_values = 1024, most_values = 4096;
constexpr uint64_t usual_run = 256; // a few cache lines' worth at each place

} // namespace

SampleSize SampleSize::of(uint64_t count, uint64_t unit, uint64_t divisor) {
    // Rounded down, so that the samples of a large call stay within the share.
    const uint64_t values = std::min(count / divisor, most_values) / unit * unit;
    return {.values = std::max(values, round_up(fewest_values, unit)), .unit = unit};
}

bool SampleTurns::next(uint64_t count, const SampleSize &size, uint64_t divisor) {
    const uint64_t price = std::min(count, size.values) * divisor;
    credit_ = std::min(credit_ + count, price);
    if (taken_ != 0 && credit_ < price) return false;
    credit_ -= std::min(credit_, price);
    taken_++;
    return true;
}

uint64_t run_values(uint64_t count, const SampleSize &size) {
    return std::min({round_up(usual_run, size.unit), size.values, count});
}

std::vector<uint64_t> sample_places(uint64_t count, const SampleSize &size, uint64_t turn) {
    const uint64_t run = run_values(count, size);
    const uint64_t runs = run == 0 ? 0 : std::min(size.values, count) / run;
    // Multiples of the golden ratio spread evenly over successive turns, however many there are.
    double whole = 0;
    const double part = std::modf(static_cast<double>(turn) / std::numbers::phi, &whole);
    std::vector<uint64_t> places;
    for (uint64_t i = 0; i < runs; i++) {
        const uint64_t begin = count / runs * i, room = count / runs - run;
        const auto place = begin + static_cast<uint64_t>(part * static_cast<double>(room));
        places.push_back(place / size.unit * size.unit);
    }
    return places;
}

SampledArea contribution_of(const Work &work, const void *send) {
    const CollectiveRow &row = row_of(work.collective);
    if (!row.has_values || !has_input(work.collective, work.team)) return {};
    const auto *values = static_cast<const std::byte *>(send);
    // All parts are this rank's own values.
    if ((row.scatters && row.has_one_source) || row.exchanges)
        return {values, vector_count(work.collective, work.count, work.team.size)};
    if (row.scatters) values += work.team.rank * work.count * type_bytes(work.type);
    return {values, work.count};
}

SampledArea result_of(const Work &work, const void *recv) {
    if (!reduces(work.collective) || !has_output(work.collective, work.team)) return {};
    return {static_cast<const std::byte *>(recv), work.count};
}

Done CallSampler::read(const SampledArea &area, DataType type, const SampleSize &size,
                       uint64_t turn) {
    type_ = type;
    turn_ = turn;
    count_ = 0;
    if (!area.values || area.count == 0) return {};
    const uint64_t run = run_values(area.count, size);
    const std::vector<uint64_t> places = sample_places(area.count, size, turn);
    count_ = run * places.size();
    QCCL_TRY(gather(area, run, places));
    wide_.resize(count_ * type_bytes(accumulator_of(type)));
    device_.kernels->copy(accumulator_of(type), wide_.data(), type, values_.data(), count_, false);
    forget_infinite(run);
    encode_loss_.read(type, values_.data(), count_);
    return {};
}

Done CallSampler::gather(const SampledArea &area, uint64_t run,
                         const std::vector<uint64_t> &places) {
    const size_t each = type_bytes(type_), run_bytes = run * each;
    values_.resize(places.size() * run_bytes);
    if (device_.gpu) return gather_from_gpu(area.values, run_bytes, places);
    for (size_t i = 0; i < places.size(); i++)
        std::memcpy(values_.data() + i * run_bytes, area.values + places[i] * each, run_bytes);
    return {};
}

Done CallSampler::open_gpu() { return pin(0); }

Done CallSampler::pin(size_t least) {
    const size_t bytes = std::max(least, most_values * sizeof(double) * 2);
    if (pinned_bytes_ >= bytes) return {};
    QCCL_TRY(pinned_, PinnedMemory::create(device_.gpu, bytes));
    pinned_bytes_ = bytes;
    return {};
}

Done CallSampler::gather_from_gpu(const std::byte *from, size_t run_bytes,
                                  const std::vector<uint64_t> &places) {
    Gpu &gpu = *device_.gpu;
    QCCL_TRY(pin(values_.size()));
    for (size_t i = 0; i < places.size(); i++)
        QCCL_TRY(gpu.copy(gpu.own_stream(), pinned_->data() + i * run_bytes,
                          from + places[i] * type_bytes(type_), run_bytes));
    QCCL_TRY(gpu.synchronize(gpu.own_stream()));
    std::memcpy(values_.data(), pinned_->data(), values_.size());
    return {};
}

double CallSampler::value(const std::vector<std::byte> &values, uint64_t index) const {
    const auto read = [&](auto number) {
        std::memcpy(&number, values.data() + index * sizeof number, sizeof number);
        return static_cast<double>(number);
    };
    return accumulator_of(type_) == DataType::float64 ? read(double()) : read(float());
}

void CallSampler::forget_infinite(uint64_t run) {
    for (uint64_t first = 0; first < count_; first += run) {
        bool is_finite = true;
        for (uint64_t i = first; i < first + run; i++)
            is_finite = is_finite && std::isfinite(value(wide_, i));
        if (is_finite) continue;
        std::memset(values_.data() + first * type_bytes(type_), 0, run * type_bytes(type_));
        const size_t wide = type_bytes(accumulator_of(type_));
        std::memset(wide_.data() + first * wide, 0, run * wide);
    }
}

double CallSampler::square() const {
    double sum = 0;
    for (uint64_t i = 0; i < count_; i++) {
        const double x = value(wide_, i);
        sum += x * x;
    }
    return sum;
}

SampledLoss CallSampler::measure(const Codec &codec) {
    if (count_ == 0) return {};
    const Noise noise{.key = noise_key(codec.seed, 0, 0), .call = turn_, .first_index = 0};
    return encode_loss_.measure(codec, noise);
}

} // namespace qccl
