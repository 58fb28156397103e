// How many times as long as the cost model says the calls of one job take, as far as that has been
// measured there: what the model does not know of this machine. Pure data; any thread.
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

// What is measured of one job holds for jobs of the same shape alone.
struct JobShape {
    uint32_t ranks = 0, hosts = 0;

    bool operator==(const JobShape &) const = default;
};

// Which codecs are alike: those of more than six bits a value are as int8, the others as int4.
enum class CodecWidth : uint8_t { none, wide, narrow };
inline constexpr std::array<std::string_view, 3> width_codecs = {"none", "int8", "int4"};
CodecWidth width_of(const Codec &codec);

// Travels between ranks as bytes.
class Corrections {
public:
    // Of the vectors of calls that are measured.
    static constexpr std::array<uint64_t, 11> sizes = {
        8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    static constexpr double least = 0.02, most = 50;

    // Calls of which one factor holds at each size.
    struct Calls {
        Collective collective = Collective::all_reduce;
        Algorithm algorithm; // of algorithms()
        CodecWidth width = CodecWidth::none;
    };

    JobShape shape;

    bool is_empty() const;
    // 0: not measured.
    double measured(const Calls &calls, size_t size) const;
    // Beyond most and below least it is that bound. Algorithms that the planner does not choose
    // from are left out.
    void set(const Calls &calls, size_t size, double factor);
    // Between the sizes that were measured it follows the logarithm of the size, beyond them it
    // stays. An algorithm that was not measured, as one that is newer than the file, has the
    // largest factor of those that were with the same calls, lest it be chosen for that alone; 1
    // where nothing was.
    double of(const Calls &calls, uint64_t bytes) const;

private:
    static constexpr size_t collectives = 5, most_algorithms = 12;
    using Row = std::array<float, sizes.size()>;

    static std::optional<size_t> row_of(const Calls &calls); // nothing: there is none
    static std::optional<double> between(const Row &factors, uint64_t bytes);

    std::array<Row, collectives * most_algorithms * width_codecs.size()> rows_{};
};

} // namespace qccl
