// What the ranks must agree on when a communicator is made, and the first disagreement in a
// sentence that is the same on every rank. Pure: knows no bootstrap and reads no settings.
#pragma once

#include "base/result.hpp"
#include "plan/codec_rates.hpp"
#include "schedule/places.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// The protocol between ranks: chunks, descriptors, control lines, creation. Libraries that share a
// version may share a communicator.
inline constexpr uint32_t oldest_protocol = 2, newest_protocol = 2;

// The first thing that ranks tell each other; its layout never changes.
struct ProtocolOffer {
    static constexpr uint64_t expected_magic = 0x4F4C4C4548435151; // "QQCHELLO"
    static constexpr uint32_t expected_byte_order = 0x01020304;

    uint64_t magic = expected_magic;
    uint32_t byte_order = expected_byte_order;
    uint32_t oldest = oldest_protocol, newest = newest_protocol;
    uint32_t version = 0; // of the library, shown
    uint32_t rank = 0, size = 0;
    uint64_t reserved[4] = {};
};
static_assert(sizeof(ProtocolOffer) == 64);

// Whether there is a protocol that all speak.
Done check_offers(std::span<const ProtocolOffer> all);

// Settings whose effect shows on other ranks, as texts; zeros after the end. Those of sizes, times
// and rates are as the user has written them, and agree where they mean the same.
struct Agreement {
    using Text = std::array<char, 64>;

    // Where the rank is: ranks with another host are out of shared memory's reach. Not compared,
    // but for what is said of a host's rack.
    Text host{};
    Text node{}; // QCCL_NODE; empty: as the topology graph says
    Text rack{};
    Text device{}; // likewise not compared
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
    uint64_t has_calibration = 0; // that it hands to all; rank 0's counts, not compared
    uint64_t warnings = 0;        // a hash of them; shown by one rank, not compared

    // A text that is too long keeps its beginning and gets a hash for its end.
    static void set(Text &field, std::string_view text);
};

// `all` in rank order.
Done check_agreements(std::span<const Agreement> all);
// By rank, numbers of hosts from 0 on; empty where all are on one.
std::vector<uint32_t> hosts_of(std::span<const Agreement> all);
// Of the rank's host, for people: the first word of its identity.
std::string host_name_of(const Agreement &rank);
std::string rack_of(const Agreement &rank);
// Whether the rank says in which NUMA node it is.
bool has_node(const Agreement &rank);
// Ranks whose device is not the host.
size_t gpus_of(std::span<const Agreement> all);
// Whether all ranks are on GPUs of one vendor, so that where one can capture calls all can.
bool are_on_gpus_alike(std::span<const Agreement> all);
// The most of them that are on one GPU.
size_t ranks_per_gpu_of(std::span<const Agreement> all);
// Of each codec and operation the slowest rank's.
CodecRates slowest_codec_rates_of(std::span<const Agreement> all);
// By rank; a host and a node have one number throughout. Empty where all are in one place.
std::vector<Whereabouts> spots_of(std::span<const Agreement> all);
// Whether no lower rank has the same to warn about: one speaks for all.
bool is_first_to_warn(std::span<const Agreement> all, uint32_t rank);

} // namespace qccl
