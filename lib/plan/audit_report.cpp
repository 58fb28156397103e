// Prints an audit as a table for people and as JSON.
#include "plan/audit.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

namespace qccl {

namespace {

template <class... Arguments>
void append(std::string &text, const char *format, Arguments... arguments) {
    char line[320];
    std::snprintf(line, sizeof line, format, arguments...);
    text += line;
}

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
            append(text, "  %-20.40s %6s %9llu %10s", key.first.c_str(),
                   tag_text(key.second).c_str(), static_cast<Number>(tag.calls),
                   bytes_text(tag.bytes).c_str());
        else
            append(text, "  %-20s %6s %9s %10s", "", "", "", "");
        append(text, "  %-22.60s %6.2f  %8.2g  %8.2g  %6s\n", spec(codecs[i]).c_str(), finding.bits,
               finding.nmse, finding.worst, gain_text(tag, finding).c_str());
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
        append(text, "  NMSE up to %.0e:", nmse);
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
    append(text, "QCCL_AUDIT of rank %u of %u, process %lld on %.100s\n", head.rank, head.ranks,
           static_cast<long long>(head.pid), head.host.c_str());
    if (rows.empty()) {
        text += "  no call could have been encoded\n";
        return text;
    }
    const TagRows tags = by_tag(rows, head.codecs.size());
    append(text, "  %-20s %6s %9s %10s  %-22s %6s  %8s  %8s  %6s\n", "communicator", "tag", "calls",
           "bytes", "codec", "bits", "NMSE", "worst", "gain");
    for (const auto &[key, tag] : tags) add_tag(text, key, tag, head.codecs);
    add_safe(text, tags, head.codecs);
    if (head.other_calls != 0)
        append(text, "  %llu other calls are not in it: barriers, integers, other operations\n",
               static_cast<Number>(head.other_calls));
    text += "NMSE: of results, estimated from samples of this rank's values; gain: predicted time "
            "without the codec over that with it\n";
    if (std::ranges::none_of(rows, &AuditRow::has_hosts))
        text += "all ranks are on one host, where memory is the bound: no gain is predicted\n";
    for (const AuditRow &row : rows) {
        if (row.guessed_bytes_per_ns == 0) continue;
        append(text,
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
