// Settings that the ranks of a communicator compare when they create it, and what creation derives
// from the settings of all ranks: hosts, places, GPUs, the slowest rates. The first difference
// gives a sentence that is the same on every rank. Used by creation. Everything here is pure, and
// any thread may use it.
#pragma once

#include "base/result.hpp"
#include "comm/comm_config.hpp"
#include "device/kernels.hpp"
#include "plan/cost.hpp"
#include "schedule/rank_topology.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// Settings that affect other ranks, as texts padded with zeros. Sizes, times and rates are as the
// user has written them, and agree if their values are equal.
struct SettingsDigest {
    using Text = std::array<char, 64>;

    // Where the rank is: ranks with different hosts share no memory. Not compared, except that the
    // ranks of a host must name the same rack.
    Text host{};
    Text node{}; // QCCL_NODE; empty: from the topology graph
    Text rack{};
    Text device{}; // not compared
    Text codec{};
    Text algorithm{};
    Text plan{}; // the rules of QCCL_PLAN_FILE
    Text checksum{};
    Text reproducible{};
    Text segment{};
    Text lanes{};
    Text arena{};
    Text oneshot_max{};
    Text fusion{};
    Text link_latency{};
    Text link_rate{};
    Text rack_rate{};
    CodecRates codec_rates;       // of the rank's kernels; not compared, the slowest count
    uint64_t has_calibration = 0; // 1: it has one to hand out; only rank 0's counts, not compared
    uint64_t warnings = 0;        // hash of the warnings, which one rank logs; not compared

    // A text that is too long keeps its beginning, and a hash replaces its end.
    static void set(Text &field, std::string_view text);
};
static_assert(sizeof(SettingsDigest) == 1592,
              "a new field or codec changes the bytes that ranks exchange: raise newest_protocol, "
              "too");

// Returns a mismatch for the first difference. `all` is in rank order, here and below.
Done check_digests(std::span<const SettingsDigest> all);
// Returns the number of each rank's host, from 0 on; empty if all ranks are on one host.
std::vector<uint32_t> hosts_of(std::span<const SettingsDigest> all);
// Returns the name of the rank's host for people: the first word of its identity.
std::string host_name_of(const SettingsDigest &rank);
std::string rack_of(const SettingsDigest &rank);
// Returns a list such as "2 hosts: alpha has ranks 0-3, beta has ranks 4-7". `hosts`: result of
// hosts_of().
std::string hosts_text(std::span<const SettingsDigest> all, const std::vector<uint32_t> &hosts);
// Whether the rank says in which NUMA node it is.
bool has_node(const SettingsDigest &rank);
// Returns the number of ranks whose device is not the host.
size_t gpus_of(std::span<const SettingsDigest> all);
// Whether all ranks are on GPUs of one vendor: then all of them can capture calls, or none.
bool are_on_gpus_alike(std::span<const SettingsDigest> all);
// Returns the largest number of ranks that are on one GPU.
size_t ranks_per_gpu_of(std::span<const SettingsDigest> all);
// Returns, for each codec and operation, the slowest rank's rate.
CodecRates slowest_codec_rates_of(std::span<const SettingsDigest> all);
// Returns the node, host and rack of each rank; each of these has one number throughout. Empty if
// all ranks are in one place.
std::vector<RankLocation> locations_of(std::span<const SettingsDigest> all);
// Whether no lower rank has the same warnings, so that one rank logs them for all.
bool is_first_to_warn(std::span<const SettingsDigest> all, uint32_t rank);

// ---- This rank's digest

// `host`: identity of this rank's host. The caller adds warnings and calibration.
SettingsDigest digest_of(const CommConfig &comm_config, const Settings &settings,
                         const CallPolicy &policy, const std::string &host, Tier tier);

} // namespace qccl
