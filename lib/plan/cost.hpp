// What a collective costs by an algorithm: time from the machine's speeds, and error. Arithmetic on
// the numbers of steps of the busiest rank; knows links by their speed only.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/codec_rates.hpp"
#include "schedule/shape.hpp"

#include <cstdint>

namespace qccl {

// What one rank's processor and link do; equal in all ranks' tables. The defaults are rounded
// figures of one core of a Zen 3 server over shared memory, from small calls of
// `qccl-perf all_reduce`: algorithms are compared with them, times are not promised.
struct Speeds {
    double latency_ns = 400;       // from a send to the receiver's next step
    double message_ns = 150;       // of a rank's time for each message, sent or received
    double copy_bytes_per_ns = 10; // copying and adding; bytes are those of unencoded values
    CodecRates codec_rates = CodecRates::of_tier("avx2");
    // Of floats of 8 and 16 bits, what part of these bytes: widening takes as long as coding.
    double narrow_coding = 0.25;
    double wire_bytes_per_ns = 20; // encoded bytes that a rank can send, or receive
    // Between hosts: of a message, and of a host's line, which its ranks share. The defaults are
    // those of Gigabit Ethernet and TCP, in round figures.
    double far_latency_ns = 30000;
    double far_message_ns = 3000;
    double far_bytes_per_ns = 0.125;
    // Where ranks share a core, each computes only in its turn, and what it waits for comes when
    // the others have had theirs.
    double ranks_per_core = 1;
    double turn_ns = 4000; // from one rank to the next, with cold caches (2 cores of a Zen 4)
    // Between hosts, how much longer computing takes than cores divided evenly would: ranks that
    // wait poll the network in between, and all wait for the slowest. Measured with `onebit` and
    // `topk` on 4 MiB, 4 hosts on 2 cores.
    double far_crowding = 1.75;

    bool operator==(const Speeds &) const = default;
};

// Where the settings say nothing, the defaults.
Speeds speeds_by(const Settings &settings, double ranks_per_core, const CodecRates &codec_rates);

// How ranks on GPUs reach what others send them.
enum class GpuReach : uint8_t { gpus, host };

// Of ranks on GPUs, of which several may share one. Estimates from the data sheets of an H200 and
// of fourth-generation NVLink and fifth-generation PCIe, at three quarters of what they promise;
// nothing of it has been measured. Latencies are those of two launches and of the host's looks at
// a stream.
Speeds gpu_speeds_by(const Settings &settings, double ranks_per_gpu, GpuReach reach);

// A collective to be done; equal on all ranks.
struct Problem {
    Collective collective = Collective::all_reduce;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1;
    uint32_t root = 0;
    DataType type = DataType::float32;
    Codec codec;                    // already checked with check_codec
    const Places *places = nullptr; // none: all ranks are on one host

    Team team(uint32_t rank = 0) const {
        return {.size = ranks, .rank = rank, .root = root, .places = places};
    }
    bool has_hosts() const { return places && places->hosts().groups() > 1; }
};

// Of unfinished values below the outermost tier: what the algorithm's key says, where the call's
// codec loses anything at all. Of an algorithm without tiers the call's own.
Codec inner_codec(const Algorithm &algorithm, const Codec &codec);

// Of the whole vector, unencoded.
uint64_t vector_bytes(const Problem &problem);

// How many whole chunks the busiest rank moves and computes on.
struct Tally {
    uint32_t chunks = 0; // that the algorithm cuts the tensor into
    uint32_t outbox = 0;
    uint32_t turns = 0; // how often the rank waits for messages
    uint64_t sends = 0, recvs = 0;
    uint64_t encodes = 0, decodes = 0, decode_adds = 0;
    uint64_t copies = 0; // adding counts as what it reads
    // Of these, those with the inner tiers' codec.
    uint64_t inner_sends = 0, inner_encodes = 0, inner_decodes = 0, inner_decode_adds = 0;
    uint64_t far_sends = 0;  // of this rank, to other hosts
    uint64_t host_sends = 0; // of all ranks of a host together, to other hosts
    uint64_t far_peers = 0;  // ranks of other hosts that the rank sends to
};

struct Cost {
    double time_ns = 0;
    double latency_ns = 0; // of which: waiting for hand-overs, and handling messages
    double compute_ns = 0; // copying, encoding, decoding
    double wire_ns = 0;
    uint64_t wire_bytes = 0; // the most that a rank sends, headers included
    uint64_t host_bytes = 0; // the most that leaves a host
    uint32_t rounds = 0;
    uint64_t far_peers = 0; // the most that a rank sends to, each over a connection of its own
    double noise = 0;       // how often a rank's contribution is encoded, on average
    double inner_noise = 0; // likewise, with the inner tiers' codec
    uint32_t summands = 1;  // contributions to a result
};

Result<Tally> tally(const Algorithm &algorithm, const Problem &problem);

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner);

// Of the algorithm in this geometry, which comes from `cut`.
Cost cost(const Algorithm &algorithm, const Problem &problem, const Tally &tally,
          const Geometry &geometry, const Speeds &speeds);

} // namespace qccl
