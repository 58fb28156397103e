// Measured figures of a machine, which replace the planner's built-in ones, and the text of the
// file that holds them. Used where a communicator is created, and by the tools. Pure: the caller
// reads and writes the file. Any thread, nothing blocks.
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
#include "plan/corrections.hpp"
#include "plan/cost.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

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
