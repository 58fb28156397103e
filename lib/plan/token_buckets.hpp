// Links that let bytes pass at once after a pause: each has a bucket of tokens, a byte each, which
// fills at the link's rate while nothing is on the link. Used by the simulator alone; one thread.
#pragma once

#include "plan/fair_share.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

class TokenBuckets {
public:
    // `share` of it is full. `burst_bytes` 0: nothing passes at once.
    void add_link(double rate, double burst_bytes, double share) {
        buckets_.push_back({rate, burst_bytes, share * burst_bytes});
    }

    // The share of the link that has the least left.
    double least_share(double now) {
        double least = 1;
        for (uint32_t link = 0; link < buckets_.size(); link++)
            if (buckets_[link].most > 0)
                least = std::min(least, filled(link, now).tokens / buckets_[link].most);
        return least;
    }

    // What is left of a message of so many bytes, on each of the links so often as the weights say,
    // when the links' tokens are gone.
    double take(std::span<const FairShare::Use> uses, double bytes, double now) {
        double passing = bytes;
        for (const FairShare::Use &use : uses)
            passing = std::min(passing, filled(use.link, now).tokens / use.weight);
        for (const FairShare::Use &use : uses)
            buckets_[use.link].tokens -= std::min(buckets_[use.link].tokens, passing * use.weight);
        return bytes - passing;
    }

    // Bytes that are left are on the links from now on, or are no more.
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
        double since = 0; // that they are so many
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
