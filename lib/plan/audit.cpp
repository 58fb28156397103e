// Turns sampled losses into estimated errors of results, and merges the rows of alike
// communicators.
#include "plan/audit.hpp"

#include "codec/error_bound.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

bool AuditedShape::is_encodable() const {
    if (collective == Collective::barrier || !info(type).is_float || count == 0) return false;
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
                 .guessed_bytes_per_ns = problem.has_hosts() && !inputs.speeds.is_far_rate_known()
                                             ? inputs.speeds.far_bytes_per_ns
                                             : 0,
                 .has_hosts = problem.has_hosts(),
                 .findings = {}};
    StepCountCache counted;
    QCCL_TRY(const Plan lossless, choose(with_codec(problem, {}), inputs, forced, &counted));
    for (size_t i = 0; i < codecs.size(); i++) {
        QCCL_TRY(const Plan plan,
                 choose(with_codec(problem, at_any_size(codecs[i])), inputs, forced, &counted));
        const AuditTally tally = i < entry.by_codec.size() ? entry.by_codec[i] : AuditTally();
        const EncodeCounts counts = encode_counts(plan);
        const Loss usual_loss = greater(tally.input.loss(), tally.result.loss());
        row.findings.push_back(
            {.bits = bits_per_value(codecs[i], shape.type),
             .nmse = estimate(counts, usual_loss,
                              cancellation_of(entry.own_square, entry.sum_square, counts.summands)),
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

} // namespace qccl
