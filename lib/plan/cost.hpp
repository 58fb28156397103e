// The cost model: predicts what a collective costs by an algorithm, in time and in error, from the
// step counts of the busiest rank and the machine's speeds. Links are speeds and nothing else.
//
// Codec rates say how fast one core encodes and decodes with each codec, by the SIMD tier of its
// kernels. They are data of the library, so that no choice depends on a measurement at run time.
//
// Used by the planner, the simulator and the tools. Pure arithmetic; any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/step_counts.hpp"
#include "schedule/shape.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Codec rates

// Bytes of unencoded values a nanosecond, which is GB/s.
struct CodecRate {
    float encode = 0, decode = 0, decode_add = 0;

    bool operator==(const CodecRate &) const = default;
};

// A measured row, for fp32.
struct CodecRateRow {
    std::string_view codec, tier;
    CodecRate rate;
};
std::span<const CodecRateRow> codec_rate_rows();
// Returns the codecs of these rows, each once.
std::vector<std::string_view> rated_codecs();

// The rates of each codec and rounding for fp32. Bits, buckets, clips and shares change a rate
// little. Block sizes change a rate only if no vector code handles them. Ranks exchange the object
// as bytes.
class CodecRates {
public:
    constexpr CodecRates() = default;
    // Rates of a device that is equally fast with all codecs.
    explicit CodecRates(const CodecRate &rate);
    // Returns the rates of a tier. An unknown name counts as `scalar`, the slowest tier.
    static CodecRates of_tier(std::string_view tier);

    // Returns the codec's rates. If no vector code handles its blocks, they are no higher than
    // those of the scalar code.
    CodecRate of(const Codec &codec) const;
    // Takes the slower rate of each operation, because ranks wait for the slowest one.
    void slow_down_to(const CodecRates &other);
    void set(const Codec &codec, const CodecRate &rate) { rates_[index(codec)] = rate; }
    // Takes over the rates of `others` that are not 0.
    void replace_by(const CodecRates &others);

    bool operator==(const CodecRates &) const = default;

private:
    static constexpr size_t codecs = codec_table.size(), roundings = 2;

    // Dither has the place of stochastic rounding, whose encoder draws the same noise. A cast with
    // a scale for each block takes about as long as MX, whose elements are as wide.
    static size_t index(const Codec &codec) {
        const bool is_scaled = codec.row().kind == CodecKind::scaled;
        const CodecId id = is_scaled ? CodecId::mxfp8e4m3 : codec.id;
        return static_cast<size_t>(id) * roundings + (codec.draws_noise() ? 1 : 0);
    }

    std::array<CodecRate, codecs * roundings> rates_{};
    uint64_t takes_any_block_ = 0; // a bool, in a type that leaves no padding bytes
};

// ---- Cost model

// The cost of messages between two ranks.
struct LinkSpeeds {
    double latency_ns = 0; // from a send to the receiver's next step
    // Time of a rank's processor for each message and for each of its bytes, sent or received.
    double message_ns = 0;
    double byte_ns = 0;

    bool operator==(const LinkSpeeds &) const = default;
};

// How fast memory is copied and added to, by the size of a call's vector. Between the sizes the
// rate follows the logarithm of the size.
struct CopySpeeds {
    struct SpeedPoint {
        double bytes = 0;
        double bytes_per_ns = 0;
        bool operator==(const SpeedPoint &) const = default;
    };
    // Ascending: in the caches of a core, in those that cores share, in memory.
    std::array<SpeedPoint, 3> points{{{1 << 20, 30}, {4 << 20, 15}, {16 << 20, 7}}};

    double at(double bytes) const;
    bool operator==(const CopySpeeds &) const = default;
};

// Version of the predictions. The number rises with every change of what `cost` or the simulator
// predicts from the same figures, because measured corrections hold for one version alone.
inline constexpr uint64_t cost_model_version = 3;

// Where the rate between hosts comes from.
enum class RateSource : uint8_t {
    assumed,  // the default; no call is encoded because of it
    stated,   // by a user or an interface; others may use the network, too
    measured, // by a calibration
};

const char *name(RateSource source);

// The speeds of processors and links; equal on all ranks. The defaults are rounded figures of
// `perf/hosts/plan_table.py` on two cores of a Zen 5 server, over shared memory and over TCP
// between network namespaces. They serve to compare algorithms and do not promise times. If ranks
// share a core, each message wakes a rank that sleeps, so the `shared` figures hold, and a wait
// takes as many times as long as there are ranks on the core.
struct CostModel {
    struct LinkCosts {
        LinkSpeeds alone, shared;
        bool operator==(const LinkCosts &) const = default;
    };
    // Within a host: by messages in shared memory, and by eager slots, which carry calls whose
    // encoded values fit into them.
    LinkCosts local{{.latency_ns = 800, .message_ns = 120, .byte_ns = 0.005},
                    {.latency_ns = 1200, .message_ns = 700, .byte_ns = 0.005}};
    LinkCosts eager{{.latency_ns = 250, .message_ns = 60, .byte_ns = 0.005},
                    {.latency_ns = 4000, .message_ns = 0, .byte_ns = 0.005}};
    size_t eager_bytes = 0;       // 0: there are no eager slots
    uint32_t eager_exchanges = 1; // most exchanges of a call
    // Between hosts. The ranks of a host share its network link.
    LinkCosts remote{{.latency_ns = 5000, .message_ns = 5000, .byte_ns = 0.4},
                     {.latency_ns = 2000, .message_ns = 6500, .byte_ns = 0.35}};
    double remote_bytes_per_ns = 0.125; // of a host, each way
    // The part of that rate that one rank alone can use, if ranks have NICs of their own; 0: all.
    double remote_rank_bytes_per_ns = 0;
    RateSource remote_rate_source = RateSource::measured;
    // Bytes that a host's link passes at once after a pause, through switch buffers or token
    // buckets.
    double remote_burst_bytes = 0;
    double ranks_per_core = 1;
    // How many times as long computing takes between hosts if ranks share cores: ranks that wait
    // poll the network in between. Measured with `onebit` on 1 and 4 MiB, 4 hosts on 2 cores.
    double remote_oversubscription = 1.4;
    CopySpeeds copy{}; // bytes are those of unencoded values
    CodecRates codec_rates = CodecRates::of_tier("avx2");
    // For floats of 8 and 16 bits: the part of a codec's rate that remains, because widening takes
    // as long as coding.
    double narrow_coding = 0.25;

    // Returns the codec's rates for fp32, with packing if the codec packs and ranks are on several
    // hosts. `copying`: the rate of values that stay as they are.
    CodecRate coding_rate(const Codec &codec, bool has_hosts, double copying) const;
    bool is_remote_rate_known() const { return remote_rate_source != RateSource::assumed; }
    bool shares_cores() const { return ranks_per_core > 1; }
    const LinkSpeeds &remote_link() const { return shares_cores() ? remote.shared : remote.alone; }

    bool operator==(const CostModel &) const = default;
};

// Returns the speeds of ranks on CPUs: the defaults, and what the settings say. The rate between
// hosts counts as unknown unless the settings have it.
CostModel cost_model_by(const Settings &settings, double ranks_per_core,
                        const CodecRates &codec_rates);
// Overwrites link figures of `speeds` with those that the settings contain.
void take_settings(const Settings &settings, CostModel &speeds);

// How the data of a rank on a GPU reaches another rank: from GPU to GPU, or through host memory.
enum class GpuReach : uint8_t { gpus, host };

// Returns the speeds of ranks on GPUs, of which several may share one. The speeds are estimates:
// three quarters of what the data sheets of an H200, fourth-generation NVLink and fifth-generation
// PCIe promise. None of them has been measured. The latencies are those of two launches and of the
// host's polling of a stream.
CostModel gpu_cost_model_by(const Settings &settings, double ranks_per_gpu, GpuReach reach);

// Returns the codec of unfinished values below the outermost tier: the one that the algorithm's key
// names, or none if the call's codec is lossless. For an algorithm without tiers: the call's codec.
Codec inner_codec(const Algorithm &algorithm, const Codec &codec);

// Returns the size of a message with so many values. That of a packed chunk depends on the values,
// so it is what usual ones take.
uint64_t usual_message_bytes(const Problem &problem, const Codec &codec, uint64_t count);

// Returns the size of the whole vector, unencoded.
uint64_t vector_bytes(const Problem &problem);

// A rate that was not measured may be wrong by this factor: lower on a network that others use,
// higher if an interface does not know the network behind it.
inline constexpr double rate_doubt = 4;

struct Cost {
    double time_ns = 0;
    // The time if the rate between hosts is `rate_doubt` times lower or higher. Both are equal to
    // time_ns if that rate was measured or nothing travels between hosts.
    double slow_network_ns = 0, fast_network_ns = 0;
    double correction = 1;  // measured factor that the times above include
    double latency_ns = 0;  // part of time_ns: waiting for messages under way
    double messages_ns = 0; // part of time_ns: sending and receiving
    double compute_ns = 0;  // part of time_ns: copying, encoding, decoding
    double wire_ns = 0;
    double rack_ns = 0;      // time of a rack's busiest link; wire_ns is no less
    uint64_t wire_bytes = 0; // sent by the busiest rank, headers included
    uint64_t host_bytes = 0; // sent from the busiest host to others
    uint32_t rounds = 0;
    uint32_t remote_peers = 0; // most that a rank sends to, a connection each
    NoiseMoments noise;        // first: encodes of a rank's contribution, on average
    NoiseMoments inner_noise;  // the same for the inner tiers' codec
    uint32_t summands = 1;     // contributions to a result
};

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner);

// A rank's eager slot: its size, 0 if there are none, and how many exchanges a call may have.
struct EagerSlots {
    size_t bytes = 0;
    uint32_t exchanges = 1;
};
// Returns whether the call's values may go through eager slots. Between hosts a slot is sent to the
// ranks of all other hosts, so only calls whose ranks read the slots of all others gain from it
// there: a scan of two ranks takes 13 us by eager slots and 9 us by its one message.
bool may_use_eager(const Algorithm &algorithm, const Problem &problem, uint32_t exchanges);
// Returns whether they may, and the call's encoded values fit into the eager slots, each chunk at a
// cache line of its own.
bool fits_eager(const Algorithm &algorithm, const Problem &problem, uint32_t chunks,
                uint64_t chunk_bytes, const EagerSlots &slots);

// Returns whether the cost depends on a rate between hosts that has not been measured.
bool is_rate_in_doubt(const Problem &problem, const CostModel &speeds);

// Predicts the cost of the algorithm in this geometry, which cut() has returned.
Cost cost(const Algorithm &algorithm, const Problem &problem, const StepCounts &step_counts,
          const Geometry &geometry, const CostModel &speeds);

} // namespace qccl
