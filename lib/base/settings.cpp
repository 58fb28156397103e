// Parses each setting by its row of one table, and the rules of QCCL_INJECT, of which it finds
// those without effect. The identity of the host consists of its name, the network name space and
// the boot id, as the system reports them.
#include "base/settings.hpp"

#include "base/system.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <array>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

// ---- Rules of QCCL_INJECT

static std::string_view next_part(std::string_view &text, char separator) {
    const size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return part;
}

static bool take_part(std::string_view part, InjectRule &rule, bool &has_fault) {
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (key == "rank" || key == "call") {
        const std::optional<uint64_t> number = parse_count(value);
        if (!number) return false;
        if (key == "call") {
            if (rule.call) return false;
            rule.call = *number;
            return true;
        }
        if (rule.rank || *number > INT32_MAX) return false;
        rule.rank = static_cast<uint32_t>(*number);
        return true;
    }

    if (has_fault) return false;
    has_fault = true;
    if (key == "delay") {
        const auto delay = parse_duration(value);
        rule.fault = Fault::delay;
        rule.delay = delay.value_or(std::chrono::nanoseconds());
        return delay.has_value();
    }
    rule.fault = part == "kill" ? Fault::kill : Fault::revoke;
    return part == "kill" || part == "revoke";
}

Result<std::vector<InjectRule>> parse_inject(std::string_view text) {
    std::vector<InjectRule> rules;
    while (!text.empty()) {
        const std::string_view whole = next_part(text, ';');
        if (whole.empty()) continue;
        InjectRule rule;
        bool has_fault = false;
        bool is_sound = true;
        for (std::string_view rest = whole; is_sound && !rest.empty();)
            is_sound = take_part(next_part(rest, ','), rule, has_fault);
        if (!is_sound || !has_fault)
            return invalid_argument(
                "\"%.*s\" is not a rule: expected [rank=N,][call=N,] and one of kill, "
                "delay=TIME (5s, 20ms) and revoke; rules are separated by ';'",
                static_cast<int>(std::min<size_t>(whole.size(), 80)), whole.data());
        rule.text = whole;
        rules.push_back(std::move(rule));
    }
    return rules;
}

static uint64_t first_call(const InjectRule &rule) { return rule.call.value_or(1); }

// Whether `rule` ends the calls of every rank that `other` names before `other` takes effect.
// `comes_first`: `rule` stands before `other` in the list.
static bool ends(const InjectRule &rule, const InjectRule &other, bool comes_first) {
    const bool is_felt_by_all = !rule.rank || rule.rank == other.rank;
    if (rule.fault == Fault::delay || !is_felt_by_all || rule.call == uint64_t{0}) return false;
    if (first_call(rule) != first_call(other)) return first_call(rule) < first_call(other);
    return rule.fault == Fault::kill && comes_first;
}

std::vector<std::string> futile_rules(std::span<const InjectRule> rules, uint32_t ranks) {
    std::vector<std::string> sentences;
    for (const InjectRule &rule : rules) {
        std::string reason;
        const auto end = std::find_if(rules.begin(), rules.end(), [&](const InjectRule &other) {
            return &other != &rule && ends(other, rule, &other < &rule);
        });
        if (rule.rank && *rule.rank >= ranks)
            reason = "the ranks are 0 to " + std::to_string(ranks - 1);
        else if (rule.call == uint64_t{0})
            reason = "calls count from 1";
        else if (rule.fault == Fault::delay && rule.delay.count() == 0)
            reason = "a delay of 0 is none";
        else if (end != rules.end())
            reason = "\"" + end->text + "\" ends all calls before";
        else
            continue;
        sentences.push_back("QCCL_INJECT: \"" + rule.text + "\" does nothing: " + reason);
    }
    return sentences;
}

// ---- All settings

static std::optional<std::string> parse_text(std::string_view text) { return std::string(text); }

static std::optional<bool> parse_flag(std::string_view text) {
    if (text != "0" && text != "1") return std::nullopt;
    return text == "1";
}

// Refuses zero.
template <auto parse> static auto parse_some(std::string_view text) {
    auto value = parse(text);
    if (value && *value <= decltype(+*value){}) value.reset();
    return value;
}

// At most 1 s: a number without a unit counts seconds, and no message takes that long.
static std::optional<std::chrono::nanoseconds> parse_latency(std::string_view text) {
    const auto value = parse_some<parse_duration>(text);
    return value && *value <= std::chrono::seconds(1) ? value : std::nullopt;
}

static std::optional<uint64_t> parse_port(std::string_view text) {
    const auto value = parse_some<parse_count>(text);
    return value && *value <= UINT16_MAX ? value : std::nullopt;
}

template <auto field, auto parse>
static Done store(const SettingRow &row, std::string_view text, Settings &settings) {
    const auto value = parse(text);
    if (!value)
        return invalid_argument("%s=%.*s: expected %s", row.name,
                                static_cast<int>(std::min<size_t>(text.size(), 60)), text.data(),
                                row.type);
    settings.*field = *value;
    return {};
}

template <auto field, auto parse>
static Done store_or_auto(const SettingRow &row, std::string_view text, Settings &settings) {
    if (text == "auto") return {};
    return store<field, parse>(row, text, settings);
}

static Done store_inject(const SettingRow &row, std::string_view text, Settings &settings) {
    auto rules = parse_inject(text);
    if (!rules) return invalid_argument("%s: %.200s", row.name, rules.error().text);
    settings.inject = std::move(*rules);
    return {};
}

static constexpr SettingRow table[] = {
    {"QCCL_CODEC", "none", "a codec such as int8, or items such as int4@comm=dp*,bytes>=1M;none",
     "codec of sums and averages of floating point that name none themselves; of several items the "
     "first counts whose conditions behind the @ the call meets",
     store<&Settings::codec, parse_text>},
    {"QCCL_ALGO", "auto", "an algorithm or auto, or items such as ring@bytes>=1M;auto",
     "algorithm of every collective that has it, by the first item whose conditions the call "
     "meets; "
     "auto: the planner chooses",
     store_or_auto<&Settings::algorithm, parse_text>},
    {"QCCL_PLAN_FILE", "", "a path",
     "file with codec, algorithm and cut of calls, for what neither the program nor QCCL_CODEC and "
     "QCCL_ALGO say; the same on all ranks",
     store<&Settings::plan_file, parse_text>},
    {"QCCL_DEBUG", "warn", "warn, info or trace",
     "how much is logged; info: also the wire-up, and each choice of the planner once; trace: also "
     "each call",
     store<&Settings::debug, parse_log_level>},
    {"QCCL_DEBUG_FILE", "stderr", "a path or stderr",
     "where the log goes; %h in it is the host, %p the process",
     store<&Settings::debug_file, parse_text>},
    {"QCCL_RECORD", "auto", "a folder, off or auto",
     "where ranks record their last calls for qccl-info attach; auto: in memory, as long as they "
     "live",
     store_or_auto<&Settings::record, parse_text>},
    {"QCCL_TRACE", "", "a path",
     "trace of every rank's calls and what they do, for Perfetto; %r in it is the rank, %h the "
     "host, %p the process",
     store<&Settings::trace, parse_text>},
    {"QCCL_RECORD_CALLS", "", "a path",
     "every rank's calls with shapes and times, without data, for qccl-info calls; %r, %h and %p "
     "as in QCCL_TRACE",
     store<&Settings::record_calls, parse_text>},
    {"QCCL_AUDIT", "", "codecs such as int8,int4",
     "codecs that samples of the job's calls are tried with beside them; rank 0 ends with a table "
     "of what each would lose and gain",
     store<&Settings::audit, parse_text>},
    {"QCCL_AUDIT_FILE", "", "a path",
     "every rank's table of QCCL_AUDIT as JSON; %r, %h and %p as in QCCL_TRACE",
     store<&Settings::audit_file, parse_text>},
    {"QCCL_PEER_TIMEOUT", "30s", "a time above 0, such as 30 or 500ms",
     "how long ranks that have met wait for each other's shared memory, for a host that is silent, "
     "to say who disagrees, in a shrink for a rank that makes other calls, and to tell ranks that "
     "come too late",
     store<&Settings::peer_timeout, parse_some<parse_duration>>},
    {"QCCL_TIMEOUT", "1800s", "a time such as 1800 or 30m; 0: for ever",
     "how long creation, calls, qcclCommFinalize and qcclCommDestroy wait for a rank that lives "
     "but does not come",
     store<&Settings::timeout, parse_duration>},
    {"QCCL_CHECKSUM", "0", "0 or 1", "add a CRC32C to every encoded chunk and check it",
     store<&Settings::checksum, parse_flag>},
    {"QCCL_REPRODUCIBLE", "0", "0 or 1",
     "1: the algorithm follows from ranks, count, type, op and codec alone, so that results are "
     "the "
     "same bits on every machine",
     store<&Settings::reproducible, parse_flag>},
    {"QCCL_TIER", "auto", "names of SIMD tiers, separated by commas, or auto",
     "which SIMD tiers may be used; auto: the best that the CPU has",
     store_or_auto<&Settings::tier, parse_text>},
    {"QCCL_SEGMENT", "auto", "a size above 0 such as 256K, or auto",
     "bytes of a segment, the piece in which a message is encoded, sent and decoded",
     store_or_auto<&Settings::segment_bytes, parse_some<parse_bytes>>},
    {"QCCL_ARENA", "auto", "a size above 0 such as 16M, or auto",
     "bytes of shared memory that a rank sends from; a call that needs more gets it while it runs; "
     "in a communicator with GPUs ranks keep it",
     store_or_auto<&Settings::arena_bytes, parse_some<parse_bytes>>},
    {"QCCL_LANES", "auto", "a number above 0, or auto", "segments in flight at a time",
     store_or_auto<&Settings::lanes, parse_some<parse_count>>},
    {"QCCL_ONESHOT_MAX", "auto", "a size such as 2K, or auto",
     "largest message that every rank sends whole to all others",
     store_or_auto<&Settings::oneshot_max_bytes, parse_bytes>},
    {"QCCL_FUSION", "64M", "a size such as 64M; 0: calls are not fused",
     "bytes of small calls of a group that run as one call",
     store<&Settings::fusion_bytes, parse_bytes>},
    {"QCCL_CALIBRATION", "auto", "a path, off or auto",
     "file of measured figures that the planner counts with, as `qccl-perf calibrate` writes it, "
     "on "
     "rank 0; auto: the one in the user's cache directory, if there is one",
     store_or_auto<&Settings::calibration, parse_text>},
    {"QCCL_LINK_LATENCY", "auto", "a time above 0 and up to 1s, such as 30us, or auto",
     "what the planner takes a message between hosts to need; auto: 5us",
     store_or_auto<&Settings::link_latency, parse_latency>},
    {"QCCL_LINK_RATE", "auto", "a rate a second such as 10gbit, 100G, 100Gbps or 12.5GB/s, or auto",
     "what the planner takes a host's link to carry each way; auto: as a calibration "
     "or NICs say; where they say nothing, nothing is encoded for its sake",
     store_or_auto<&Settings::link_rate, parse_some<parse_rate>>},
    {"QCCL_RACK_RATE", "auto", "a rate a second such as 40gbit or 5GB/s, or auto",
     "what planner and simulator take a rack's line to the others to carry each way, beside a "
     "host's rate that is known; auto: as a topology says, or all that its hosts send",
     store_or_auto<&Settings::rack_rate, parse_some<parse_rate>>},
    {"QCCL_SOCKET_IFNAME", "auto", "interfaces such as ib0,eth or ^docker, or auto",
     "where ranks meet: names, beginnings of names (=name: not as one), addresses; ^: all but "
     "those",
     store_or_auto<&Settings::socket_interface, parse_text>},
    {"QCCL_PORT", "auto", "a port from 1 to 65535, or auto",
     "where rank 0 is met when a launcher's variables say who is who; auto: MASTER_PORT + 1, or by "
     "the job's number",
     store_or_auto<&Settings::port, parse_port>},
    {"QCCL_SECRET_FILE", "", "a path",
     "file with a secret of the job's ranks, without which a launcher's job trusts the network",
     store<&Settings::secret_file, parse_text>},
    {"QCCL_HOSTID", "auto", "any text, or auto",
     "ranks with equal texts count as on one host; auto: the host's name and network",
     store_or_auto<&Settings::host_id, parse_text>},
    {"QCCL_NODE", "auto", "any text, or auto",
     "ranks of a host with equal texts count as near each other; auto: the NUMA node they are "
     "bound to",
     store_or_auto<&Settings::node, parse_text>},
    {"QCCL_RACK", "auto", "any text, or auto",
     "hosts with equal texts count as in one rack; auto: all are",
     store_or_auto<&Settings::rack, parse_text>},
    {"QCCL_UCX_TLS", "auto", "names of UCX's transports such as tcp or ^tcp, or auto",
     "what UCX may use between hosts, save shared memory; auto: UCX_TLS, or all there is",
     store_or_auto<&Settings::ucx_transports, parse_text>},
    {"QCCL_UCX_DEVICES", "auto", "names of UCX's devices such as eth0 or mlx5_0:1, or auto",
     "what UCX may use between hosts; auto: UCX_NET_DEVICES, or all there is",
     store_or_auto<&Settings::ucx_devices, parse_text>},
    {"QCCL_SPIN", "auto", "a time such as 50us, or auto",
     "how long a wait spins before it sleeps; auto: 20us (50us for a GPU's stream), or none where "
     "ranks outnumber cores",
     store_or_auto<&Settings::spin, parse_duration>},
    {"QCCL_PROGRESS_CPU", "auto", "a CPU's number, or auto",
     "where the threads of host streams run; auto: anywhere",
     store_or_auto<&Settings::progress_cpu, parse_count>},
    {"QCCL_INJECT", "", "rules such as rank=3,call=100,kill",
     "faults to inject: [rank=N,][call=N,]kill|delay=TIME|revoke, separated by ';'", store_inject},
};

std::span<const SettingRow> settings_table() { return table; }

std::string_view Settings::as_written(std::string_view name) const {
    for (size_t row = 0; row < values.size(); row++)
        if (name == table[row].name) return values[row].text;
    return {};
}

bool Settings::is_set(std::string_view name) const {
    for (size_t row = 0; row < values.size(); row++)
        if (name == table[row].name) return values[row].origin == Origin::environment;
    return false;
}

static void warn_of_unknown(std::string_view entry, std::vector<std::string> &warnings) {
    // Enough for every typing error; a longer name is no misspelt setting.
    static constexpr size_t longest_name = 64;
    const std::string_view name = entry.substr(0, entry.find('=')).substr(0, longest_name);
    static constexpr std::string_view prefix = "QCCL_";
    if (!name.starts_with(prefix)) return;
    // The Python package reads this one before it loads the library.
    if (name == "QCCL_LIBRARY") return;
    for (const SettingRow &row : table)
        if (name == row.name) return;
    // Up to half of the characters behind QCCL_ (at least 2) may be wrong in a name that still
    // suggests a setting.
    const size_t most_edits = std::max<size_t>((name.size() - prefix.size()) / 2, 2);
    const std::string sentence = std::string(name) + " is not a setting of QCCL; ";
    std::string capitals(name);
    for (char &letter : capitals)
        if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
    const auto meant = nearest(capitals, names_of(table), most_edits);
    warnings.push_back(meant ? sentence + "did you mean " + std::string(*meant) + "?"
                             : sentence + "qccl-info settings lists those that there are");
}

// Returns the first of several variables with the same name, as getenv does.
static std::string_view look_up(const char *const *environment, std::string_view name) {
    for (; *environment; environment++) {
        const std::string_view entry = *environment;
        if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
            return entry.substr(name.size() + 1);
    }
    return {};
}

Result<Settings> read_settings(const char *const *environment) {
    Settings settings;
    for (const SettingRow &row : table) {
        const std::string_view said = look_up(environment, row.name);
        const std::string_view text = said.empty() ? row.built_in : said;
        QCCL_TRY(row.store(row, text, settings));
        settings.values.push_back(
            {std::string(text), said.empty() ? Origin::built_in : Origin::environment});
    }
    for (; *environment; environment++) warn_of_unknown(*environment, settings.warnings);
    return settings;
}

// ---- Identity of the host

Result<std::string> host_identity(const Settings &settings) {
    if (settings.host_id) return *settings.host_id;
    QCCL_TRY(const std::string boot, boot_id());
    std::array<char, 65> name{};
    gethostname(name.data(), name.size() - 1);
    struct stat network {};
    stat("/proc/self/ns/net", &network);
    return std::string(name.data()) + " " + std::to_string(network.st_ino) + " " + boot;
}

} // namespace qccl
