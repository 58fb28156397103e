// What a collective costs by an algorithm: time from the machine's speeds, and error. Arithmetic on
// the numbers of steps of the busiest rank; knows links by their speed only.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/codec_rates.hpp"
#include "plan/tally.hpp"
#include "schedule/shape.hpp"

#include <array>
#include <cstdint>

namespace qccl {

// What messages between two ranks cost.
struct LinkSpeeds {
    double latency_ns = 0; // from a send to the receiver's next step
    // Of a rank's processor, for each message and for each of its bytes, sent or received.
    double message_ns = 0;
    double byte_ns = 0;

    bool operator==(const LinkSpeeds &) const = default;
};

// By size of a call's vector, how fast memory that large is copied and added to. Between the sizes
// the rate follows the logarithm of the size.
struct CopySpeeds {
    struct Point {
        double bytes = 0;
        double bytes_per_ns = 0;
        bool operator==(const Point &) const = default;
    };
    // Ascending: in the caches of a core, in those that cores share, in memory.
    std::array<Point, 3> points{{{1 << 20, 30}, {4 << 20, 15}, {16 << 20, 7}}};

    double at(double bytes) const;
    bool operator==(const CopySpeeds &) const = default;
};

// Rises with every change of what `cost` or the simulator says of the same figures: by how much
// measured calls took longer is known for one model alone.
inline constexpr uint64_t cost_model = 3;

// How the rate between nodes is known.
enum class RateSource : uint8_t {
    assumed,  // by default: nothing is encoded for its sake
    stated,   // by a user or an interface, of a network that may be shared
    measured, // by a calibration
};

const char *name(RateSource source);

// What processors and links do; equal in all ranks' tables. The defaults are rounded figures of
// `perf/plan_table.py` on two cores of a Zen 5 server, over shared memory and over TCP between
// network namespaces: algorithms are compared with them, times are not promised. Where ranks share
// a core, each message wakes a rank that sleeps: other figures hold, and a rank waits as often as
// long as there are ranks on its core.
struct Speeds {
    struct Link {
        LinkSpeeds alone, shared;
        bool operator==(const Link &) const = default;
    };
    // Within a node, by messages in shared memory; and by eager slots, which carry calls whose
    // encoded values fit into them.
    Link near{{.latency_ns = 800, .message_ns = 120, .byte_ns = 0.005},
              {.latency_ns = 1200, .message_ns = 700, .byte_ns = 0.005}};
    Link eager{{.latency_ns = 250, .message_ns = 60, .byte_ns = 0.005},
               {.latency_ns = 4000, .message_ns = 0, .byte_ns = 0.005}};
    size_t eager_bytes = 0;       // 0: there are no eager slots
    uint32_t eager_exchanges = 1; // that a call may have
    // Between nodes. The ranks of a node share its line.
    Link far{{.latency_ns = 5000, .message_ns = 5000, .byte_ns = 0.4},
             {.latency_ns = 2000, .message_ns = 6500, .byte_ns = 0.35}};
    double far_bytes_per_ns = 0.125; // of a node, each way
    // Of that what one rank alone can have, where ranks have NICs of their own; 0: all of it.
    double far_rank_bytes_per_ns = 0;
    RateSource far_rate_source = RateSource::measured;
    // What a node's line lets pass at once after a pause, in switches' buffers or by token buckets.
    double far_burst_bytes = 0;
    double ranks_per_core = 1;
    // Between hosts, how much longer computing takes where ranks share cores: those that wait poll
    // the network in between. Measured with `onebit` on 1 and 4 MiB, 4 hosts on 2 cores.
    double far_crowding = 1.4;
    CopySpeeds copy{}; // bytes are those of unencoded values
    CodecRates codec_rates = CodecRates::of_tier("avx2");
    // Of floats of 8 and 16 bits, what part of these bytes: widening takes as long as coding.
    double narrow_coding = 0.25;

    bool is_far_rate_known() const { return far_rate_source != RateSource::assumed; }
    bool shares_cores() const { return ranks_per_core > 1; }
    const LinkSpeeds &far_link() const { return shares_cores() ? far.shared : far.alone; }

    bool operator==(const Speeds &) const = default;
};

// Where the settings say nothing, the defaults, and the rate between nodes is unknown.
Speeds speeds_by(const Settings &settings, double ranks_per_core, const CodecRates &codec_rates);
// What the settings say of links, in `speeds` from elsewhere.
void take_settings(const Settings &settings, Speeds &speeds);

// How ranks on GPUs reach what others send them.
enum class GpuReach : uint8_t { gpus, host };

// Of ranks on GPUs, of which several may share one. Estimates from the data sheets of an H200 and
// of fourth-generation NVLink and fifth-generation PCIe, at three quarters of what they promise;
// nothing of it has been measured. Latencies are those of two launches and of the host's looks at
// a stream.
Speeds gpu_speeds_by(const Settings &settings, double ranks_per_gpu, GpuReach reach);

// Of unfinished values below the outermost tier: what the algorithm's key says, where the call's
// codec loses anything at all. Of an algorithm without tiers the call's own.
Codec inner_codec(const Algorithm &algorithm, const Codec &codec);

// Of the whole vector, unencoded.
uint64_t vector_bytes(const Problem &problem);

// A rate that was not measured may be so many times lower, on a network that others use, or higher,
// on an interface that does not know what is behind it.
inline constexpr double rate_doubt = 4;

struct Cost {
    double time_ns = 0;
    // What it is if the rate between nodes is `rate_doubt` times lower or higher; where that rate
    // was measured, or nothing goes between nodes, both are as above.
    double slow_network_ns = 0, fast_network_ns = 0;
    double correction = 1; // by which it was multiplied, as measured calls took longer than counted
    double latency_ns = 0; // of which: waiting for messages that are under way
    double messages_ns = 0; // sending and receiving
    double compute_ns = 0;  // copying, encoding, decoding
    double wire_ns = 0;
    double rack_ns = 0;      // what the busiest line of a rack takes, which wire_ns is no less than
    uint64_t wire_bytes = 0; // the most that a rank sends, headers included
    uint64_t host_bytes = 0; // the most that leaves a host
    uint32_t rounds = 0;
    uint32_t far_peers = 0; // the most that a rank sends to, each over a connection of its own
    double noise = 0;       // how often a rank's contribution is encoded, on average
    double inner_noise = 0; // likewise, with the inner tiers' codec
    uint32_t summands = 1;  // contributions to a result
};

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner);

// Of a rank's eager slot: 0 bytes where there are none, and how many exchanges a call may have.
struct EagerSlots {
    size_t bytes = 0;
    uint32_t exchanges = 1;
};
// Whether the call's encoded values fit into the eager slots, each chunk at a cache line of its
// own.
bool fits_eager(const Algorithm &algorithm, const Problem &problem, uint32_t chunks,
                uint64_t chunk_bytes, const EagerSlots &slots);

// Whether the cost depends on a rate between nodes that nothing has measured.
bool is_rate_in_doubt(const Problem &problem, const Speeds &speeds);

// Of the algorithm in this geometry, which comes from `cut`.
Cost cost(const Algorithm &algorithm, const Problem &problem, const Tally &tally,
          const Geometry &geometry, const Speeds &speeds);

} // namespace qccl
