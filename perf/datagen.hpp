// Where a rank's input comes from: made from a seed, or read from .npy files. Any range of any
// rank's input is at hand on every rank, so that each can check its share of a result.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "perf/npy.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace qccl::perf {

class Source {
public:
    virtual ~Source() = default;
    // Elements [first, first + count) of what `rank` gives.
    virtual void read(uint32_t rank, DataType type, uint64_t first, size_t count,
                      std::byte *dst) const = 0;
    // Sums of up to this many ranks are exact in every order; 1 where that is not so.
    virtual uint32_t exact_ranks(DataType type) const = 0;
};

// Gaussian values, independent between ranks and elements, of variance 1; small integers for
// integer types. fp32 and fp64 values are multiples of 2^-12 below 8, so that 256 of them add up
// exactly in whatever order: a lossless sum can be compared bit for bit. The same seed gives the
// same data.
std::unique_ptr<Source> make_gaussian(uint64_t seed);

// What to say about an input pattern without a place for the rank.
std::string one_file_note(std::string_view pattern);

// One file per rank; all hold equally many values of one type.
class Files final : public Source {
public:
    static Result<std::unique_ptr<Files>> open(std::string_view pattern, uint32_t ranks);

    DataType type() const { return files_.front().type(); }
    uint64_t count() const { return files_.front().count(); }
    void read(uint32_t rank, DataType type, uint64_t first, size_t count,
              std::byte *dst) const override;
    uint32_t exact_ranks(DataType) const override { return 1; }

private:
    explicit Files(std::vector<Npy> files) : files_(std::move(files)) {}
    std::vector<Npy> files_;
};

} // namespace qccl::perf
