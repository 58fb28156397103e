// Compares the settings of all ranks, derives from them what creation needs, and fills this rank's
// SettingsDigest from its config and settings.
#include "comm/creation/settings_digest.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace qccl {

void SettingsDigest::set(Text &field, std::string_view text) {
    field = {};
    const std::string fitting = shortened(text, field.size() - 1);
    std::copy(fitting.begin(), fitting.end(), field.begin());
}

namespace {
struct DigestField {
    const char *name;
    SettingsDigest::Text SettingsDigest::*text;
    // Whether two different texts mean the same; null: they never do.
    bool (*are_equal)(std::string_view, std::string_view) = nullptr;
};
} // namespace

template <auto parse> static bool are_equal(std::string_view a, std::string_view b) {
    const auto value = parse(a);
    return value && value == parse(b);
}

// A peer's bytes need not end in a zero.
static std::string_view text_of(const SettingsDigest::Text &field) {
    const std::string_view all(field.data(), field.size());
    return all.substr(0, all.find('\0'));
}

static constexpr DigestField digest_fields[] = {
    {"codec", &SettingsDigest::codec},
    {"algorithm", &SettingsDigest::algorithm},
    {"QCCL_PLAN_FILE", &SettingsDigest::plan},
    {"QCCL_CHECKSUM", &SettingsDigest::checksum},
    {"reproducible", &SettingsDigest::reproducible},
    {"QCCL_SEGMENT", &SettingsDigest::segment, are_equal<parse_bytes>},
    {"QCCL_LANES", &SettingsDigest::lanes, are_equal<parse_count>},
    {"QCCL_ARENA", &SettingsDigest::arena, are_equal<parse_bytes>},
    {"QCCL_ONESHOT_MAX", &SettingsDigest::oneshot_max, are_equal<parse_bytes>},
    {"fusion", &SettingsDigest::fusion},
    {"QCCL_LINK_LATENCY", &SettingsDigest::link_latency, are_equal<parse_duration>},
    {"QCCL_LINK_RATE", &SettingsDigest::link_rate, are_equal<parse_rate>},
    {"QCCL_RACK_RATE", &SettingsDigest::rack_rate, are_equal<parse_rate>},
};

// Quotes a value without the source that may follow: "int8" by QCCL_CODEC.
static std::string quoted(std::string_view text) {
    const size_t end = std::min(text.find(" by QCCL_"), text.size());
    return '"' + std::string(text.substr(0, end)) + '"' + std::string(text.substr(end));
}

// Checks that the ranks of a host name the same rack.
static Done check_racks(std::span<const SettingsDigest> all) {
    std::map<SettingsDigest::Text, size_t> first_of; // rank, by host
    for (size_t rank = 0; rank < all.size(); rank++) {
        const size_t first = first_of.try_emplace(all[rank].host, rank).first->second;
        const SettingsDigest::Text &rack = all[rank].rack, &other = all[first].rack;
        if (rack == other) continue;
        constexpr int most = static_cast<int>(std::tuple_size_v<SettingsDigest::Text>);
        return Error::make(Code::mismatch,
                           "QCCL_RACK: rank %zu has \"%.*s\", rank %zu on the same host has "
                           "\"%.*s\"",
                           rank, most, rack.data(), first, most, other.data())
            .at_rank(static_cast<int64_t>(rank));
    }
    return {};
}

Done check_digests(std::span<const SettingsDigest> all) {
    QCCL_TRY(check_racks(all));
    for (size_t rank = 1; rank < all.size(); rank++)
        for (const DigestField &field : digest_fields) {
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

std::string host_name_of(const SettingsDigest &rank) {
    const std::string_view identity = text_of(rank.host);
    return std::string(identity.substr(0, identity.find(' ')));
}

std::string rack_of(const SettingsDigest &rank) { return std::string(text_of(rank.rack)); }

// Writes ascending numbers as "0-3, 8, 9".
static std::string runs_of(const std::vector<uint32_t> &numbers) {
    std::string text;
    for (size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) last++;
        text.append(first == 0 ? "" : ", ").append(std::to_string(numbers[first]));
        if (last != first) text.append("-").append(std::to_string(numbers[last]));
    }
    return text;
}

std::string hosts_text(std::span<const SettingsDigest> all, const std::vector<uint32_t> &hosts) {
    constexpr size_t most_shown = 16;
    std::map<uint32_t, std::vector<uint32_t>> ranks_of; // by host
    for (uint32_t rank = 0; rank < all.size(); rank++)
        ranks_of[hosts.empty() ? 0 : hosts[rank]].push_back(rank);
    std::string text = std::to_string(ranks_of.size());
    text += ranks_of.size() == 1 ? " host" : " hosts";
    for (const auto &[host, ranks] : ranks_of) {
        if (host == most_shown) return text + ", ...";
        text.append(host == 0 ? ": " : ", ").append(host_name_of(all[ranks.front()]));
        text.append(ranks.size() == 1 ? " has rank " : " has ranks ").append(runs_of(ranks));
    }
    return text;
}

bool has_node(const SettingsDigest &rank) { return !text_of(rank.node).empty(); }

static bool is_on_host(const SettingsDigest &rank) {
    SettingsDigest::Text host;
    SettingsDigest::set(host, "host");
    return rank.device == host;
}

size_t gpus_of(std::span<const SettingsDigest> all) {
    return all.size() - static_cast<size_t>(std::ranges::count_if(all, is_on_host));
}

bool are_on_gpus_alike(std::span<const SettingsDigest> all) {
    const auto vendor = [](const SettingsDigest &rank) {
        const std::string_view device(rank.device.data(), rank.device.size());
        return device.substr(0, device.find(':'));
    };
    return std::ranges::all_of(all, [&](const SettingsDigest &rank) {
        return !is_on_host(rank) && vendor(rank) == vendor(all.front());
    });
}

size_t ranks_per_gpu_of(std::span<const SettingsDigest> all) {
    std::map<std::pair<SettingsDigest::Text, SettingsDigest::Text>, size_t>
        ranks; // by host and device
    size_t most = 0;
    for (const SettingsDigest &each : all)
        if (!is_on_host(each)) most = std::max(most, ++ranks[{each.host, each.device}]);
    return most;
}

CodecRates slowest_codec_rates_of(std::span<const SettingsDigest> all) {
    CodecRates slowest = all.front().codec_rates;
    for (const SettingsDigest &each : all) slowest.slow_down_to(each.codec_rates);
    return slowest;
}

// Returns a number for each rank, from 0 on; ranks with equal texts have equal numbers.
static std::vector<uint32_t> numbers_of(std::span<const SettingsDigest> all,
                                        SettingsDigest::Text SettingsDigest::*field) {
    std::map<SettingsDigest::Text, uint32_t> known;
    std::vector<uint32_t> numbers;
    for (const SettingsDigest &each : all)
        numbers.push_back(
            known.try_emplace(each.*field, static_cast<uint32_t>(known.size())).first->second);
    return numbers;
}

static bool are_all_zero(const std::vector<uint32_t> &numbers) {
    return *std::max_element(numbers.begin(), numbers.end()) == 0;
}

std::vector<uint32_t> hosts_of(std::span<const SettingsDigest> all) {
    std::vector<uint32_t> hosts = numbers_of(all, &SettingsDigest::host);
    if (are_all_zero(hosts)) hosts.clear();
    return hosts;
}

std::vector<RankLocation> locations_of(std::span<const SettingsDigest> all) {
    const auto nodes = numbers_of(all, &SettingsDigest::node),
               hosts = numbers_of(all, &SettingsDigest::host),
               racks = numbers_of(all, &SettingsDigest::rack);
    if (are_all_zero(nodes) && are_all_zero(hosts)) return {};
    std::vector<RankLocation> spots;
    for (size_t rank = 0; rank < all.size(); rank++)
        spots.push_back({.node = nodes[rank], .host = hosts[rank], .rack = racks[rank]});
    return spots;
}

bool is_first_to_warn(std::span<const SettingsDigest> all, uint32_t rank) {
    return std::none_of(all.begin(), all.begin() + rank, [&](const SettingsDigest &lower) {
        return lower.warnings == all[rank].warnings;
    });
}

// ---- This rank's digest

SettingsDigest digest_of(const CommConfig &comm_config, const Settings &settings,
                         const CallPolicy &policy, const std::string &host, Tier tier) {
    SettingsDigest mine;
    SettingsDigest::set(mine.host, host);
    SettingsDigest::set(mine.node, settings.node.value_or(""));
    SettingsDigest::set(mine.rack, settings.rack.value_or(""));
    SettingsDigest::set(mine.device, comm_config.device);
    SettingsDigest::set(mine.codec, policy.codec_text());
    SettingsDigest::set(mine.algorithm, policy.algorithm_text());
    SettingsDigest::set(mine.plan, policy.plan_text());
    SettingsDigest::set(mine.checksum, settings.checksum ? "1" : "0");
    SettingsDigest::set(mine.reproducible, is_reproducible(comm_config, settings) ? "1" : "0");
    SettingsDigest::set(mine.segment, settings.as_written("QCCL_SEGMENT"));
    SettingsDigest::set(mine.lanes, settings.as_written("QCCL_LANES"));
    SettingsDigest::set(mine.arena, settings.as_written("QCCL_ARENA"));
    SettingsDigest::set(mine.oneshot_max, settings.as_written("QCCL_ONESHOT_MAX"));
    SettingsDigest::set(mine.fusion, std::to_string(fusion_bytes_of(comm_config, settings)));
    SettingsDigest::set(mine.link_latency, settings.as_written("QCCL_LINK_LATENCY"));
    SettingsDigest::set(mine.link_rate, settings.as_written("QCCL_LINK_RATE"));
    SettingsDigest::set(mine.rack_rate, settings.as_written("QCCL_RACK_RATE"));
    mine.codec_rates = CodecRates::of_tier(name(tier));
    return mine;
}

} // namespace qccl
