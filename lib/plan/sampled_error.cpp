// Composes the error of a result from the sampled losses of one encode. Guards have a hysteresis
// between lossless calls and calls with a codec. Audits turn sampled losses into estimated errors,
// merge the rows of communicators that were created alike, and are printed as a table for people
// and as JSON.
#include "plan/sampled_error.hpp"

#include "base/text.hpp"
#include "codec/error_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

namespace qccl {

// ---- Estimates

bool EncodeCounts::loses() const {
    return (codec.loses() && encodes.first > 0) || (inner_codec.loses() && inner_encodes.first > 0);
}

// A rank adds its own values exactly in the part that it sums, if the algorithm lets it; an
// all-reduce then encodes the result. Of tiers it is not known which rank that is.
EncodeCounts encode_counts(const Plan &plan, Collective collective) {
    EncodeCounts counts{.codec = plan.codec,
                        .inner_codec = plan.inner_codec,
                        .encodes = plan.cost.noise,
                        .inner_encodes = plan.cost.inner_noise,
                        .summands = static_cast<double>(plan.cost.summands)};
    const bool adds_own = plan.algorithm && plan.algorithm.own() == OwnInput::exact &&
                          !plan.algorithm.row().inner_noise && reduces(collective) &&
                          !is_prefix(collective);
    if (adds_own) counts.result_encodes = collective == Collective::all_reduce ? 1 : 0;
    return counts;
}

double estimated_nmse(const EncodeCounts &counts, const SampledValues &values) {
    const Loss outer = repeated(counts.codec, values.loss, counts.encodes.first, counts.summands);
    const Loss inner = repeated(counts.inner_codec, values.inner_loss, counts.inner_encodes.first,
                                counts.summands);
    return outer.followed_by(inner).nmse() * values.cancellation;
}

namespace {

// A sum's encodes as a number of encodes of the whole result, and what each of them loses.
struct WholeEncodes {
    double number = 0;
    Loss once = {};
};

// If the part `free` of the ranks' values is independent and the rest is common to all ranks, a sum
// of the share x of the contributions has the part free * x + (1 - free) * x^2 of the result's mean
// square.
WholeEncodes whole_encodes(const NoiseMoments &encodes, const Loss &input, const Loss &result,
                           double summands, double free) {
    const double number = free * encodes.first + (1 - free) * encodes.second;
    if (number <= 0) return {};
    // The mean share, by which the loss lies between that of one contribution and that of all.
    const double share = (free * encodes.second + (1 - free) * encodes.third) / number;
    const double way = std::clamp((share * summands - 1) / (summands - 1), 0.0, 1.0);
    return {number,
            {.shrink = std::lerp(input.shrink, result.shrink, way),
             .growth = std::lerp(input.growth, result.growth, way)}};
}

// Returns the encodes of ranks that sum the part `own_share` of all squares themselves, where equal
// ranks would sum 1 / ranks of them. What is left for the encodes before the sum grows or shrinks
// by one factor, as the other ranks' values are taken for equally large.
NoiseMoments encodes_of(const EncodeCounts &counts, const std::optional<double> &own_share) {
    const bool is_known = own_share && counts.result_encodes && counts.encodes.first != 0;
    if (!is_known || counts.summands <= 1) return counts.encodes;
    const NoiseMoments results = NoiseMoments::of(1, *counts.result_encodes);
    const double factor = (1 - *own_share) / (1 - 1 / counts.summands);
    return (counts.encodes + results * -1) * factor + results;
}

Loss scaled(const Loss &loss, double factor) {
    return {.shrink = factor * loss.shrink, .growth = factor * loss.growth};
}

// A codec that drops a part of the values and keeps the rest: what one encode keeps of values that
// ranks have in common, the next one keeps, too, so only independent values lose a part again. The
// more an encode of `topk` drops, the fewer values hold the rest, of which the next encode loses
// little; and however often partial sums are encoded, their large values stay where they are.
double repeats(const Codec &codec, const NoiseMoments &encodes, double nmse, double summands,
               double free) {
    const double more = encodes.first - 1;
    const CodecKind kind = codec.row().kind;
    if (kind == CodecKind::onebit || kind == CodecKind::tbq) return 1 + free * more;
    return 1 + free * (1 - nmse) * std::min(more, 1 - 1 / summands);
}

// How much the errors of two ranks, which round to the nearest, resemble each other: that of
// roundings of values with a Gaussian difference, after A. Sripad and D. Snyder, "A necessary and
// sufficient condition for quantization errors to be uniform and white", 1977. `difference` is the
// part of a rank's mean square that is not common; a step has the square 12 nmse.
double coherence(double difference, double nmse) {
    if (nmse <= 0) return 0;
    return std::exp(-std::numbers::pi * std::numbers::pi / 3 * difference / nmse);
}

Loss expected_loss(const Codec &codec, const NoiseMoments &encodes, const Loss &input,
                   const Loss &result, const EncodeCounts &counts, double power_ratio) {
    const double summands = counts.summands;
    if (!codec.loses() || encodes.first == 0) return {};
    if (summands <= 1) return repeated(codec, input, encodes.first, 1);
    const double free = std::max(0.0, (power_ratio * summands - 1) / (summands - 1));
    const WholeEncodes whole = whole_encodes(encodes, input, result, summands, free);
    const CodecKind kind = codec.row().kind;
    const double nmse = whole.once.nmse();
    if (kind == CodecKind::dummy) return whole.once; // the same part each time
    if (kind == CodecKind::topk || kind == CodecKind::onebit || kind == CodecKind::tbq) {
        const double times = repeats(codec, encodes, nmse, summands, std::min(free, 1.0));
        return scaled(repeated(codec, whole.once, times, summands), std::max(1.0, power_ratio));
    }
    // A part of an encode has the same part of its noise. Where noise grows up to a bound, that is
    // lower for ranks that are together weaker than the result.
    const Loss independent =
        whole.number < 1 ? scaled(whole.once, whole.number)
                         : repeated(codec, whole.once, whole.number, summands * power_ratio);
    // Equal values are rounded alike, and their sum meets the codes of the result, whether noise
    // chose the neighbour or not.
    const double alike = coherence(free / power_ratio, nmse);
    const bool draws = codec.draws_noise();
    const Loss equal = scaled(whole.once, draws ? std::min(whole.number, 1.0) : 1);
    return {.shrink = std::lerp(independent.shrink, equal.shrink, alike),
            .growth = std::lerp(independent.growth, equal.growth, alike)};
}

} // namespace

double expected_nmse(const EncodeCounts &counts, const SumStatistics &of) {
    return expected_loss(counts.codec, encodes_of(counts, of.own_share), of.input, of.result,
                         counts, of.power_ratio)
        .followed_by(expected_loss(counts.inner_codec, counts.inner_encodes, of.inner_input,
                                   of.inner_result, counts, of.power_ratio))
        .nmse();
}

constexpr double most_cancellation = 1e12; // for ranks that cancel each other out exactly

double power_ratio_of(double own, double result, double summands) {
    if (own == 0) return 1;
    return result == 0 ? most_cancellation
                       : std::clamp(summands * own / result, 1 / summands, most_cancellation);
}

double cancellation_of(double own, double result, double summands) {
    return std::max(1.0, power_ratio_of(own, result, summands));
}

Loss greater(const Loss &a, const Loss &b) { return a.nmse() < b.nmse() ? b : a; }

// ---- Guards

GuardState::Change GuardState::note(double nmse, double budget) {
    latest_ = nmse;
    if (!is_lossless_) {
        if (nmse <= budget) return Change::none;
        is_lossless_ = true;
        good_ = 0;
        to_return_ = std::min(to_return_ * 2, most_to_return);
        return Change::falls_back;
    }
    if (nmse == 0) return Change::none;
    // Otherwise an error that moves around the budget would change results from call to call.
    good_ = nmse <= budget / 2 ? good_ + 1 : 0;
    if (good_ < to_return_) return Change::none;
    is_lossless_ = false;
    return Change::returns;
}

// ---- Audits

bool AuditedShape::is_encodable() const {
    if (!row_of(collective).has_values || !info(type).is_float || count == 0) return false;
    return !reduces(collective) || adds(op);
}

void AuditEntry::add_sample(std::span<const SampledLoss> input, std::span<const SampledLoss> result,
                            double ranks, bool divides) {
    samples++;
    by_codec.resize(input.size());
    for (size_t i = 0; i < input.size(); i++) {
        AuditTally &tally = by_codec[i];
        tally.input.add(input[i]);
        Loss loss = input[i].loss();
        double cancellation = 1;
        if (!result.empty()) {
            const double scale = divides ? ranks * ranks : 1;
            tally.result.add(result[i]);
            loss = greater(loss, result[i].loss());
            cancellation = cancellation_of(input[i].square, result[i].square * scale, ranks);
            if (i == 0) own_square += input[i].square;
            if (i == 0) sum_square += result[i].square * scale;
        }
        if (loss.nmse() * cancellation < tally.worst.nmse() * tally.worst_cancellation) continue;
        tally.worst = loss;
        tally.worst_cancellation = cancellation;
    }
}

namespace {

// The audit asks what the codec does at every size, whether it pays there or not.
Codec at_any_size(Codec codec) {
    codec.min_bytes = 0;
    return codec;
}

double estimate(const EncodeCounts &counts, const Loss &loss, double cancellation) {
    const bool has_inner = !counts.inner_codec.is_lossless();
    return estimated_nmse(
        counts,
        {.loss = loss, .inner_loss = has_inner ? loss : Loss(), .cancellation = cancellation});
}

} // namespace

// A rank that has no result knows its values alone.
static SumStatistics statistics_of(const EncodeCounts &counts, const AuditEntry &entry,
                                   const AuditTally &tally) {
    const bool has_inner = !counts.inner_codec.is_lossless();
    const Loss input = tally.input.loss();
    const Loss result = tally.result.square == 0 ? input : tally.result.loss();
    return {.input = input,
            .result = result,
            .inner_input = has_inner ? input : Loss(),
            .inner_result = has_inner ? result : Loss(),
            .power_ratio = power_ratio_of(entry.own_square, entry.sum_square, counts.summands)};
}

Result<AuditRow> audit_row(const AuditedShape &shape, const AuditEntry &entry,
                           std::span<const Codec> codecs, const Problem &usual,
                           const PlannerInputs &inputs, const Algorithm &forced) {
    Problem problem = usual;
    problem.collective = shape.collective;
    problem.count = shape.count;
    problem.root = shape.root;
    problem.type = shape.type;
    AuditRow row{.comm = {},
                 .shape = shape,
                 .calls = entry.calls,
                 .samples = entry.samples,
                 .bytes = vector_bytes(problem),
                 .guessed_bytes_per_ns =
                     problem.has_hosts() && !inputs.speeds.is_remote_rate_known()
                         ? inputs.speeds.remote_bytes_per_ns
                         : 0,
                 .has_hosts = problem.has_hosts(),
                 .findings = {}};
    StepCountCache counted;
    QCCL_TRY(const Plan lossless, choose(with_codec(problem, {}), inputs, forced, &counted));
    for (size_t i = 0; i < codecs.size(); i++) {
        QCCL_TRY(const Plan plan,
                 choose(with_codec(problem, at_any_size(codecs[i])), inputs, forced, &counted));
        const AuditTally tally = i < entry.by_codec.size() ? entry.by_codec[i] : AuditTally();
        const EncodeCounts counts = encode_counts(plan, shape.collective);
        row.findings.push_back({.bits = bits_per_value(codecs[i], shape.type),
                                .nmse = expected_nmse(counts, statistics_of(counts, entry, tally)),
                                .worst = estimate(counts, tally.worst, tally.worst_cancellation),
                                .lossless_ns = lossless.cost.time_ns,
                                .ns = plan.cost.time_ns,
                                .algorithm = spec(plan.algorithm)});
    }
    return row;
}

void merge(AuditRow &into, const AuditRow &row) {
    const auto mean = [&](double a, double b) {
        const auto first = static_cast<double>(into.samples),
                   second = static_cast<double>(row.samples);
        return first + second == 0 ? 0 : (a * first + b * second) / (first + second);
    };
    for (size_t i = 0; i < into.findings.size(); i++) {
        AuditFinding &finding = into.findings[i];
        finding.nmse = mean(finding.nmse, row.findings[i].nmse);
        finding.worst = std::max(finding.worst, row.findings[i].worst);
    }
    into.calls += row.calls;
    into.samples += row.samples;
}

// ---- Reports of audits

namespace {

using Number = unsigned long long;

// Findings about all calls of one tag, whatever their shapes.
struct TagFinding {
    double bits = 0, nmse = 0, worst = 0, lossless_ns = 0, ns = 0;
};
struct TagRow {
    uint64_t calls = 0, samples = 0;
    double bytes = 0;
    bool is_guessed = false; // the predicted times rest on an assumed rate
    bool has_hosts = false;  // false: no gain is predicted
    std::vector<TagFinding> findings;
};
using TagKey = std::pair<std::string, uint64_t>; // communicator and tag
using TagRows = std::map<TagKey, TagRow>;

TagRows by_tag(std::span<const AuditRow> rows, size_t codecs) {
    TagRows tags;
    for (const AuditRow &row : rows) {
        TagRow &tag = tags[{row.comm, row.shape.tag}];
        const auto calls = static_cast<double>(row.calls);
        const double bytes = calls * static_cast<double>(row.bytes);
        tag.findings.resize(codecs);
        for (size_t i = 0; i < codecs; i++) {
            const AuditFinding &finding = row.findings[i];
            TagFinding &sum = tag.findings[i];
            // Bits and errors are means over bytes, and all types count.
            sum.bits += finding.bits * bytes;
            sum.nmse += finding.nmse * bytes;
            sum.worst = std::max(sum.worst, finding.worst);
            sum.lossless_ns += finding.lossless_ns * calls;
            sum.ns += finding.ns * calls;
        }
        tag.is_guessed |= row.guessed_bytes_per_ns != 0;
        tag.has_hosts |= row.has_hosts;
        tag.calls += row.calls;
        tag.samples += row.samples;
        tag.bytes += bytes;
    }
    for (auto &[key, tag] : tags)
        for (TagFinding &finding : tag.findings) {
            finding.bits /= tag.bytes;
            finding.nmse /= tag.bytes;
        }
    return tags;
}

std::string tag_text(uint64_t tag) { return tag == 0 ? "-" : std::to_string(tag); }

std::string bytes_text(double bytes) {
    constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < std::size(units); unit++) bytes /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, "%.4g %s", bytes, units[unit]);
    return text;
}

std::string gain_text(const TagRow &tag, const TagFinding &finding) {
    if (!tag.has_hosts) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2fx%s",
                  finding.ns == 0 ? 1 : finding.lossless_ns / finding.ns,
                  tag.is_guessed ? "?" : "");
    return text;
}

void add_tag(std::string &text, const TagKey &key, const TagRow &tag,
             const std::vector<Codec> &codecs) {
    for (size_t i = 0; i < codecs.size(); i++) {
        const TagFinding &finding = tag.findings[i];
        if (i == 0)
            append_format(text, "  %-20.40s %6s %9llu %10s", key.first.c_str(),
                          tag_text(key.second).c_str(), static_cast<Number>(tag.calls),
                          bytes_text(tag.bytes).c_str());
        else
            append_format(text, "  %-20s %6s %9s %10s", "", "", "", "");
        append_format(text, "  %-22.60s %6.2f  %8.2g  %8.2g  %6s\n", spec(codecs[i]).c_str(),
                      finding.bits, finding.nmse, finding.worst, gain_text(tag, finding).c_str());
    }
}

// Returns the index of the codec with the fewest bits whose worst sample keeps the error, or the
// number of codecs if there is none.
size_t cheapest(const TagRow &tag, double nmse) {
    size_t best = tag.findings.size();
    for (size_t i = 0; i < tag.findings.size(); i++)
        if (tag.samples != 0 && tag.findings[i].worst <= nmse &&
            (best == tag.findings.size() || tag.findings[i].bits < tag.findings[best].bits))
            best = i;
    return best;
}

// A list of tags in words, with their communicators if there is more than one.
class TagList {
public:
    explicit TagList(bool names_comm) : names_comm_(names_comm) {}

    void add(const TagKey &key) {
        if (++tags_ > most_named) return;
        text_ += (tags_ == 1 ? "tag " : ", ") + tag_text(key.second);
        if (names_comm_) text_ += " of " + key.first;
    }
    std::string text() const {
        if (tags_ <= most_named) return text_;
        return text_ + " and " + std::to_string(tags_ - most_named) + " more";
    }

private:
    static constexpr size_t most_named = 8;
    bool names_comm_;
    size_t tags_ = 0;
    std::string text_;
};

// Returns whether no codec has lost anything of the samples: they hold only zeros, or only values
// that the codecs represent exactly.
bool is_unknown(const TagRow &tag) {
    return std::ranges::all_of(tag.findings,
                               [](const TagFinding &finding) { return finding.worst == 0; });
}

void add_safe(std::string &text, const TagRows &tags, const std::vector<Codec> &codecs) {
    text += "safe, by the worst sample:";
    if (std::ranges::all_of(tags, [](const auto &tag) { return is_unknown(tag.second); })) {
        text += " not known, as no codec has lost anything of the samples (zeros, or a few values "
                "that codes meet)\n";
        return;
    }
    text += "\n";
    const bool has_comms = tags.begin()->first.first != tags.rbegin()->first.first;
    for (const double nmse : {1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
        std::map<size_t, TagList> chosen; // by codec
        for (const auto &[key, tag] : tags)
            if (!is_unknown(tag))
                chosen.try_emplace(cheapest(tag, nmse), has_comms).first->second.add(key);
        append_format(text, "  NMSE up to %.0e:", nmse);
        bool is_first = true;
        for (const auto &[codec, list] : chosen) {
            const std::string name = codec < codecs.size() ? spec(codecs[codec]) : "none of them";
            text += (is_first ? " " : "; ") + name;
            if (chosen.size() > 1) text += " for " + list.text();
            is_first = false;
        }
        text += "\n";
    }
}

} // namespace

std::string audit_table(const AuditHead &head, std::span<const AuditRow> rows) {
    std::string text;
    append_format(text, "QCCL_AUDIT of rank %u of %u, process %lld on %.100s\n", head.rank,
                  head.ranks, static_cast<long long>(head.pid), head.host.c_str());
    if (rows.empty()) {
        text += "  no call could have been encoded\n";
        return text;
    }
    const TagRows tags = by_tag(rows, head.codecs.size());
    append_format(text, "  %-20s %6s %9s %10s  %-22s %6s  %8s  %8s  %6s\n", "communicator", "tag",
                  "calls", "bytes", "codec", "bits", "NMSE", "worst", "gain");
    for (const auto &[key, tag] : tags) add_tag(text, key, tag, head.codecs);
    add_safe(text, tags, head.codecs);
    if (head.other_calls != 0)
        append_format(text,
                      "  %llu other calls are not in it: barriers, integers, other operations\n",
                      static_cast<Number>(head.other_calls));
    text += "NMSE: expected of results, by samples of this rank's values and of results; worst: of "
            "the sample that loses most, cautiously; gain: predicted time without the codec over "
            "that with it\n";
    if (std::ranges::none_of(rows, &AuditRow::has_hosts))
        text += "all ranks are on one host, where memory is the bound: no gain is predicted\n";
    for (const AuditRow &row : rows) {
        if (row.guessed_bytes_per_ns == 0) continue;
        append_format(
            text,
            "?: how fast the links between hosts are is unknown, and taken for %.4g GB/s; "
            "QCCL_LINK_RATE says it\n",
            row.guessed_bytes_per_ns);
        break;
    }
    return text;
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const AuditRow &row, const std::vector<Codec> &codecs) {
    const AuditedShape &shape = row.shape;
    Json findings = Json::array();
    for (size_t i = 0; i < codecs.size(); i++) {
        const AuditFinding &finding = row.findings[i];
        findings.push_back({{"codec", spec(codecs[i])},
                            {"bits", finding.bits},
                            {"nmse", finding.nmse}, // not finite: null
                            {"worst_nmse", finding.worst},
                            {"algorithm", finding.algorithm},
                            {"predicted_ns", finding.ns},
                            {"lossless_predicted_ns", finding.lossless_ns}});
    }
    return {{"communicator", row.comm},
            {"tag", shape.tag},
            {"collective", name(shape.collective)},
            {"type", name(shape.type)},
            {"op", reduces(shape.collective) ? name(shape.op) : "none"},
            {"root", shape.root},
            {"count", shape.count},
            {"bytes", row.bytes},
            {"calls", row.calls},
            {"samples", row.samples},
            {"rate_known", row.guessed_bytes_per_ns == 0},
            {"codecs", std::move(findings)}};
}

} // namespace

// Bytes in names that are not UTF-8 are replaced.
std::string audit_json(const AuditHead &head, std::span<const AuditRow> rows) {
    Json found = Json::array();
    for (const AuditRow &row : rows) found.push_back(json_of(row, head.codecs));
    const Json json = {{"qccl_audit", 1},
                       {"rank", head.rank},
                       {"ranks", head.ranks},
                       {"process", head.pid},
                       {"host", head.host},
                       {"library", head.library},
                       {"other_calls", head.other_calls},
                       {"rows", std::move(found)}};
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace qccl
