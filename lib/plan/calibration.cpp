// Stores measured factors and interpolates between their sizes. Parser and printer of calibrations,
// and the table of figures that can be measured.
#include "plan/calibration.hpp"

#include "base/text.hpp"
#include "codec/error_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

namespace qccl {

// ---- Corrections

CodecWidth width_of(const Codec &codec) {
    constexpr double most_narrow_bits = 6;
    if (codec.is_lossless()) return CodecWidth::none;
    return bits_per_value(codec, DataType::float32) > most_narrow_bits ? CodecWidth::wide
                                                                       : CodecWidth::narrow;
}

std::optional<size_t> Corrections::row_of(const Calls &calls) {
    const auto known = algorithms();
    const auto number =
        static_cast<size_t>(std::ranges::find(known, calls.algorithm) - known.begin());
    if (number >= std::min(known.size(), most_algorithms)) return std::nullopt;
    const auto collective = static_cast<size_t>(
        std::ranges::find(scheduled_collectives, calls.collective) - scheduled_collectives.begin());
    return (collective * most_algorithms + number) * width_codecs.size() +
           static_cast<size_t>(calls.width);
}

bool Corrections::is_empty() const {
    return std::ranges::all_of(rows_, [](const Row &each) { return each == Row(); });
}

double Corrections::measured(const Calls &calls, size_t size) const {
    const auto row = row_of(calls);
    return row ? static_cast<double>(rows_[*row][size]) : 0;
}

void Corrections::set(const Calls &calls, size_t size, double factor) {
    if (const auto row = row_of(calls))
        rows_[*row][size] = static_cast<float>(std::clamp(factor, least, most));
}

// Returns nothing if the row has no measurement.
std::optional<double> Corrections::between(const Row &factors, uint64_t bytes) {
    std::optional<size_t> below, above;
    for (size_t i = 0; i < sizes.size(); i++) {
        if (factors[i] == 0) continue;
        if (sizes[i] <= bytes) below = i;
        if (sizes[i] >= bytes && !above) above = i;
    }
    if (!below && !above) return std::nullopt;
    const double from = static_cast<double>(factors[below.value_or(above.value_or(0))]),
                 to = static_cast<double>(factors[above.value_or(below.value_or(0))]);
    if (!below || !above || *below == *above) return below ? from : to;
    const double part =
        std::log(static_cast<double>(bytes) / static_cast<double>(sizes[*below])) /
        std::log(static_cast<double>(sizes[*above]) / static_cast<double>(sizes[*below]));
    return from * std::pow(to / from, part);
}

double Corrections::of(const Calls &calls, uint64_t bytes) const {
    auto row = row_of(calls);
    // Calibrations do not measure variants such as ring:rings=all. Without a factor a variant would
    // look faster than its plain form, so the plain form's factor counts.
    if (!row && calls.algorithm)
        row = row_of({calls.collective, Algorithm(calls.algorithm.row()), calls.width});
    if (!row) return 1;
    if (const auto factor = between(rows_[*row], bytes)) return *factor;
    std::optional<double> largest;
    for (const Algorithm &other : algorithms()) {
        const auto beside = row_of({calls.collective, other, calls.width});
        if (const auto factor = beside ? between(rows_[*beside], bytes) : std::nullopt)
            largest = std::max(*factor, largest.value_or(*factor));
    }
    return largest.value_or(1);
}

// ---- Calibrations

static_assert(std::is_trivially_copyable_v<Measured>);

namespace {

constexpr std::string_view calibration_title = "qccl-calibration", codec_group = "codec",
                           job_group = "job", counted_group = "factor",
                           simulated_group = "simulated";

constexpr double second_ns = 1e9;

template <CostModel::LinkCosts CostModel::*link, LinkSpeeds CostModel::LinkCosts::*state,
          double LinkSpeeds::*field>
double &link_figure(CostModel &speeds) {
    return speeds.*link.*state.*field;
}
template <double CostModel::*field> double &figure(CostModel &speeds) { return speeds.*field; }
template <size_t point> double &copy_figure(CostModel &speeds) {
    return speeds.copy.points[point].bytes_per_ns;
}

template <size_t a, size_t b>
constexpr auto joined(const std::array<CalibratedFigure, a> &left,
                      const std::array<CalibratedFigure, b> &right) {
    std::array<CalibratedFigure, a + b> all{};
    std::copy(left.begin(), left.end(), all.begin());
    std::copy(right.begin(), right.end(), all.begin() + a);
    return all;
}

template <CostModel::LinkCosts CostModel::*link, LinkSpeeds CostModel::LinkCosts::*state>
constexpr std::array<CalibratedFigure, 3> figures_of(std::string_view group) {
    return {{{group, "latency_ns", 0, second_ns, link_figure<link, state, &LinkSpeeds::latency_ns>},
             {group, "message_ns", 0, second_ns, link_figure<link, state, &LinkSpeeds::message_ns>},
             {group, "byte_ns", 0, 1000, link_figure<link, state, &LinkSpeeds::byte_ns>}}};
}

template <CostModel::LinkCosts CostModel::*link>
constexpr auto figures_of(std::string_view alone, std::string_view shared) {
    return joined(figures_of<link, &CostModel::LinkCosts::alone>(alone),
                  figures_of<link, &CostModel::LinkCosts::shared>(shared));
}

constexpr double slowest_rate = 1e-6, fastest_rate = 1e5; // GB/s

constexpr auto table =
    joined(joined(joined(figures_of<&CostModel::local>("near alone", "near shared"),
                         figures_of<&CostModel::eager>("eager alone", "eager shared")),
                  figures_of<&CostModel::remote>("far alone", "far shared")),
           std::array<CalibratedFigure, 7>{{
               {"far", "bytes_per_ns", slowest_rate, fastest_rate,
                figure<&CostModel::remote_bytes_per_ns>},
               {"far", "burst_bytes", 0, 1e12, figure<&CostModel::remote_burst_bytes>},
               {"far", "crowding", 1, 100, figure<&CostModel::remote_oversubscription>},
               {"copy", "1MiB", slowest_rate, fastest_rate, copy_figure<0>},
               {"copy", "4MiB", slowest_rate, fastest_rate, copy_figure<1>},
               {"copy", "16MiB", slowest_rate, fastest_rate, copy_figure<2>},
               {"coding", "narrow", 1e-3, 1, figure<&CostModel::narrow_coding>},
           }});

constexpr size_t remote_rate = static_cast<size_t>(
    std::ranges::find(table, "bytes_per_ns", &CalibratedFigure::key) - table.begin());

// An operation of a codec that has a rate.
struct Operation {
    std::string_view name;
    float CodecRate::*rate;
};
constexpr Operation operations[] = {{"encode", &CodecRate::encode},
                                    {"decode", &CodecRate::decode},
                                    {"decode_add", &CodecRate::decode_add}};

Result<double> parse_figure(std::string_view key, std::string_view text, double least,
                            double most) {
    const auto number = parse_number<double>(text);
    // Both comparisons are false for NaN, which is refused that way.
    if (number && *number >= least && *number <= most) return *number;
    return invalid_argument("%.40s is \"%s\"; expected a number from %g to %g",
                            std::string(key).c_str(), excerpt(text).c_str(), least, most);
}

Names groups() {
    Names names;
    for (const CalibratedFigure &row : table)
        if (names.empty() || names.back() != row.group) names.push_back(row.group);
    for (const std::string_view other : {"codec NAME", "job", "factor COLLECTIVE ALGORITHM CODEC",
                                         "simulated COLLECTIVE ALGORITHM CODEC"})
        names.push_back(other);
    return names;
}

std::string joined(std::span<const std::string_view> words) {
    std::string text;
    for (const std::string_view word : words) text.append(text.empty() ? "" : " ").append(word);
    return text;
}

std::string sizes_in_words() {
    std::string text;
    for (const uint64_t size : Corrections::sizes)
        text.append(text.empty() ? "" : ", ").append(std::to_string(size));
    return text;
}

class CalibrationReader {
public:
    Done take(std::string_view line) {
        if (!has_title_) return take_title(line);
        if (line.starts_with("machine ")) return take_machine(trimmed(line.substr(8)));
        const auto words = words_of(line);
        if (words.front() == job_group) return take_job(words);
        if (words.front() == counted_group) return take_factors(words, &MeasuredJob::counted);
        if (words.front() == simulated_group) return take_factors(words, &MeasuredJob::simulated);
        // A codec's name may itself contain '='.
        const bool is_codec = words.front() == codec_group;
        const auto item = is_codec ? words.begin() + std::min<ptrdiff_t>(2, std::ssize(words))
                                   : std::ranges::find_if(words, [](std::string_view word) {
                                         return word.find('=') != word.npos;
                                     });
        const std::span<const std::string_view> group(words.begin(), item),
            items(item, words.end());
        if (items.empty()) return invalid_argument("it gives no figure");
        return is_codec ? take_codec(words[1], items) : take_figures(joined(group), items);
    }

    Result<CalibrationFile> finish() {
        if (!has_title_)
            return invalid_argument(
                "it is empty; the first line is \"qccl-calibration version=1\"");
        if (file_.machine.empty())
            return invalid_argument(
                "it does not say which machine was measured, in a line \"machine ...\"");
        file_.jobs_of_other_models = std::erase_if(file_.jobs, [this](const MeasuredJob &job) {
            return std::ranges::find(other_models_, job.shape()) != other_models_.end();
        });
        return std::move(file_);
    }

private:
    // The figures to which the next lines belong.
    Calibration &figures() {
        return file_.jobs.empty() ? file_.figures : file_.jobs.back().figures;
    }

    Done take_title(std::string_view line) {
        const auto words = words_of(line);
        if (words.front() != calibration_title || words.size() != 2 ||
            !words[1].starts_with("version="))
            return invalid_argument("it is no calibration: it begins with \"%s\", not with "
                                    "\"qccl-calibration version=1\"",
                                    excerpt(line).c_str());
        const auto version = parse_count(parted_at(words[1], '=').behind);
        if (version != newest_calibration_version)
            return invalid_argument("it has %s, and this library reads version 1",
                                    excerpt(words[1]).c_str());
        has_title_ = true;
        return {};
    }

    Done take_machine(std::string_view machine) {
        if (!file_.machine.empty()) return invalid_argument("it has two machines");
        file_.machine = machine;
        return {};
    }

    Done take_figures(const std::string &group, std::span<const std::string_view> items) {
        const auto is_of_group = [&](const CalibratedFigure &row) { return row.group == group; };
        if (std::ranges::none_of(table, is_of_group))
            return no_choice("group of figures", excerpt(group), groups());
        for (const std::string_view item : items) {
            const Parted parts = parted_at(item, '=');
            Names keys;
            const CalibratedFigure *found = nullptr;
            for (const CalibratedFigure &row : table) {
                if (!is_of_group(row)) continue;
                keys.push_back(row.key);
                if (row.key == parts.before) found = &row;
            }
            if (!found) return no_choice("figure", excerpt(parts.before), keys);
            const auto number = static_cast<size_t>(found - table.data());
            if (figures().has(number))
                return invalid_argument("%s is given twice", std::string(found->key).c_str());
            QCCL_TRY(const double value,
                     parse_figure(found->key, parts.behind, found->least, found->most));
            figures().set(number, value);
        }
        return {};
    }

    Done take_codec(std::string_view spec, std::span<const std::string_view> items) {
        QCCL_TRY(const Codec codec, parse_codec(spec));
        if (codec.is_lossless() || codec.is_auto())
            return invalid_argument("%s encodes nothing", excerpt(spec).c_str());
        CodecRate rate;
        for (const std::string_view item : items) {
            const Parted parts = parted_at(item, '=');
            const auto *found = std::ranges::find(operations, parts.before, &Operation::name);
            if (found == std::end(operations))
                return no_choice("operation", excerpt(parts.before), names_of(operations));
            QCCL_TRY(const double value,
                     parse_figure(found->name, parts.behind, slowest_rate, fastest_rate));
            if (rate.*(found->rate) != 0)
                return invalid_argument("%s is given twice", std::string(found->name).c_str());
            rate.*(found->rate) = static_cast<float>(value);
        }
        for (const Operation &operation : operations)
            if (rate.*(operation.rate) == 0)
                return invalid_argument("the codec has no %s", std::string(operation.name).c_str());
        figures().set(codec, rate);
        return {};
    }

    Done take_job(std::span<const std::string_view> words) {
        JobShape shape;
        std::optional<uint64_t> model;
        for (const std::string_view word : words.subspan(1)) {
            const Parted item = parted_at(word, '=');
            const auto number = parse_count(item.behind);
            if (item.before == "model" && number) {
                if (model) return invalid_argument("model is given twice");
                model = number;
                continue;
            }
            if ((item.before != "ranks" && item.before != "hosts") || !number || *number == 0 ||
                *number > UINT32_MAX)
                return invalid_argument(
                    "\"%s\": expected ranks= and hosts= with a number from 1 on, and model=",
                    excerpt(word).c_str());
            uint32_t &to = item.before == "ranks" ? shape.ranks : shape.hosts;
            if (to != 0)
                return invalid_argument("%s is given twice", std::string(item.before).c_str());
            to = static_cast<uint32_t>(*number);
        }
        if (shape.ranks == 0 || shape.hosts == 0)
            return invalid_argument("a job has ranks= and hosts=");
        if (file_.of(shape)) return invalid_argument("the job is given twice");
        MeasuredJob &job = file_.jobs.emplace_back();
        job.counted.shape = job.simulated.shape = shape;
        if (model != cost_model_version) other_models_.push_back(shape);
        return {};
    }

    Done take_factors(std::span<const std::string_view> words, Corrections MeasuredJob::*to) {
        constexpr size_t first_factor = 4;
        if (file_.jobs.empty()) return invalid_argument("there is no line of a job before it");
        if (words.size() <= first_factor)
            return invalid_argument(
                "expected a collective, an algorithm, none, int8 or int4, and factors");
        Corrections::Calls calls;
        const auto collective = parse_collective(words[1]);
        if (!collective)
            return invalid_argument("\"%s\" is no collective", excerpt(words[1]).c_str());
        calls.collective = *collective;
        QCCL_TRY(calls.algorithm, parse_algorithm(words[2]));
        const auto *const codec = std::ranges::find(width_codecs, words[3]);
        if (codec == width_codecs.end())
            return no_choice("codec", excerpt(words[3]),
                             Names(width_codecs.begin(), width_codecs.end()));
        calls.width = static_cast<CodecWidth>(codec - width_codecs.begin());
        for (const std::string_view item : words.subspan(first_factor)) {
            const Parted parts = parted_at(item, '=');
            const auto *const size =
                std::ranges::find(Corrections::sizes, parse_count(parts.before).value_or(0));
            if (size == Corrections::sizes.end())
                return invalid_argument("\"%s\" is no size of measured calls, which are %s",
                                        excerpt(parts.before).c_str(), sizes_in_words().c_str());
            QCCL_TRY(const double factor,
                     parse_figure("factor", parts.behind, Corrections::least, Corrections::most));
            Corrections &job = file_.jobs.back().*to;
            const auto number = static_cast<size_t>(size - Corrections::sizes.begin());
            if (job.measured(calls, number) != 0)
                return invalid_argument("%s is given twice", excerpt(parts.before).c_str());
            job.set(calls, number, factor);
        }
        return {};
    }

    CalibrationFile file_;
    std::vector<JobShape> other_models_; // shapes of jobs of other cost models
    bool has_title_ = false;
};

} // namespace

std::span<const CalibratedFigure> calibrated_figures() { return table; }

Calibration::Calibration() {
    static_assert(table.size() <= most_figures);
    figures_.fill(std::numeric_limits<double>::quiet_NaN());
}

void Calibration::forget(size_t figure) {
    figures_[figure] = std::numeric_limits<double>::quiet_NaN();
}

bool Calibration::has(size_t figure) const { return !std::isnan(figures_[figure]); }

bool Calibration::is_empty() const {
    return codec_rates_ == CodecRates() &&
           std::ranges::all_of(figures_, [](double each) { return std::isnan(each); });
}

void Calibration::apply(const Settings &settings, CostModel &speeds) const {
    for (size_t i = 0; i < table.size(); i++)
        if (has(i)) table[i].of(speeds) = figures_[i];
    if (has(remote_rate)) speeds.remote_rate_source = RateSource::measured;
    speeds.codec_rates.replace_by(codec_rates_);
    take_settings(settings, speeds);
}

void Calibration::update(const Calibration &newer) {
    for (size_t i = 0; i < figures_.size(); i++)
        if (newer.has(i)) figures_[i] = newer.figures_[i];
    codec_rates_.replace_by(newer.codec_rates_);
}

Result<CalibrationFile> parse_calibration(std::string_view text) {
    CalibrationReader reader;
    QCCL_TRY(read_lines(text, [&](std::string_view line, uint32_t) { return reader.take(line); }));
    return reader.finish();
}

const MeasuredJob *CalibrationFile::of(const JobShape &shape) const {
    const auto found = std::ranges::find(jobs, shape, &MeasuredJob::shape);
    return found == jobs.end() ? nullptr : &*found;
}

Calibration CalibrationFile::figures_of(const JobShape &shape) const {
    Calibration all = figures;
    if (const MeasuredJob *const job = of(shape)) all.update(job->figures);
    return all;
}

void CalibrationFile::replace(const MeasuredJob &job) {
    std::erase_if(jobs, [&](const MeasuredJob &each) { return each.shape() == job.shape(); });
    jobs.push_back(job);
}

static void append_factors(std::string &text, std::string_view group, const Corrections &job,
                           const Corrections::Calls &calls) {
    std::string factors;
    for (size_t i = 0; i < Corrections::sizes.size(); i++) {
        const double factor = job.measured(calls, i);
        if (factor == 0) continue;
        factors.append(" ").append(std::to_string(Corrections::sizes[i])).append("=");
        append_number(factors, static_cast<float>(factor));
    }
    if (factors.empty()) return;
    text.append("\n").append(group).append(" ").append(name(calls.collective)).append(" ");
    text.append(spec(calls.algorithm)).append(" ");
    text.append(width_codecs[static_cast<size_t>(calls.width)]).append(factors);
}

static void append_factors(std::string &text, std::string_view group, const Corrections &job) {
    for (const Collective collective : value_collectives)
        for (const Algorithm &algorithm : algorithms())
            for (const CodecWidth width : {CodecWidth::none, CodecWidth::wide, CodecWidth::narrow})
                append_factors(text, group, job,
                               {.collective = collective, .algorithm = algorithm, .width = width});
}

static void append_figures(std::string &text, const Calibration &figures) {
    std::string_view group;
    for (size_t i = 0; i < table.size(); i++) {
        if (!figures.has(i)) continue;
        if (table[i].group != group) text.append("\n").append(table[i].group);
        group = table[i].group;
        text.append(" ").append(table[i].key).append("=");
        append_number(text, figures.at(i));
    }
    for (const std::string_view name : rated_codecs()) {
        const auto codec = parse_codec(name);
        const CodecRate rate = codec ? figures.codec_rate(*codec) : CodecRate();
        if (rate == CodecRate()) continue;
        text.append("\n").append(codec_group).append(" ").append(name);
        for (const Operation &operation : operations) {
            text.append(" ").append(operation.name).append("=");
            append_number(text, rate.*(operation.rate));
        }
    }
}

std::string print(const CalibrationFile &file) {
    std::string text(calibration_title);
    text.append(" version=1\nmachine ").append(file.machine);
    append_figures(text, file.figures);
    for (const MeasuredJob &job : file.jobs) {
        text.append("\n").append(job_group).append(" ranks=").append(
            std::to_string(job.shape().ranks));
        text.append(" hosts=").append(std::to_string(job.shape().hosts));
        text.append(" model=").append(std::to_string(cost_model_version));
        append_figures(text, job.figures);
        append_factors(text, counted_group, job.counted);
        append_factors(text, simulated_group, job.simulated);
    }
    return text + "\n";
}

} // namespace qccl
