// Checks counts and displacements by name and entry, searches overlaps among parts in the order of
// their starts, and fills in the parts that a v-form does not name.
#include "api/call/v_forms.hpp"

#include <algorithm>
#include <cinttypes>
#include <utility>
#include <vector>

namespace qccl {

namespace {

// A part of a buffer that this rank has, and its rank.
struct OwnPart {
    uint64_t start = 0, end = 0;
    uint32_t rank = 0;
    bool operator==(const OwnPart &) const = default;
};

// Of a buffer, and of a call: as in check_count, encoded sizes do not overflow.
uint64_t most_elements(DataType type) { return PTRDIFF_MAX / type_bytes(type); }
uint64_t most_values(DataType type) { return std::min(most_elements(type), uint64_t{1} << 56); }

Done check_entry(const char *name, uint32_t rank, uint64_t value, DataType type) {
    if (value <= most_elements(type)) return {};
    return invalid_argument("%s[%" PRIu32 "] is %" PRIu64 ", but memory can hold at most %" PRIu64
                            " values of %s",
                            name, rank, value, most_elements(type), qccl::name(type));
}

Result<std::vector<VFormParts::PartRange>> take_all(const GivenParts &given, DataType type,
                                                    uint32_t ranks) {
    if (!given.counts)
        return invalid_argument("%s is NULL, but %" PRIu32 " counts are to be there",
                                given.counts_name, ranks);
    std::vector<VFormParts::PartRange> parts(ranks);
    uint64_t end = 0, total = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        VFormParts::PartRange &part = parts[rank];
        part = {.start = given.displs ? given.displs[rank] : end, .count = given.counts[rank]};
        QCCL_TRY(check_entry(given.counts_name, rank, part.count, type));
        if (given.displs) QCCL_TRY(check_entry(given.displs_name, rank, part.start, type));
        end = part.start + part.count;
        if (!check_entry(given.counts_name, rank, end, type))
            return invalid_argument("%s[%" PRIu32 "] is %" PRIu64
                                    ", but the part begins at %" PRIu64
                                    ", and memory can hold at most %" PRIu64 " values of %s",
                                    given.counts_name, rank, part.count, part.start,
                                    most_elements(type), qccl::name(type));
        // Parts that are sent may overlap, so that together they may have more than a buffer holds.
        total += part.count;
        if (total > most_values(type))
            return invalid_argument("%s: the parts up to rank %" PRIu32 " have %" PRIu64
                                    " values, and a call can have at most %" PRIu64 " of %s",
                                    given.counts_name, rank, total, most_values(type),
                                    qccl::name(type));
    }
    return parts;
}

// Returns the parts that are not empty, as bytes from `start` on, in the order of their starts.
// `slot_of` makes a slot of the buffer, which tells whether this rank has the part.
std::vector<OwnPart> own_parts(const std::vector<VFormParts::PartRange> &parts,
                               Slot (*slot_of)(uint32_t), Collective v_form, const Team &team,
                               uint64_t start, uint64_t value_bytes) {
    std::vector<OwnPart> own;
    for (uint32_t rank = 0; rank < parts.size(); rank++) {
        const auto [first, count] = parts[rank];
        if (count != 0 && has_slot(v_form, team, slot_of(rank)))
            own.push_back(
                {start + first * value_bytes, start + (first + count) * value_bytes, rank});
    }
    std::ranges::sort(own, {}, &OwnPart::start);
    return own;
}

uint64_t address(const Buffer &buffer) { return reinterpret_cast<uintptr_t>(buffer.start); }
std::vector<OwnPart> sent_parts(const VFormParts &parts, const Team &team, const Buffer &send,
                                size_t value_bytes) {
    return own_parts(parts.sent, input, parts.v_form, team, address(send), value_bytes);
}
std::vector<OwnPart> received_parts(const VFormParts &parts, const Team &team, const Buffer &recv,
                                    size_t value_bytes) {
    return own_parts(parts.received, output, parts.v_form, team, address(recv), value_bytes);
}

Done check_disjoint(const GivenParts &given, const VFormParts &parts, const Team &team) {
    if (!given.displs) return {};
    const std::vector<OwnPart> own = received_parts(parts, team, {}, 1);
    for (size_t i = 1; i < own.size(); i++)
        if (own[i].start < own[i - 1].end)
            return invalid_argument("%s: the parts of rank %" PRIu32 " and of rank %" PRIu32
                                    " overlap in recv",
                                    given.displs_name, std::min(own[i - 1].rank, own[i].rank),
                                    std::max(own[i - 1].rank, own[i].rank));
    return {};
}

Done check_own(const PartArguments &given, const VFormParts &parts, const CollectiveRow &row,
               uint32_t rank) {
    const uint64_t sent = parts.sent[rank].count, received = parts.received[rank].count;
    if (sent == received) return {};
    const auto text = [rank](const GivenParts &side, bool has_one) {
        return has_one ? std::string(side.count_name)
                       : std::string(side.counts_name) + "[" + std::to_string(rank) + "]";
    };
    return invalid_argument("%s is %" PRIu64 ", but %s is %" PRIu64
                            ", and this rank sends itself its own part",
                            text(given.send, row.gathers).c_str(), sent,
                            text(given.recv, row.scatters).c_str(), received)
        .compared(static_cast<int64_t>(sent), static_cast<int64_t>(received));
}

} // namespace

Result<std::shared_ptr<const VFormParts>> take_parts(Collective v_form, const PartArguments &given,
                                                     DataType type, const Team &team) {
    const CollectiveRow &row = row_of(v_form);
    VFormParts parts{.v_form = v_form,
                     .sent = std::vector<VFormParts::PartRange>(team.size),
                     .received = std::vector<VFormParts::PartRange>(team.size)};
    // The buffer has a part for each rank.
    if (!row.gathers && has_input(v_form, team)) {
        QCCL_TRY(parts.sent, take_all(given.send, type, team.size));
    }
    if (!row.scatters && has_output(v_form, team)) {
        QCCL_TRY(parts.received, take_all(given.recv, type, team.size));
        QCCL_TRY(check_disjoint(given.recv, parts, team));
    }
    if (are_counts_common(v_form)) {
        // The other buffer has this rank's own part alone, at its start.
        auto &lacking = row.gathers ? parts.sent : parts.received;
        lacking = row.gathers ? parts.received : parts.sent;
        for (VFormParts::PartRange &part : lacking) part.start = 0;
    } else if (row.gathers) {
        QCCL_TRY(check_count(given.send.count_name, given.send.count, type, 1));
        parts.sent[team.rank].count = given.send.count;
    } else if (row.scatters) {
        QCCL_TRY(check_count(given.recv.count_name, given.recv.count, type, 1));
        parts.received[team.rank].count = given.recv.count;
    }
    if (row.exchanges || (row.has_root && team.rank == team.root))
        QCCL_TRY(check_own(given, parts, row, team.rank));
    return std::make_shared<const VFormParts>(std::move(parts));
}

static bool are_given(const std::vector<VFormParts::PartRange> &parts, const GivenParts &given) {
    if (!given.counts) return false;
    uint64_t end = 0;
    for (size_t rank = 0; rank < parts.size(); rank++) {
        const uint64_t start = given.displs ? given.displs[rank] : end;
        if (parts[rank] != VFormParts::PartRange{start, given.counts[rank]}) return false;
        end = start + given.counts[rank];
    }
    return true;
}

bool are_given(const VFormParts &parts, const PartArguments &given, const Team &team) {
    const CollectiveRow &row = row_of(parts.v_form);
    if (!row.gathers && has_input(parts.v_form, team) && !are_given(parts.sent, given.send))
        return false;
    if (!row.scatters && has_output(parts.v_form, team) && !are_given(parts.received, given.recv))
        return false;
    if (parts.are_common()) return true;
    if (row.gathers) return parts.sent[team.rank].count == given.send.count;
    return !row.scatters || parts.received[team.rank].count == given.recv.count;
}

std::shared_ptr<const VFormParts> in_reals(const VFormParts &parts, unsigned reals) {
    VFormParts scaled = parts;
    for (std::vector<VFormParts::PartRange> *each : {&scaled.sent, &scaled.received})
        for (VFormParts::PartRange &part : *each) {
            part.start *= reals;
            part.count *= reals;
        }
    return std::make_shared<const VFormParts>(std::move(scaled));
}

VFormParts parts_of_blocks(Collective collective, uint64_t count, uint64_t stride,
                           const Team &team) {
    const auto *const form = std::ranges::find(v_forms, collective, &VForm::of);
    const CollectiveRow &row = row_of(collective);
    VFormParts parts{.v_form = form->collective, .sent = {}, .received = {}};
    for (uint32_t rank = 0; rank < team.size; rank++) {
        parts.sent.push_back({.start = row.gathers ? 0 : rank * stride, .count = count});
        parts.received.push_back({.start = row.scatters ? 0 : rank * stride, .count = count});
    }
    return parts;
}

Done check_parts_apart(const VFormParts &parts, const Team &team, const Buffer &send,
                       const Buffer &recv, size_t value_bytes) {
    const std::vector<OwnPart> received = received_parts(parts, team, recv, value_bytes);
    for (const OwnPart &sent : sent_parts(parts, team, send, value_bytes)) {
        const auto next = std::ranges::upper_bound(received, sent.start, {}, &OwnPart::end);
        if (next == received.end() || next->start >= sent.end || *next == sent) continue;
        return invalid_argument(
            "send (part of rank %" PRIu32 ") and recv (part of rank %" PRIu32 ") overlap%s",
            sent.rank, next->rank, sent.rank == next->rank ? ", but are not the same" : "");
    }
    return {};
}

} // namespace qccl
