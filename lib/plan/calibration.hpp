// Measured figures of a machine, which replace the planner's built-in ones, and the text of the
// file that holds them.
//
// Corrections say how many times as long as the cost model predicts the calls of one job take, as
// far as they have been measured. The factors stand for what the model does not know about the
// machine.
//
// Used by the planner, where a communicator is created, and by the tools. Pure: the caller reads
// and writes the file. Any thread, nothing blocks.
//
//     # comment
//     qccl-calibration version=1
//     machine AMD EPYC 9B14, 8 cores, no known ports
//     near alone latency_ns=812 message_ns=131 byte_ns=0.0051
//     far bytes_per_ns=1.17 burst_bytes=262144
//     codec int8 encode=21.4 decode=30.2 decode_add=28.8
//     job ranks=4 hosts=2 model=1
//     near alone latency_ns=797
//     factor all_reduce ring none 8=1.02 64=0.97 512=1
//     simulated all_reduce ring none 8=0.91 64=0.88 512=1.1
//
// The first line has the version. The next one has the machine that was measured, in words that
// identify it. Each further line names a group of figures and gives some of them; a figure without
// a line keeps its built-in value. Rates are bytes of unencoded values a nanosecond, which is GB/s.
// The lines that follow a `job` line hold for jobs of that shape: figures replace those before the
// job, and factors say how many times as long calls take as the figures predict. A factor belongs
// to a collective by an algorithm with one of three codecs, and to a size of the vector in bytes.
// `simulated` lines say the same of the simulator's predictions. Factors hold only for the cost
// model that they were measured with, so the parser leaves out a job of another model.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/cost.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Corrections

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
    static constexpr size_t collectives = 12, most_algorithms = 12; // by scheduled_collectives
    static_assert(scheduled_collectives.size() == collectives,
                  "more rows change the bytes that ranks exchange: raise newest_protocol, too");
    using Row = std::array<float, sizes.size()>;

    static std::optional<size_t> row_of(const Calls &calls); // nothing: they have no row
    static std::optional<double> between(const Row &factors, uint64_t bytes);

    std::array<Row, collectives * most_algorithms * width_codecs.size()> rows_{};
};

// ---- Calibrations

inline constexpr uint64_t newest_calibration_version = 1;
inline constexpr size_t most_calibration_bytes = 1 << 20;

// A field of CostModel that can be measured.
struct CalibratedFigure {
    std::string_view group, key; // "near alone", "latency_ns"
    double least, most;          // smallest and largest valid value
    double &(*of)(CostModel &speeds);
};
std::span<const CalibratedFigure> calibrated_figures();

// A set of figures, any of which may be missing. Ranks exchange the object as bytes.
class Calibration {
public:
    Calibration();

    bool is_empty() const;
    // Whether the figure with this index in calibrated_figures() is there.
    bool has(size_t figure) const;
    double at(size_t figure) const { return figures_[figure]; }
    void set(size_t figure, double value) { figures_[figure] = value; }
    void forget(size_t figure);
    // Sets the rates of all three operations of a codec.
    void set(const Codec &codec, const CodecRate &rate) { codec_rates_.set(codec, rate); }
    CodecRate codec_rate(const Codec &codec) const { return codec_rates_.of(codec); }

    // Replaces figures of `speeds` by those that are there, except figures that the settings name.
    void apply(const Settings &settings, CostModel &speeds) const;
    // Takes over the figures that `newer` has.
    void update(const Calibration &newer);

private:
    static constexpr size_t most_figures = 32;

    std::array<double, most_figures> figures_; // NaN: missing
    CodecRates codec_rates_;                   // 0: missing
};

// The part of a calibration that one job uses. Ranks exchange the object as bytes.
struct Measured {
    Calibration figures;
    Corrections job; // empty, or of a job of the same shape
};

// The figures of one job, and by what factors its measured calls differ from predictions made with
// them. Both sets of factors have one shape.
struct MeasuredJob {
    Calibration figures;
    Corrections counted;   // relative to the planner's cost model
    Corrections simulated; // relative to the simulator

    const JobShape &shape() const { return counted.shape; }
};

struct CalibrationFile {
    std::string machine;
    Calibration figures;
    std::vector<MeasuredJob> jobs = {}; // of different shapes
    size_t jobs_of_other_models = 0;    // in the text; they are left out of `jobs`

    // Returns the job of this shape; null if there is none.
    const MeasuredJob *of(const JobShape &shape) const;
    // Returns the figures for jobs of this shape: the machine's, updated by the job's.
    Calibration figures_of(const JobShape &shape) const;
    // Adds a job in place of the one with the same shape, if there is any.
    void replace(const MeasuredJob &job);
};

// Parses a calibration. An error (invalid_argument) names the line and what is possible.
Result<CalibrationFile> parse_calibration(std::string_view text);
// Returns a text that parse_calibration reads back to the same values.
std::string print(const CalibrationFile &file);

} // namespace qccl
