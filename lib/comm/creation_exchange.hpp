// What ranks exchange when they create a communicator. Used by creation.
// StatusAllGather is an all-gather that no rank leaves half-way. Each one carries the status of
// every rank, so that all ranks learn of a failure at their next exchange instead of waiting for
// the rank that has failed. One thread uses it, and it blocks until all ranks have come.
// ProtocolOffer and SettingsDigest hold what the ranks must agree on. The first disagreement gives
// a sentence that is the same on every rank. They and their functions are pure, and any thread may
// use them.
#pragma once

#include "base/result.hpp"
#include "comm/bootstrap.hpp"
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

// ---- All-gather with status

class StatusAllGather {
public:
    explicit StatusAllGather(Bootstrap &bootstrap) : bootstrap_(bootstrap) {}

    // Gathers `bytes` bytes from each rank, equal on all ranks. If another rank has concluded with
    // an error, returns that error (remote_error). Takes one all-gather of the bootstrap for up to
    // most_in_one bytes, and two for more.
    static constexpr size_t most_in_one = 2048;
    Done all_gather(const void *mine, void *all, size_t bytes);
    // Returns the value that rank 0 gives; other ranks' values are ignored.
    template <class Data> Result<Data> of_rank_0(const Data &mine) {
        std::vector<Data> all(bootstrap_.size());
        QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
        return all.front();
    }
    // Tells all ranks how this rank has fared since the last exchange. Returns `mine` if it is an
    // error, or that of the rank that it says is lost; else the error of the lowest rank that has
    // failed. After an error of all_gather every rank knows already, and this only returns `mine`.
    Done conclude(const Done &mine);

private:
    // Exchanges the status of all ranks and, if they fit, the bytes of an all-gather.
    Done agree(const Done &mine, const void *data, void *all, uint64_t bytes);

    Bootstrap &bootstrap_;
    bool is_over_ = false; // all ranks know of a failure
};

// ---- What must agree

// Versions of the protocol between ranks: chunks, descriptors, control messages, creation.
// Libraries that share a version may share a communicator.
inline constexpr uint32_t oldest_protocol = 13, newest_protocol = 13;

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
