#include "perf/machine_options.hpp"

#include "base/choice.hpp"
#include "base/quantity.hpp"
#include "base/settings.hpp"
#include "engine/cut.hpp"
#include "kernels/kernels.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <thread>

#include <unistd.h>

namespace qccl::perf {

// A node of a host of a rack, and how many of its ranks are still to come.
struct Berth {
    Whereabouts spot;
    uint64_t left = 0;
};

static Error refuse_hosts(const std::string &text) {
    return Error::make(
        Code::invalid_argument,
        "'%.40s' is no list of hosts: expected numbers of ranks, with commas between "
        "hosts, + between nodes of a host, / between racks, or 64x8 for 64 hosts of 8",
        text.c_str());
}

static Result<std::vector<Berth>> parse_berths(const std::string &text) {
    std::vector<Berth> berths;
    uint64_t ranks = 0;
    Whereabouts spot;
    for (std::string_view rest = std::string_view(text).substr(0, text.find(':')); true;) {
        const size_t end = rest.find_first_of(",+/");
        const std::string_view word = rest.substr(0, end);
        const size_t cross = word.find('x');
        const auto times = cross == std::string_view::npos ? 1 : parse_count(word.substr(0, cross));
        const auto size = parse_count(word.substr(cross == std::string_view::npos ? 0 : cross + 1));
        if (!times || *times == 0 || !size || *size == 0 ||
            *size > (most_ranks_asked - ranks) / *times)
            return refuse_hosts(text);
        ranks += *times * *size;
        for (uint64_t i = 0; i < *times; i++) {
            if (i != 0) spot = {.node = 0, .host = spot.host + 1, .rack = spot.rack};
            berths.push_back({spot, *size});
        }
        if (end == std::string_view::npos) return berths;
        spot.node = rest[end] == '+' ? spot.node + 1 : 0;
        spot.host += rest[end] != '+';
        spot.rack += rest[end] == '/';
        rest.remove_prefix(end + 1);
    }
}

Result<std::shared_ptr<const Places>> parse_hosts(const std::string &text) {
    const size_t colon = text.find(':');
    const bool deals = colon != std::string::npos;
    if (deals && text.substr(colon) != ":round")
        return no_choice("order of ranks", text.substr(colon + 1), {"round"});
    QCCL_TRY(std::vector<Berth> berths, parse_berths(text));
    std::vector<Whereabouts> spots;
    for (bool has_more = true; has_more;) {
        has_more = false;
        for (Berth &berth : berths) {
            const uint64_t taken = deals ? std::min<uint64_t>(berth.left, 1) : berth.left;
            spots.insert(spots.end(), taken, berth.spot);
            berth.left -= taken;
            has_more = has_more || berth.left != 0;
        }
    }
    return std::shared_ptr<const Places>(std::make_shared<Places>(std::move(spots)));
}

// Of the host that has most.
static double ranks_of_host(const MachineQuestion &question) {
    if (!question.places) return question.ranks;
    size_t most = 0;
    const Partition &hosts = question.places->hosts();
    for (size_t host = 0; host < hosts.groups(); host++)
        most = std::max(most, hosts.ranks(host).size());
    return static_cast<double>(most);
}

double cores_of(const MachineQuestion &question) {
    return question.cores.value_or(std::max(1U, std::thread::hardware_concurrency()));
}

Result<Tables> tables_of(const MachineQuestion &question) {
    QCCL_TRY(Settings settings, read_settings(environ));
    if (question.bytes_per_second) settings.link_rate = question.bytes_per_second;
    if (question.latency) settings.link_latency = question.latency;
    const bool has_hosts = question.places && question.places->hosts().groups() > 1;
    const ShapeLimits limits =
        limits_of(cut_into(question.pieces, cut_by(settings, question.ranks, has_hosts)));
    if (settings.reproducible)
        return reproducible_tables(limits, limits_of(cut_by({}, question.ranks, false)));
    Tables tables;
    tables.speeds = speeds_by(settings, std::max(1.0, ranks_of_host(question) / cores_of(question)),
                              CodecRates::of_tier(name(best_kernels().tier)));
    if (!has_hosts) tables.speeds.eager_bytes = TransportOptions().line_bytes;
    tables.limits = limits;
    tables.usual_limits = limits_of(cut_by({}, question.ranks, has_hosts));
    tables.whole_up_to_bytes = settings.oneshot_max_bytes;
    return tables;
}

// Where a machine is described by a topology, its fabric is made of that instead.
Result<std::unique_ptr<Fabric>> fabric_of(const MachineQuestion &question, const Tables &tables) {
    TieredRates rates = tiered_rates(tables.speeds);
    rates.cores = cores_of(question);
    return make_tiered_fabric(question.ranks, question.places.get(), rates);
}

} // namespace qccl::perf
