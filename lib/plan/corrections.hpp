// How many times as long as the cost model predicts the calls of one job take, as far as they have
// been measured. The factors stand for what the model does not know about the machine. Used by
// calibrations and the planner. Pure data; any thread.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qccl {

// Measurements of one job hold only for jobs of the same shape.
struct JobShape {
    uint32_t ranks = 0, hosts = 0;

    bool operator==(const JobShape &) const = default;
};

// Groups codecs that share factors: codecs of more than six bits a value count as int8, other
// codecs as int4.
enum class CodecWidth : uint8_t { none, wide, narrow };
inline constexpr std::array<std::string_view, 3> width_codecs = {"none", "int8", "int4"};
CodecWidth width_of(const Codec &codec);

// Ranks exchange the object as bytes.
class Corrections {
public:
    // Bytes of the vectors of calls that are measured.
    static constexpr std::array<uint64_t, 11> sizes = {
        8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    static constexpr double least = 0.02, most = 50;

    // Calls that share one factor at each size.
    struct Calls {
        Collective collective = Collective::all_reduce;
        Algorithm algorithm; // one of algorithms()
        CodecWidth width = CodecWidth::none;
    };

    JobShape shape;

    bool is_empty() const;
    // Returns the factor at sizes[size]; 0: not measured.
    double measured(const Calls &calls, size_t size) const;
    // Stores a factor, limited to the range from `least` to `most`. Algorithms that the planner
    // does not choose from are ignored.
    void set(const Calls &calls, size_t size, double factor);
    // Returns the factor for a vector of so many bytes. Between measured sizes the factor follows
    // the logarithm of the size, and beyond them the factor stays the same. An algorithm that was
    // not measured, for example one that is newer than the file, has the largest factor measured
    // for the same calls, so that the planner does not choose it for lack of a factor. Returns 1 if
    // nothing was measured.
    double of(const Calls &calls, uint64_t bytes) const;

private:
    static constexpr size_t collectives = 5, most_algorithms = 12;
    using Row = std::array<float, sizes.size()>;

    static std::optional<size_t> row_of(const Calls &calls); // nothing: they have no row
    static std::optional<double> between(const Row &factors, uint64_t bytes);

    std::array<Row, collectives * most_algorithms * width_codecs.size()> rows_{};
};

} // namespace qccl
