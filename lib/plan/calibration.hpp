// Measured figures of a machine, which stand in for the planner's built-in ones, and the text of
// the file that holds them. Pure: the caller reads and writes the file. Any thread, nothing blocks.
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
// First comes the line with the version, then the machine that was measured, in words by which it
// is known again. Each further line names a group of figures and gives some of them; what no line
// gives stays as it is built in. Rates are bytes a nanosecond, which is GB/s, of unencoded values.
// Behind the line of a job stand figures that replace those before it for jobs of its shape, and
// the factors by which calls there take longer than the figures say: of a collective by an
// algorithm with one of three codecs, by the vector's bytes; and those by which they take longer
// than the simulator says. Factors hold for the cost model that they were measured with: a job of
// another model is left out.
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

// A field of Speeds that can be measured.
struct CalibratedFigure {
    std::string_view group, key; // "near alone", "latency_ns"
    double least, most;          // that can be
    double &(*of)(Speeds &speeds);
};
std::span<const CalibratedFigure> calibrated_figures();

// Figures of which each may be there or not. Travels between ranks as bytes.
class Calibration {
public:
    Calibration();

    bool is_empty() const;
    // Of the figure with this number in calibrated_figures().
    bool has(size_t figure) const;
    double at(size_t figure) const { return figures_[figure]; }
    void set(size_t figure, double value) { figures_[figure] = value; }
    void forget(size_t figure);
    // All three operations of a codec at once.
    void set(const Codec &codec, const CodecRate &rate) { codec_rates_.set(codec, rate); }
    CodecRate codec_rate(const Codec &codec) const { return codec_rates_.of(codec); }

    // The figures that are there replace those of `speeds`, but for what the settings say.
    void apply(const Settings &settings, Speeds &speeds) const;
    // Takes over what `newer` has.
    void update(const Calibration &newer);

private:
    static constexpr size_t most_figures = 32;

    std::array<double, most_figures> figures_; // NaN: not there
    CodecRates codec_rates_;                   // 0: not there
};

// Of them what one job counts with; travels between ranks as bytes.
struct Measured {
    Calibration figures;
    Corrections job; // empty, or of a job of its shape
};

// How calls of one job were measured to differ from what is said of them by its figures; both of
// one shape.
struct MeasuredJob {
    Calibration figures;
    Corrections counted;   // of the planner's cost model
    Corrections simulated; // of the simulator

    const JobShape &shape() const { return counted.shape; }
};

struct CalibrationFile {
    std::string machine;
    Calibration figures;
    std::vector<MeasuredJob> jobs = {}; // of different shapes
    size_t jobs_of_other_models = 0;    // that the text had beside them

    // Of a job of this shape; null: none.
    const MeasuredJob *of(const JobShape &shape) const;
    // By which jobs of this shape count.
    Calibration figures_of(const JobShape &shape) const;
    // In place of that of the same shape, if there is any.
    void replace(const MeasuredJob &job);
};

// An error (invalid_argument) names the line and what is possible.
Result<CalibrationFile> parse_calibration(std::string_view text);
// A text that is read back so.
std::string print(const CalibrationFile &file);

} // namespace qccl
