// Test data that resembles the values that programs sum, made from a seed: Gaussian values times
// scales that differ by value, by block and by layer, with outliers, zeros, and correlation between
// ranks.
#pragma once

#include "codec/codec.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace qtest {

struct HeavyKind {
    const char *name;
    // Standard deviations of the logarithms of the scales: per value, per 32 values, per 4096
    // values.
    double of_values = 0, of_blocks = 0, of_layers = 0;
    double outliers = 0, outlier_size = 1; // their share, and how many times as large they are
    double zeros = 0;                      // their share
};

inline constexpr HeavyKind heavy_kinds[] = {
    {.name = "gaussian"},
    {.name = "values 0.6", .of_values = 0.6},
    {.name = "values 1.2", .of_values = 1.2},
    {.name = "blocks 1.2", .of_blocks = 1.2},
    {.name = "layers 1.2", .of_layers = 1.2},
    {.name = "all 0.6", .of_values = 0.6, .of_blocks = 0.6, .of_layers = 0.6},
    {.name = "outliers 1/32 by 10", .outliers = 1.0 / 32, .outlier_size = 10},
    {.name = "outliers 1/32 by 30", .outliers = 1.0 / 32, .outlier_size = 30},
    {.name = "outliers 1/128 by 30", .outliers = 1.0 / 128, .outlier_size = 30},
    {.name = "zeros", .of_values = 0.8, .zeros = 0.9},
};

class HeavyData {
public:
    HeavyData(const HeavyKind &kind, double correlation, uint64_t seed)
        : kind_(kind), common_(std::sqrt(correlation)), own_(std::sqrt(1 - correlation)),
          seed_(qccl::splitmix64(seed)) {}

    std::vector<float> of_rank(uint32_t rank, uint64_t count) const {
        std::vector<float> values(count);
        for (uint64_t i = 0; i < count; i++)
            values[i] = static_cast<float>(
                scale(i) * (common_ * gaussian(0, i) + own_ * gaussian(1 + rank, i)));
        return values;
    }

private:
    // All ranks use the same scales: the same weights are large on every rank.
    double scale(uint64_t i) const {
        constexpr uint64_t of_values = 1000, of_blocks = 1001, of_layers = 1002, of_rest = 1003;
        const double chance = uniform(of_rest, i);
        if (chance < kind_.zeros) return 0;
        const double log = kind_.of_values * gaussian(of_values, i) +
                           kind_.of_blocks * gaussian(of_blocks, i / 32) +
                           kind_.of_layers * gaussian(of_layers, i / 4096);
        return std::exp(log) * (1 - chance < kind_.outliers ? kind_.outlier_size : 1);
    }
    double uniform(uint64_t stream, uint64_t i) const {
        const uint64_t draw = qccl::splitmix64(qccl::splitmix64(seed_ + stream) + i);
        return (static_cast<double>(draw >> 11) + 0.5) * 0x1p-53;
    }
    double gaussian(uint64_t stream, uint64_t i) const {
        return std::sqrt(-2 * std::log(uniform(2 * stream, i))) *
               std::cos(2 * std::numbers::pi * uniform(2 * stream + 1, i));
    }

    HeavyKind kind_;
    double common_, own_;
    uint64_t seed_;
};

} // namespace qtest
