// What the ranks must agree on when a communicator is created. The first disagreement gives a
// sentence that is the same on every rank. Used by creation; pure, any thread.
#pragma once

#include "base/result.hpp"
#include "plan/codec_rates.hpp"
#include "schedule/rank_topology.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// Versions of the protocol between ranks: chunks, descriptors, control messages, creation.
// Libraries that share a version may share a communicator.
inline constexpr uint32_t oldest_protocol = 2, newest_protocol = 2;

// The first bytes that ranks exchange; their layout never changes.
struct ProtocolOffer {
    static constexpr uint64_t expected_magic = 0x4F4C4C4548435151; // "QQCHELLO"
    static constexpr uint32_t expected_byte_order = 0x01020304;

    uint64_t magic = expected_magic;
    uint32_t byte_order = expected_byte_order;
    uint32_t oldest = oldest_protocol, newest = newest_protocol;
    uint32_t version = 0; // of the library, for the error's sentence
    uint32_t rank = 0, size = 0;
    uint64_t reserved[4] = {};
};
static_assert(sizeof(ProtocolOffer) == 64);

// Checks that the ranks share a byte order and a protocol (mismatch), and that the all-gather gave
// them in rank order (invalid_argument).
Done check_offers(std::span<const ProtocolOffer> all);

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
    Text link_latency{};
    Text link_rate{};
    Text rack_rate{};
    CodecRates codec_rates;       // of the rank's kernels; not compared, the slowest count
    uint64_t has_calibration = 0; // 1: it has one to hand out; only rank 0's counts, not compared
    uint64_t warnings = 0;        // hash of the warnings, which one rank logs; not compared

    // A text that is too long keeps its beginning, and a hash replaces its end.
    static void set(Text &field, std::string_view text);
};

// Returns a mismatch for the first difference. `all` is in rank order, here and below.
Done check_digests(std::span<const SettingsDigest> all);
// Returns the number of each rank's host, from 0 on; empty if all ranks are on one host.
std::vector<uint32_t> hosts_of(std::span<const SettingsDigest> all);
// Returns the name of the rank's host for people: the first word of its identity.
std::string host_name_of(const SettingsDigest &rank);
std::string rack_of(const SettingsDigest &rank);
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

} // namespace qccl
