// Links that let bytes pass at once after a pause. Each link has a bucket of tokens, one for each
// byte, which fills at the link's rate while the link is idle. Used by the simulator alone; one
// thread.
#pragma once

#include "plan/fair_share.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

class TokenBuckets {
public:
    // `share`: the part of the bucket that is full. `burst_bytes` 0: nothing passes at once.
    void add_link(double rate, double burst_bytes, double share) {
        buckets_.push_back({rate, burst_bytes, share * burst_bytes});
    }

    // Returns the part of its bucket that the link with the least tokens has left.
    double least_share(double now) {
        double least = 1;
        for (uint32_t link = 0; link < buckets_.size(); link++)
            if (buckets_[link].most > 0)
                least = std::min(least, filled(link, now).tokens / buckets_[link].most);
        return least;
    }

    // Takes tokens for a message, which counts on each of the links with its weight. Returns the
    // bytes that are left when the tokens of one of the links are gone.
    double take(std::span<const FairShare::Use> uses, double bytes, double now) {
        double passing = bytes;
        for (const FairShare::Use &use : uses)
            passing = std::min(passing, filled(use.link, now).tokens / use.weight);
        for (const FairShare::Use &use : uses)
            buckets_[use.link].tokens -= std::min(buckets_[use.link].tokens, passing * use.weight);
        return bytes - passing;
    }

    // The bytes that take() has left over begin to cross the links, or have crossed them.
    void begin(std::span<const FairShare::Use> uses, double now) {
        for (const FairShare::Use &use : uses) filled(use.link, now).streams++;
    }
    void end(std::span<const FairShare::Use> uses, double now) {
        for (const FairShare::Use &use : uses) filled(use.link, now).streams--;
    }

private:
    struct Bucket {
        double rate = 0, most = 0;
        double tokens = 0;
        double since = 0; // time of `tokens`
        uint32_t streams = 0;
    };

    Bucket &filled(uint32_t link, double now) {
        Bucket &bucket = buckets_[link];
        if (bucket.streams == 0)
            bucket.tokens =
                std::min(bucket.most, bucket.tokens + (now - bucket.since) * bucket.rate);
        bucket.since = now;
        return bucket;
    }

    std::vector<Bucket> buckets_;
};

} // namespace qccl
