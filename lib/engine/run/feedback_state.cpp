// Lets one at a time use a state, and writes and reads saved states.
#include "engine/run/feedback_state.hpp"

#include "base/text.hpp"
#include "codec/chunk.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace qccl {

namespace {

// The first bytes of a saved state, as WIRE.md has them.
struct SavedHeader {
    std::array<char, 4> magic;
    uint8_t version, type, feedback, reserved;
    uint64_t count;
    uint32_t ranks, rank;
    uint64_t seed, calls, payload_bytes;
    uint32_t momentum, crc;
    uint64_t last_reserved;
};
static_assert(sizeof(SavedHeader) == FeedbackState::header_bytes &&
              offsetof(SavedHeader, crc) == 52);
static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 4> saved_magic{'Q', 'C', 'S', 'T'};
// A state without momentum has the first version, and one with momentum the second.
constexpr uint8_t saved_version = 1, saved_momentum_version = 2;

uint32_t crc_of(SavedHeader header, std::span<const std::byte> payload) {
    header.crc = 0;
    return crc32c(payload, crc32c(std::as_bytes(std::span(&header, 1))));
}

Error damaged(const char *what) {
    return Error::make(Code::damaged_data, "buffer: the saved state %s", what);
}

const char *text_of(uint8_t feedback) {
    return feedback == static_cast<uint8_t>(Feedback::first) ? "qcclFeedbackFirst"
                                                             : "qcclFeedbackAll";
}

bool are_finite(DataType type, std::span<const std::byte> values) {
    const auto are = [&]<class T>(T) {
        for (size_t i = 0; i < values.size() / sizeof(T); i++) {
            T value;
            std::memcpy(&value, values.data() + i * sizeof(T), sizeof(T));
            if (!std::isfinite(value)) return false;
        }
        return true;
    };
    return type == DataType::float64 ? are(double{}) : are(float{});
}

// Checks that the bytes are a state that qcclStateSave could have written.
Result<SavedHeader> read_header(std::span<const std::byte> bytes) {
    SavedHeader header;
    if (bytes.size() < sizeof header) return damaged("is shorter than its header");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != saved_magic) return damaged("does not begin with \"QCST\"");
    if (header.version != saved_version && header.version != saved_momentum_version)
        return Error::make(Code::damaged_data,
                           "buffer: the saved state has version %u, and this library reads "
                           "versions %u and %u",
                           header.version, saved_version, saved_momentum_version);
    const auto payload = bytes.subspan(sizeof header);
    if (header.payload_bytes != payload.size())
        return Error::make(Code::damaged_data,
                           "buffer: the saved state has %" PRIu64
                           " bytes behind its header, but %zu are there",
                           header.payload_bytes, payload.size());
    if (crc_of(header, payload) != header.crc) return damaged("does not have its checksum");
    const bool is_known = header.feedback == static_cast<uint8_t>(Feedback::first) ||
                          header.feedback == static_cast<uint8_t>(Feedback::all);
    const bool has_momentum = header.momentum != 0;
    if (!is_known || has_momentum != (header.version == saved_momentum_version) ||
        header.momentum >= whole_momentum || header.reserved != 0 || header.last_reserved != 0)
        return damaged("has fields that this library does not know");
    if (header.type >= type_table.size() || header.rank >= header.ranks ||
        header.calls == std::numeric_limits<uint64_t>::max())
        return damaged("has a type, a rank or a number of calls that no library writes");
    return header;
}

std::string momentum_text(uint32_t thousandths) {
    return thousandths == 0 ? "no momentum" : "momentum=" + write_decimal(thousandths, 3);
}

Done check_tensor(const SavedHeader &header, const StateShape &shape) {
    if (header.type != static_cast<uint8_t>(shape.type)) {
        return invalid_argument("buffer holds a state of %s, but this one is of %s",
                                name(static_cast<DataType>(header.type)), name(shape.type));
    }
    if (header.count != shape.count)
        return invalid_argument("buffer holds a state of %" PRIu64
                                " elements, but this one has %" PRIu64,
                                header.count, shape.count)
            .compared(static_cast<int64_t>(shape.count), static_cast<int64_t>(header.count));
    if (header.feedback != static_cast<uint8_t>(shape.feedback))
        return invalid_argument("buffer holds a state with %s, but this one has %s",
                                text_of(header.feedback),
                                text_of(static_cast<uint8_t>(shape.feedback)));
    if (header.momentum != shape.momentum)
        return invalid_argument("buffer holds a state of a codec with %s, but this one is of a "
                                "codec with %s",
                                momentum_text(header.momentum).c_str(),
                                momentum_text(shape.momentum).c_str())
            .compared(shape.momentum, header.momentum);
    if (header.ranks == shape.ranks && header.rank != shape.rank)
        return invalid_argument("buffer holds the state of rank %" PRIu32
                                ", but this one is rank %" PRIu32 "'s",
                                header.rank, shape.rank)
            .compared(shape.rank, header.rank);
    return {};
}

} // namespace

Result<std::shared_ptr<FeedbackState>>
FeedbackState::create(const Device &device, const StateShape &shape, uint64_t seed) {
    Values values;
    for (DeviceMemory &each : values) {
        QCCL_TRY(each, DeviceMemory::create(device, residual_room(shape.bytes())));
    }
    return std::make_shared<FeedbackState>(device, shape, seed, std::move(values));
}

Error StateUse::is_used_already() {
    return Error::make(Code::invalid_usage,
                       "state is used by a call that has not ended, or by another thread");
}

Result<std::shared_ptr<StateUse>> StateUse::begin(StateRef state) {
    auto use = std::make_shared<StateUse>();
    if (state->is_used_.exchange(true, std::memory_order_acquire)) return is_used_already();
    use->state_ = std::move(state);
    const StateShape &shape = use->state_->shape_;
    use->feedback_ = {.owed = use->values(use->state_->owed_),
                      .residual = use->values(use->other()),
                      .call = use->state_->calls_ + 1,
                      .momentum = shape.momentum,
                      .velocity = shape.bytes() - shape.residual_bytes()};
    return use;
}

void StateUse::finish(const Done &done) {
    if (done) {
        state_->owed_ = other();
        state_->calls_++;
    }
    end();
}

void StateUse::end() {
    if (!state_) return;
    state_->is_used_.store(false, std::memory_order_release);
    state_.reset();
}

// A GPU copies between its memory and pinned memory of the host.
static Done copy_on(Gpu &gpu, void *to, const void *from, size_t bytes) {
    QCCL_TRY(gpu.copy(gpu.own_stream(), to, from, bytes));
    return gpu.synchronize(gpu.own_stream());
}

Done StateUse::read_owed(std::span<std::byte> values) const {
    const std::byte *const owed = this->values(state_->owed_);
    if (values.empty()) return {};
    const std::shared_ptr<Gpu> &gpu = state_->device_.gpu;
    if (!gpu) {
        std::memcpy(values.data(), owed, values.size());
        return {};
    }
    QCCL_TRY(const PinnedMemory pinned, PinnedMemory::create(gpu, values.size()));
    QCCL_TRY(copy_on(*gpu, pinned.data(), owed, values.size()));
    std::memcpy(values.data(), pinned.data(), values.size());
    return {};
}

Done StateUse::write_owed(std::span<const std::byte> values) {
    std::byte *const owed = this->values(state_->owed_);
    if (values.empty()) return {};
    const std::shared_ptr<Gpu> &gpu = state_->device_.gpu;
    if (!gpu) {
        std::memcpy(owed, values.data(), values.size());
        return {};
    }
    QCCL_TRY(const PinnedMemory pinned, PinnedMemory::create(gpu, values.size()));
    std::memcpy(pinned.data(), values.data(), values.size());
    return copy_on(*gpu, owed, pinned.data(), values.size());
}

Done StateUse::save(std::span<std::byte> bytes) const {
    const StateShape &shape = state_->shape_;
    const auto payload = bytes.subspan(sizeof(SavedHeader), shape.bytes());
    QCCL_TRY(read_owed(payload));
    SavedHeader header{.magic = saved_magic,
                       .version = shape.momentum != 0 ? saved_momentum_version : saved_version,
                       .type = static_cast<uint8_t>(shape.type),
                       .feedback = static_cast<uint8_t>(shape.feedback),
                       .reserved = 0,
                       .count = shape.count,
                       .ranks = shape.ranks,
                       .rank = shape.rank,
                       .seed = state_->seed_,
                       .calls = state_->calls_,
                       .payload_bytes = payload.size(),
                       .momentum = shape.momentum,
                       .crc = 0,
                       .last_reserved = 0};
    header.crc = crc_of(header, payload);
    std::memcpy(bytes.data(), &header, sizeof header);
    return {};
}

Done StateUse::load(std::span<const std::byte> bytes) {
    QCCL_TRY(const SavedHeader header, read_header(bytes));
    const StateShape &shape = state_->shape_;
    QCCL_TRY(check_tensor(header, shape));
    const auto payload = bytes.subspan(sizeof header);
    if (payload.size() != shape.bytes() || !are_finite(shape.residual_type(), payload))
        return damaged("has a residual that no library writes");
    QCCL_TRY(write_owed(payload));
    state_->seed_ = header.seed;
    state_->calls_ = header.calls;
    return {};
}

Done StateUse::reset() {
    const std::vector<std::byte> zeros(state_->shape_.bytes());
    QCCL_TRY(write_owed(zeros));
    state_->calls_ = 0;
    return {};
}

} // namespace qccl
