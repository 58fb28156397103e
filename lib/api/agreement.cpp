#include "api/agreement.hpp"

#include "base/quantity.hpp"
#include "base/short_text.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace qccl {

static Error refuse_offer(const ProtocolOffer &of_rank_0, const ProtocolOffer &offer, size_t rank) {
    if (offer.byte_order != ProtocolOffer::expected_byte_order)
        return Error::make(Code::mismatch, "byte order: rank %zu has another one than rank 0", rank)
            .at_rank(static_cast<int64_t>(rank));
    return Error::make(Code::mismatch,
                       "protocol: rank %zu (version %u) speaks %u to %u, rank 0 (version %u) "
                       "speaks %u to %u",
                       rank, offer.version, offer.oldest, offer.newest, of_rank_0.version,
                       of_rank_0.oldest, of_rank_0.newest)
        .at_rank(static_cast<int64_t>(rank))
        .compared(of_rank_0.newest, offer.newest);
}

// Seen from any rank the sentence is the same: ranks are compared with rank 0 in its byte order.
static bool is_readable(const ProtocolOffer &of_rank_0, const ProtocolOffer &offer) {
    return offer.magic == of_rank_0.magic && offer.byte_order == of_rank_0.byte_order;
}

Done check_offers(std::span<const ProtocolOffer> all) {
    uint32_t oldest = all[0].oldest, newest = all[0].newest;
    for (size_t rank = 0; rank < all.size(); rank++) {
        const ProtocolOffer &offer = all[rank];
        if (!is_readable(all[0], offer)) return refuse_offer(all[0], offer, rank);
        oldest = std::max(oldest, offer.oldest);
        newest = std::min(newest, offer.newest);
        if (oldest > newest) return refuse_offer(all[0], offer, rank);
        if (offer.rank != rank || offer.size != all.size())
            return Error::make(Code::invalid_argument,
                               "rank %zu of %zu came as rank %u of %u; the all-gather must give "
                               "contributions in rank order",
                               rank, all.size(), offer.rank, offer.size)
                .at_rank(static_cast<int64_t>(rank))
                .compared(static_cast<int64_t>(rank), offer.rank);
    }
    return {};
}

void Agreement::set(Text &field, std::string_view text) {
    field = {};
    const std::string fitting = shortened(text, field.size() - 1);
    std::copy(fitting.begin(), fitting.end(), field.begin());
}

namespace {
struct AgreementField {
    const char *name;
    Agreement::Text Agreement::*text;
    // Whether two texts that differ mean the same.
    bool (*are_equal)(std::string_view, std::string_view) = nullptr;
};
} // namespace

template <auto parse> static bool are_equal(std::string_view a, std::string_view b) {
    const auto value = parse(a);
    return value && value == parse(b);
}

// A peer's bytes need not end in a zero.
static std::string_view text_of(const Agreement::Text &field) {
    const std::string_view all(field.data(), field.size());
    return all.substr(0, all.find('\0'));
}

static constexpr AgreementField agreement_fields[] = {
    {"codec", &Agreement::codec},
    {"algorithm", &Agreement::algorithm},
    {"QCCL_PLAN_FILE", &Agreement::plan},
    {"QCCL_CHECKSUM", &Agreement::checksum},
    {"reproducible", &Agreement::reproducible},
    {"QCCL_SEGMENT", &Agreement::segment, are_equal<parse_bytes>},
    {"QCCL_LANES", &Agreement::lanes, are_equal<parse_count>},
    {"QCCL_ARENA", &Agreement::arena, are_equal<parse_bytes>},
    {"QCCL_ONESHOT_MAX", &Agreement::oneshot_max, are_equal<parse_bytes>},
    {"QCCL_LINK_LATENCY", &Agreement::link_latency, are_equal<parse_duration>},
    {"QCCL_LINK_RATE", &Agreement::link_rate, are_equal<parse_rate>},
    {"QCCL_RACK_RATE", &Agreement::rack_rate, are_equal<parse_rate>},
};

// "int8" by QCCL_CODEC: of a value that names its source, the value alone is quoted.
static std::string quoted(std::string_view text) {
    const size_t end = std::min(text.find(" by QCCL_"), text.size());
    return '"' + std::string(text.substr(0, end)) + '"' + std::string(text.substr(end));
}

// A host is in one rack.
static Done check_racks(std::span<const Agreement> all) {
    std::map<Agreement::Text, size_t> first_of; // host: rank
    for (size_t rank = 0; rank < all.size(); rank++) {
        const size_t first = first_of.try_emplace(all[rank].host, rank).first->second;
        const Agreement::Text &rack = all[rank].rack, &other = all[first].rack;
        if (rack == other) continue;
        constexpr int most = static_cast<int>(std::tuple_size_v<Agreement::Text>);
        return Error::make(Code::mismatch,
                           "QCCL_RACK: rank %zu has \"%.*s\", rank %zu on the same host has "
                           "\"%.*s\"",
                           rank, most, rack.data(), first, most, other.data())
            .at_rank(static_cast<int64_t>(rank));
    }
    return {};
}

Done check_agreements(std::span<const Agreement> all) {
    QCCL_TRY(check_racks(all));
    for (size_t rank = 1; rank < all.size(); rank++)
        for (const AgreementField &field : agreement_fields) {
            const std::string_view of_rank_0 = text_of(all[0].*field.text);
            const std::string_view text = text_of(all[rank].*field.text);
            if (text == of_rank_0 || (field.are_equal && field.are_equal(text, of_rank_0)))
                continue;
            return Error::make(Code::mismatch,
                               "%s: rank %zu has %s, rank 0 has %s; all ranks need the same",
                               field.name, rank, quoted(text).c_str(), quoted(of_rank_0).c_str())
                .at_rank(static_cast<int64_t>(rank));
        }
    return {};
}

std::string host_name_of(const Agreement &rank) {
    const std::string_view identity = text_of(rank.host);
    return std::string(identity.substr(0, identity.find(' ')));
}

std::string rack_of(const Agreement &rank) { return std::string(text_of(rank.rack)); }

bool has_node(const Agreement &rank) { return !text_of(rank.node).empty(); }

static bool is_on_host(const Agreement &rank) {
    Agreement::Text host;
    Agreement::set(host, "host");
    return rank.device == host;
}

size_t gpus_of(std::span<const Agreement> all) {
    return all.size() - static_cast<size_t>(std::ranges::count_if(all, is_on_host));
}

bool are_on_gpus_alike(std::span<const Agreement> all) {
    const auto vendor = [](const Agreement &rank) {
        const std::string_view device(rank.device.data(), rank.device.size());
        return device.substr(0, device.find(':'));
    };
    return std::ranges::all_of(all, [&](const Agreement &rank) {
        return !is_on_host(rank) && vendor(rank) == vendor(all.front());
    });
}

size_t ranks_per_gpu_of(std::span<const Agreement> all) {
    std::map<std::pair<Agreement::Text, Agreement::Text>, size_t> ranks; // of host and device
    size_t most = 0;
    for (const Agreement &each : all)
        if (!is_on_host(each)) most = std::max(most, ++ranks[{each.host, each.device}]);
    return most;
}

CodecRates slowest_codec_rates_of(std::span<const Agreement> all) {
    CodecRates slowest = all.front().codec_rates;
    for (const Agreement &each : all) slowest.slow_down_to(each.codec_rates);
    return slowest;
}

// Equal texts have equal numbers, from 0 on.
static std::vector<uint32_t> numbers_of(std::span<const Agreement> all,
                                        Agreement::Text Agreement::*field) {
    std::map<Agreement::Text, uint32_t> known;
    std::vector<uint32_t> numbers;
    for (const Agreement &each : all)
        numbers.push_back(
            known.try_emplace(each.*field, static_cast<uint32_t>(known.size())).first->second);
    return numbers;
}

static bool are_all_zero(const std::vector<uint32_t> &numbers) {
    return *std::max_element(numbers.begin(), numbers.end()) == 0;
}

std::vector<uint32_t> hosts_of(std::span<const Agreement> all) {
    std::vector<uint32_t> hosts = numbers_of(all, &Agreement::host);
    if (are_all_zero(hosts)) hosts.clear();
    return hosts;
}

std::vector<Whereabouts> spots_of(std::span<const Agreement> all) {
    const auto nodes = numbers_of(all, &Agreement::node), hosts = numbers_of(all, &Agreement::host),
               racks = numbers_of(all, &Agreement::rack);
    if (are_all_zero(nodes) && are_all_zero(hosts)) return {};
    std::vector<Whereabouts> spots;
    for (size_t rank = 0; rank < all.size(); rank++)
        spots.push_back({.node = nodes[rank], .host = hosts[rank], .rack = racks[rank]});
    return spots;
}

bool is_first_to_warn(std::span<const Agreement> all, uint32_t rank) {
    return std::none_of(all.begin(), all.begin() + rank, [&](const Agreement &lower) {
        return lower.warnings == all[rank].warnings;
    });
}

} // namespace qccl
