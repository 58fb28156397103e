// Provides the input of every rank, generated from a seed or read from .npy files. Used by
// qccl-perf and qccl-info. Every rank can read any range of any rank's input, so that each can
// check its share of a result.
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
    // Reads elements [first, first + count) of the input of `rank` into `dst`.
    virtual void read(uint32_t rank, DataType type, uint64_t first, size_t count,
                      std::byte *dst) const = 0;
    // Sums of up to this many ranks are exact in any order; 1 if they are not.
    virtual uint32_t exact_ranks(DataType type) const = 0;
};

// Returns Gaussian values of variance 1, independent between ranks and elements; small integers for
// integer types. fp32 and fp64 values are multiples of 2^-12 below 8, so that 256 of them add up
// exactly in any order, and a lossless sum can be compared bit for bit. The same seed gives the
// same data.
std::unique_ptr<Source> make_gaussian(uint64_t seed);

// Returns a note about an input pattern that has no placeholder for the rank.
std::string one_file_note(std::string_view pattern);

// Reads one file per rank; all files hold the same number of values of one type.
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
