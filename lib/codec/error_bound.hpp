// How much a codec loses at most of data as programs sum them: heavy tails, blocks of mixed scale,
// ranks that resemble each other. The choice by a budget goes by these figures; loss_of expects
// Gaussian values and is exceeded by such data.
#pragma once

#include "codec/codec.hpp"

#include <span>

namespace qccl {

// Each figure is a tenth above the largest NMSE of one encode that was found over
//  - gradients of convolutional networks and of a transformer, and the density of a mesh;
//  - Gaussian values times scales: log-normal ones for every value, every 8th, 32nd and 4096th
//    (kurtosis 3 to 1000), Student's t with 3 degrees of freedom, nine of ten values zero, and
//    outliers 5 to 100 times as large, one of 8 to 512 values;
// whether ranks are independent, correlated, or all have the same values. For integers of 6 bits
// and more it is a tenth above what no data exceed whose errors are spread evenly within a step, n
// / 12 / 4^(b - 1) in blocks of n.
//
// The NMSE of a sum is at most the figure times the encodes of the schedule (Cost::noise), measured
// by all algorithms over 2 to 16 ranks and by rings of 64, as long as the sum is as strong as its
// terms together (the mean square of the sum is at least the sum of the ranks' mean squares, as of
// independent ranks). Where ranks cancel each other out, the same error is a larger part of what is
// left, and no figure holds. Nor does one hold where values are encoded much oftener on their way:
// in long rings small terms are added to large sums again and again, and rounded the same way each
// time.
// What the result loses where it is rounded to a type of 16 bits or fewer is not in them: values
// as they are lose it, too.
struct BoundedCodec {
    Codec codec;
    double nmse;         // of one encode
    double most_encodes; // of a value on its way, on average, up to which that was found to hold
};

// Those that auto chooses from, by bits; ranges of fp16 and fp8 depend on the scale of the data,
// minmax with large buckets on outliers, mx on how often sums are encoded.
std::span<const BoundedCodec> bounded_codecs();
// nullptr: the codec has no bound.
const BoundedCodec *bound_of(const Codec &codec);

// Of long vectors, without headers.
double bits_per_value(const Codec &codec, DataType type);

} // namespace qccl
