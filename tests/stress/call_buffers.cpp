// Lays out, fills and checks the buffers that call_buffers.hpp describes.
#include "call_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

namespace stress {

namespace {

constexpr size_t guard_bytes = 64;
constexpr std::byte guard{0xA5};

} // namespace

CallBuffers::CallBuffers(const Call &call, int rank, int ranks, Random &local, WrongPart wrong)
    : call_(call), rank_(rank), ranks_(ranks), values_(call, ranks), sent_(sent_parts(wrong)),
      received_(received_parts(wrong)) {
    if (call.has_stride() && local.below(4) == 0)
        stride_ = call.count + static_cast<size_t>(local.below(9));
    const bool is_in_place = local.below(2) == 0 && can_be_in_place();
    lay_out(sent_, local);
    lay_out(received_, local);
    if (is_in_place) lay_out_in_place();
    send_counts_ = counts_in(sent_);
    send_displs_ = places_in(sent_);
    recv_counts_ = counts_in(received_);
    recv_displs_ = places_in(received_);
    const bool has_send = !is_in_place || !call.gathers();
    const bool has_recv = !is_in_place || call.gathers();
    if (has_send) send_.resize(bytes(end_of(sent_)) + guard_bytes);
    if (has_recv) recv_.resize(bytes(end_of(received_)) + guard_bytes);
    refill();
}

size_t CallBuffers::first_of(int from, int to) const {
    size_t first = 0;
    if (!call_.scatters() && !call_.exchanges()) return first;
    for (int before = 0; before < to; before++) first += call_.part(from, before);
    return first;
}

// The part for each rank, or one vector.
std::vector<CallBuffers::Part> CallBuffers::sent_parts(WrongPart wrong) const {
    std::vector<Part> parts;
    if (call_.kind == Kind::message && rank_ != call_.root) return parts;
    if (!call_.scatters() && !call_.exchanges()) {
        parts.push_back({0, call_.part(rank_, rank_), rank_, 0, 0});
        if (wrong.peer >= 0 && !wrong.is_received) parts[0].count++;
        return parts;
    }
    if (call_.has_root() && rank_ != call_.root) return parts;
    for (int to = 0; to < ranks_; to++) {
        parts.push_back({0, call_.part(rank_, to), rank_, 0, first_of(rank_, to)});
        if (to == wrong.peer && !wrong.is_received) parts.back().count++;
    }
    return parts;
}

std::vector<CallBuffers::Part> CallBuffers::received_parts(WrongPart wrong) const {
    std::vector<Part> parts;
    const size_t count = call_.part(rank_, rank_);
    const int before = (rank_ + ranks_ - 1) % ranks_;
    switch (call_.kind) {
    case Kind::broadcast: return {{0, count, call_.root, 0, 0}};
    case Kind::messages: return {{0, count, before, 0, 0}};
    case Kind::message:
        if (rank_ == call_.dest) parts.push_back({0, count, call_.root, 0, 0});
        return parts;
    case Kind::scatter:
    case Kind::scatter_v:
        parts.push_back({0, count, call_.root, 0, first_of(call_.root, rank_)});
        if (wrong.peer >= 0 && wrong.is_received) parts[0].count++;
        return parts;
    case Kind::reduce_scatter:
    case Kind::reduce_scatter_v: return {{0, count, 0, ranks_, first_of(rank_, rank_)}};
    case Kind::scan: return {{0, count, 0, rank_ + 1, 0}};
    case Kind::exscan:
        if (rank_ > 0) parts.push_back({0, count, 0, rank_, 0});
        return parts;
    case Kind::all_reduce: return {{0, count, 0, ranks_, 0}};
    case Kind::reduce:
        if (rank_ == call_.root) parts.push_back({0, count, 0, ranks_, 0});
        return parts;
    default: break;
    }
    if (call_.has_root() && rank_ != call_.root) return parts;
    for (int from = 0; from < ranks_; from++) {
        parts.push_back({0, call_.part(from, rank_), from, 0, first_of(from, rank_)});
        if (from == wrong.peer && wrong.is_received) parts.back().count++;
    }
    return parts;
}

// Puts the parts after one another; those of a v-form in any order and with gaps.
void CallBuffers::lay_out(std::vector<Part> &parts, Random &local) {
    if (stride_ > 0 && parts.size() == static_cast<size_t>(ranks_) && ranks_ > 1) {
        for (size_t i = 0; i < parts.size(); i++) parts[i].at = i * stride_;
        return;
    }
    std::vector<size_t> order(parts.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    const bool has_gaps = call_.is_v_form() && parts.size() > 1 && local.below(2) == 0;
    if (has_gaps) local.shuffle(order);
    size_t end = 0;
    for (const size_t i : order) {
        if (has_gaps) end += static_cast<size_t>(local.below(4));
        parts[i].at = end;
        end += parts[i].count;
    }
}

bool CallBuffers::can_be_in_place() const {
    if (call_.kind == Kind::messages || call_.kind == Kind::message) return false;
    if (sent_.empty() || received_.empty()) return false;
    if (call_.kind != Kind::all_to_all_v) return true;
    return std::equal(
        sent_.begin(), sent_.end(), received_.begin(),
        [](const Part &sent, const Part &received) { return sent.count == received.count; });
}

// The rank's own part lies where the larger vector has it.
void CallBuffers::lay_out_in_place() {
    const auto own = static_cast<size_t>(rank_);
    if (call_.gathers()) shift_ = bytes(received_[own].at);
    if (call_.scatters()) shift_ = bytes(sent_[own].at);
    if (call_.exchanges())
        for (size_t i = 0; i < sent_.size(); i++) received_[i].at = sent_[i].at;
}

size_t CallBuffers::end_of(const std::vector<Part> &parts) {
    size_t end = 0;
    for (const Part &part : parts) end = std::max(end, part.at + part.count);
    return end;
}
std::vector<size_t> CallBuffers::counts_in(const std::vector<Part> &parts) {
    std::vector<size_t> counts;
    for (const Part &part : parts) counts.push_back(part.count);
    return counts;
}
std::vector<size_t> CallBuffers::places_in(const std::vector<Part> &parts) {
    std::vector<size_t> places;
    for (const Part &part : parts) places.push_back(part.at);
    return places;
}

void CallBuffers::refill() {
    std::fill(send_.begin(), send_.end(), guard);
    std::fill(recv_.begin(), recv_.end(), guard);
    auto *const values = static_cast<std::byte *>(const_cast<void *>(send()));
    for (const Part &part : sent_)
        for (size_t i = 0; i < part.count; i++)
            values_.write_input(rank_, part.first + i, values + bytes(part.at + i));
}

bool CallBuffers::has_values(const std::byte *values, const std::vector<Part> &parts) const {
    for (const Part &part : parts)
        for (size_t i = 0; i < part.count; i++) {
            const std::byte *const element = values + bytes(part.at + i);
            const bool is_right = part.covered > 0
                                      ? values_.is_combined(part.covered, part.first + i, element)
                                      : values_.is_input(part.of, part.first + i, element);
            if (!is_right) return false;
        }
    return true;
}

bool CallBuffers::are_right() const {
    const auto *const received = recv_.empty() ? send_.data() + shift_ : recv_.data();
    return has_values(received, received_);
}

bool CallBuffers::has_guards(const std::vector<std::byte> &buffer, const std::vector<Part> &parts,
                             size_t shift) const {
    std::vector<bool> is_used(buffer.size());
    for (const Part &part : parts)
        std::fill_n(is_used.begin() + static_cast<ptrdiff_t>(shift + bytes(part.at)),
                    bytes(part.count), true);
    for (size_t i = 0; i < buffer.size(); i++)
        if (!is_used[i] && buffer[i] != guard) return false;
    return true;
}

// In place, the bytes of the larger vector that are no result are undefined.
bool CallBuffers::are_intact() const {
    if (recv_.empty()) return has_guards(send_, sent_, 0);
    if (!has_guards(recv_, received_, 0)) return false;
    if (send_.empty()) return true;
    if (!has_guards(send_, sent_, 0)) return false;
    for (const Part &part : sent_) {
        std::byte expected[max_element_bytes];
        for (size_t i = 0; i < part.count; i++) {
            values_.write_input(rank_, part.first + i, expected);
            if (std::memcmp(send_.data() + bytes(part.at + i), expected, bytes(1)) != 0)
                return false;
        }
    }
    return true;
}

uint64_t CallBuffers::hash() const {
    const auto *const received = recv_.empty() ? send_.data() + shift_ : recv_.data();
    uint64_t all = 0;
    for (const Part &part : received_) {
        const auto *const first = reinterpret_cast<const char *>(received + bytes(part.at));
        all = all * 31 + std::hash<std::string_view>()({first, bytes(part.count)});
    }
    return all;
}

} // namespace stress
