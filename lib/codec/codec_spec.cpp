// Parses and writes codec spec strings, which codec.hpp declares, by one table of names and keys.
#include "codec/codec.hpp"

#include "base/text.hpp"
#include "codec/codec_names.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

namespace qccl {

namespace {

struct KeyRow {
    SpecKey key;
    std::string_view name;
    std::array<std::string_view, 3>
        possible; // values, in words; those behind the first may be empty
};

constexpr auto key_table = std::to_array<KeyRow>({
    {SpecKey::bits, "bits", {"1 to 8"}},
    {SpecKey::bucket, "bucket", {"1 to 1073741824", "all"}},
    {SpecKey::block, "block", {"1 to 1073741824"}},
    {SpecKey::round, "round", {"nearest", "stochastic", "dither"}},
    {SpecKey::seed, "seed", {"0 to 18446744073709551615"}},
    {SpecKey::min, "min", {"a number of bytes, also with K, M, G or T behind it"}},
    {SpecKey::skip_incomplete, "skip_incomplete", {"0", "1"}},
    {SpecKey::scale, "scale", {"ceil", "ocp"}},
    {SpecKey::norm, "norm", {"l2", "linf"}},
    {SpecKey::levels, "levels", {"uniform", "exponential"}},
    {SpecKey::clip, "clip", {"0.001 to 1000"}},
    {SpecKey::ratio, "ratio", {"0.000001 to 1"}},
    {SpecKey::momentum, "momentum", {"0 to 0.999"}},
    {SpecKey::warmup, "warmup", {"0 to 1000000000"}},
    {SpecKey::entropy, "entropy", {"0", "1"}},
    {SpecKey::rotate, "rotate", {"0", "off", "a power of two from 32 to 512"}},
    {SpecKey::threshold, "threshold", {"a number from 1.2e-38 to 3.4e38"}},
    {SpecKey::abs, "abs", {"1e-36 to 1e36"}},
    {SpecKey::rel, "rel", {"1e-9 to 1"}},
    {SpecKey::pw, "pw", {"1e-6 to 0.5"}},
    {SpecKey::nmse, "nmse", {budget_nmse_words}},
    {SpecKey::most_bits, "bits", {budget_bits_words}},
    {SpecKey::from, "from", {budget_from_words}},
    {SpecKey::guard, "guard", {guard_words}},
    {SpecKey::owner, "owner", {"decoded", "exact"}},
});
static_assert(is_in_order(key_table, &KeyRow::key));
static_assert(most_code_bits == 8 && largest_bucket == 1073741824 && largest_clip == 1000 * 1000);
static_assert(least_rotation == 32 && most_rotation == 512);
static_assert(whole_share == 1000 * 1000 && whole_momentum == 1000 &&
              longest_warm_up == 1000000000);
constexpr unsigned clip_decimals = 3, ratio_decimals = 6, momentum_decimals = 3;

constexpr const KeyRow &row_of(SpecKey key) { return key_table[static_cast<size_t>(key)]; }

// A name that specs start with.
struct NameRow {
    std::string_view name;
    Codec usual; // the codec of the bare name; auto alone is no codec
    SpecKeys keys;
};

// topk with the ratio of Gradient Dropping (Aji and Heafield, EMNLP 2017). Its threshold comes from
// a sample, as the bounds do between which topk's encoders look for theirs; what it keeps for later
// calls is in their state.
constexpr Codec usual_graddrop = [] {
    Codec codec = usual_topk;
    codec.share = whole_share / 100;
    return codec;
}();

// Names of rows that come later are other names: specs are written with the first.
constexpr auto name_table = [] {
    std::array<NameRow, codec_words.size() + 1> names{};
    size_t next = 0;
    for (const CodecRow &row : codec_table) {
        if (row.bits_names.empty()) names.at(next++) = {row.name, row.usual, row.keys};
        for (const BitsName &word : row.bits_names) {
            Codec codec = row.usual;
            codec.bits = word.bits;
            names.at(next++) = {word.name, codec, row.keys};
        }
    }
    names.at(next) = {"graddrop", usual_graddrop, usual_graddrop.row().keys};
    return names;
}();

constexpr NameRow auto_row{"auto", {}, auto_keys}, exact_row{exact_name, usual_exact, 0},
    shared_row{"shared", usual_shared, key_bits({SpecKey::bits, SpecKey::block, SpecKey::min})};

const NameRow *find_row(std::string_view name) {
    for (const NameRow *const row : {&auto_row, &exact_row, &shared_row})
        if (name == row->name) return row;
    const auto *const row = std::ranges::find(name_table, name, &NameRow::name);
    return row == name_table.end() ? nullptr : row;
}

// Returns nullptr if no spec gives such a codec.
const NameRow *find_row(const Codec &codec) {
    if (codec.is_auto()) return &auto_row;
    if (codec.sums_exactly) return &exact_row;
    if (codec.shares_scales()) return &shared_row;
    const auto *const row = std::ranges::find_if(name_table, [&](const NameRow &candidate) {
        return candidate.usual.id == codec.id &&
               (codec.row().bits_names.empty() || candidate.usual.bits == codec.bits);
    });
    return row == name_table.end() ? nullptr : row;
}

// Returns the names of the keys whose bit is set in `keys`.
Names names_of_keys(SpecKeys keys) {
    Names names;
    for (const KeyRow &row : key_table)
        if ((keys & key_bit(row.key)) != 0) names.push_back(row.name);
    return names;
}

Error refused_key(const NameRow &row, std::string_view text) {
    if (row.keys == 0) return invalid_argument("codec: %s takes no keys", row.name.data());
    return no_choice("codec: key of " + std::string(row.name), text, names_of_keys(row.keys));
}

Names possible_values(const KeyRow &key) {
    Names values;
    for (const std::string_view value : key.possible)
        if (!value.empty()) values.push_back(value);
    return values;
}

Error bad_value(SpecKey key, std::string_view text) {
    const KeyRow &row = row_of(key);
    return no_choice("codec: " + std::string(row.name), text, possible_values(row));
}

struct Suffix {
    char letter;
    unsigned shift;
};
constexpr Suffix suffixes[] = {{'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}};

std::string write_bytes(uint64_t bytes) {
    for (const Suffix &suffix : suffixes)
        if (bytes != 0 && bytes % (uint64_t{1} << suffix.shift) == 0)
            return std::to_string(bytes >> suffix.shift) + suffix.letter;
    return std::to_string(bytes);
}

// Returns the names of the codecs that take bucket=all, with "and" between them.
std::string whole_chunk_codecs() {
    std::string names;
    for (const CodecRow &row : codec_table)
        if (row.takes_whole_chunk) names.append(names.empty() ? "" : " and ").append(row.name);
    return names;
}

Done set_bucket(Codec &codec, SpecKey key, std::string_view text) {
    const CodecRow &row = codec.row();
    if (key == SpecKey::bucket && text == "all") {
        if (!row.takes_whole_chunk)
            return invalid_argument("codec: bucket=all is of %s; here it is a number",
                                    whole_chunk_codecs().c_str());
        codec.bucket = Codec::whole_chunk;
        return {};
    }
    const auto number = parse_count(text);
    if (!number || *number < 1 || *number > largest_bucket) return bad_value(key, text);
    if (*number % row.bucket_step != 0)
        return invalid_argument("codec: bucket of %s is a multiple of %u, or all", row.name.data(),
                                row.bucket_step);
    (codec.shares_scales() ? codec.shared_block : codec.bucket) = static_cast<uint32_t>(*number);
    if (!row.cast) return {};
    codec.bits = codec.row().usual.bits; // those of the values under a scale
    if (!is_possible(codec))
        return invalid_argument("codec: block of %s is a power of two from %u to %u",
                                row.name.data(), least_rotation, most_rotation);
    return {};
}

static_assert(most_shared_bits == most_code_bits);

Done set_bits(Codec &codec, std::string_view text) {
    const auto number = parse_count(text);
    const CodecRow &row = codec.row();
    const bool is_shared = codec.shares_scales();
    const unsigned least = is_shared ? least_shared_bits : row.least_bits;
    if (!number || *number < least || *number > most_code_bits) {
        const std::string range = std::to_string(least) + " to " + std::to_string(most_code_bits);
        return no_choice("codec: bits of " + std::string(is_shared ? shared_row.name : row.name),
                         text, {range});
    }
    (is_shared ? codec.shared_bits : codec.bits) = static_cast<uint8_t>(*number);
    return {};
}

constexpr std::string_view name(Rounding rounding) {
    return row_of(SpecKey::round).possible.at(static_cast<size_t>(rounding));
}

Done set_rounding(Codec &codec, std::string_view text) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::dither}) {
        if (text != name(rounding)) continue;
        codec.rounding = rounding;
        if (codec.dithers() && !codec.row().takes_dither)
            return invalid_argument("codec: round=dither is of codes with even steps: int and "
                                    "minmax; %s rounds to the nearest or stochastically",
                                    codec.row().name.data());
        return {};
    }
    return bad_value(SpecKey::round, text);
}

// The value is a number of units of the last decimal, from 1 to `most`.
Done set_decimal(uint32_t &value, SpecKey key, std::string_view text, unsigned decimals,
                 uint32_t most) {
    const auto units = parse_decimal(text, decimals);
    if (!units || *units < 1 || *units > most) return bad_value(key, text);
    value = static_cast<uint32_t>(*units);
    return {};
}

Done set_momentum(Codec &codec, std::string_view text) {
    const auto thousandths = parse_decimal(text, momentum_decimals);
    if (!thousandths || *thousandths >= whole_momentum) return bad_value(SpecKey::momentum, text);
    codec.momentum = static_cast<uint32_t>(*thousandths);
    return {};
}

Done set_warm_up(Codec &codec, std::string_view text) {
    const auto calls = parse_count(text);
    if (!calls || *calls > longest_warm_up) return bad_value(SpecKey::warmup, text);
    codec.warm_up = static_cast<uint32_t>(*calls);
    return {};
}

Done set_rotation(Codec &codec, std::string_view text) {
    const auto number = text == "off" ? std::optional<uint64_t>(0) : parse_count(text);
    if (!number || *number > most_rotation) return bad_value(SpecKey::rotate, text);
    codec.rotation = static_cast<uint32_t>(*number);
    if (codec.rotation != 0 &&
        (!std::has_single_bit(codec.rotation) || codec.rotation < least_rotation))
        return bad_value(SpecKey::rotate, text);
    return {};
}

// The nearest fp32 to the number counts. The grid of a bound leaves a margin that is larger than
// what this rounding adds (kernels/codec/grid.hpp).
Done set_float(Codec &codec, float Codec::*value, SpecKey key, std::string_view text) {
    const auto number = parse_number<float>(text);
    if (!number) return bad_value(key, text);
    codec.*value = *number;
    return is_possible(codec) ? Done() : bad_value(key, text);
}

Done set_bound(Codec &codec, SpecKey key, std::string_view text) {
    codec.is_relative = key == SpecKey::rel;
    codec.is_pointwise = key == SpecKey::pw;
    return set_float(codec, &Codec::bound, key, text);
}

Done set_key(Codec &codec, SpecKey key, std::string_view text) {
    switch (key) {
    case SpecKey::nmse: return read_budget_nmse(codec.budget, text);
    case SpecKey::most_bits: return read_budget_bits(codec.budget, text);
    case SpecKey::from: return read_budget_from(codec.budget, text);
    case SpecKey::guard: return read_guard(codec.guard, text);
    case SpecKey::bits: return set_bits(codec, text);
    case SpecKey::bucket:
    case SpecKey::block: return set_bucket(codec, key, text);
    case SpecKey::round: return set_rounding(codec, text);
    case SpecKey::seed: {
        const auto number = parse_count(text);
        if (!number) return bad_value(key, text);
        codec.seed = *number;
        return {};
    }
    case SpecKey::min: {
        const auto bytes = parse_bytes(text);
        if (!bytes) return bad_value(key, text);
        codec.min_bytes = *bytes;
        return {};
    }
    case SpecKey::skip_incomplete:
        if (text != "0" && text != "1") return bad_value(key, text);
        codec.skips_incomplete = text == "1";
        return {};
    case SpecKey::entropy:
        if (text != "0" && text != "1") return bad_value(key, text);
        (codec.has_grid() ? codec.codes_entropy : codec.packs) = text == "1";
        return {};
    case SpecKey::rotate: return set_rotation(codec, text);
    case SpecKey::threshold: return set_float(codec, &Codec::threshold, key, text);
    case SpecKey::abs:
    case SpecKey::rel:
    case SpecKey::pw: return set_bound(codec, key, text);
    case SpecKey::owner:
        if (text != "decoded" && text != "exact") return bad_value(key, text);
        codec.owner = text == "decoded" ? OwnerKeeps::decoded : OwnerKeeps::exact;
        return {};
    case SpecKey::clip: return set_decimal(codec.clip, key, text, clip_decimals, largest_clip);
    case SpecKey::ratio: return set_decimal(codec.share, key, text, ratio_decimals, whole_share);
    case SpecKey::momentum: return set_momentum(codec, text);
    case SpecKey::warmup: return set_warm_up(codec, text);
    case SpecKey::scale:
        if (text != "ceil" && text != "ocp") return bad_value(key, text);
        codec.scaling = text == "ceil" ? Scaling::ceil : Scaling::ocp;
        return {};
    case SpecKey::norm:
        if (text != "l2" && text != "linf") return bad_value(key, text);
        codec.norm = text == "l2" ? BucketNorm::l2 : BucketNorm::linf;
        return {};
    case SpecKey::levels:
        if (text != "uniform" && text != "exponential") return bad_value(key, text);
        codec.levels = text == "uniform" ? Levels::uniform : Levels::exponential;
        return {};
    }
    return {};
}

// Searches only the keys that the codec takes, because two keys are named `bits`.
const KeyRow *find_key(const NameRow &row, std::string_view name) {
    for (const KeyRow &key : key_table)
        if (key.name == name && (row.keys & key_bit(key.key)) != 0) return &key;
    return nullptr;
}

Done read_keys(const NameRow &row, Codec &codec, std::string_view text) {
    SpecKeys given = 0;
    for (Parted list{{}, text, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const auto item = parted_at(list.before, '=');
        const KeyRow *const found = find_key(row, item.before);
        if (!found) return refused_key(row, item.before);
        if (!item.is_marked)
            return invalid_argument("codec: %s has no value; write %s=VALUE", found->name.data(),
                                    found->name.data());
        if ((given & key_bit(found->key)) != 0)
            return invalid_argument("codec: %s is given twice", found->name.data());
        given |= key_bit(found->key);
        QCCL_TRY(set_key(codec, found->key, item.behind));
    }
    if ((given & key_bit(SpecKey::seed)) != 0 && !codec.draws_noise())
        return invalid_argument(
            "codec: seed is of use with round=stochastic and round=dither alone");
    Codec unrotated = codec;
    unrotated.rotation = 0;
    if (is_possible(unrotated) && !is_possible(codec))
        return invalid_argument("codec: rotate needs a %s of 32, 64, 128, 256 or 512 values",
                                codec.row().takes(SpecKey::block) ? "block" : "bucket");
    if (std::popcount(given & key_bits({SpecKey::abs, SpecKey::rel, SpecKey::pw})) > 1)
        return invalid_argument("codec: a bound is either abs=E, rel=E or pw=E");
    if (codec.guard != 0 && (codec.has_whole_buckets() || codec.bucket > largest_guarded_bucket))
        return invalid_argument(
            "codec: guard looks at samples, and needs a bucket of at most %u values",
            largest_guarded_bucket);
    if (!codec.is_auto() && !is_possible(codec))
        return invalid_argument(
            "codec: skip_incomplete=1 is not possible with bucket=all, which is never incomplete");
    return {};
}

} // namespace

Result<Codec> parse_codec(std::string_view text) {
    if (text.find('@') != std::string_view::npos)
        return invalid_argument("codec is \"%s\", but only QCCL_CODEC takes conditions (@)",
                                excerpt(text).c_str());
    const Parted word = parted_at(text, ':');
    const NameRow *const row = find_row(word.before);
    if (!row) {
        Names names = names_of(name_table);
        names.insert(names.end(), {exact_row.name, shared_row.name, auto_row.name});
        return no_choice("codec", word.before, names);
    }
    Codec codec = row->usual;
    if (word.is_marked) QCCL_TRY(read_keys(*row, codec, word.behind));
    if (row == &auto_row && !codec.is_auto())
        return invalid_argument(
            "codec: auto needs a budget: nmse=E, the error that the result may have, "
            "bits=B, what a value may take on the wire, or both");
    return codec;
}

Result<std::vector<Codec>> parse_codec_list(std::string_view specs) {
    std::vector<Codec> codecs;
    for (const std::string &item : split_specs(specs)) {
        QCCL_TRY(const Codec codec, parse_codec(item));
        codecs.push_back(codec);
    }
    return codecs;
}

std::string spec(const Codec &codec) {
    const NameRow *const row = find_row(codec);
    if (!row) return "unknown";
    std::string text(row->name);
    if (codec.is_auto()) text.append(":").append(budget_text(codec.budget));
    auto add = [&, first = !codec.is_auto()](SpecKey key, const std::string &value) mutable {
        text.append(first ? ":" : ",").append(row_of(key).name).append("=").append(value);
        first = false;
    };
    if (codec.shares_scales()) {
        if (codec.shared_bits != row->usual.shared_bits)
            add(SpecKey::bits, std::to_string(codec.shared_bits));
        if (codec.shared_block != row->usual.shared_block)
            add(SpecKey::block, std::to_string(codec.shared_block));
        if (codec.min_bytes) add(SpecKey::min, write_bytes(*codec.min_bytes));
        return text; // what carries the integers is the planner's choice
    }
    if (codec.row().takes(SpecKey::bits) && codec.bits != row->usual.bits)
        add(SpecKey::bits, std::to_string(codec.bits));
    if (codec.bucket != row->usual.bucket)
        add(codec.row().takes(SpecKey::block) ? SpecKey::block : SpecKey::bucket,
            codec.bucket == Codec::whole_chunk ? "all" : std::to_string(codec.bucket));
    if (codec.rounding != row->usual.rounding)
        add(SpecKey::round, std::string(name(codec.rounding)));
    if (codec.draws_noise() && codec.seed != 0) add(SpecKey::seed, std::to_string(codec.seed));
    if (codec.min_bytes) add(SpecKey::min, write_bytes(*codec.min_bytes));
    if (codec.skips_incomplete) add(SpecKey::skip_incomplete, "1");
    if (codec.scaling != row->usual.scaling)
        add(SpecKey::scale, codec.scaling == Scaling::ceil ? "ceil" : "ocp");
    if (codec.norm != row->usual.norm)
        add(SpecKey::norm, codec.norm == BucketNorm::l2 ? "l2" : "linf");
    if (codec.levels != row->usual.levels)
        add(SpecKey::levels, codec.levels == Levels::uniform ? "uniform" : "exponential");
    if (codec.clip != row->usual.clip) add(SpecKey::clip, write_decimal(codec.clip, clip_decimals));
    if (codec.share != row->usual.share)
        add(SpecKey::ratio, write_decimal(codec.share, ratio_decimals));
    if (codec.threshold != row->usual.threshold)
        add(SpecKey::threshold, number_text(codec.threshold));
    if (codec.momentum != row->usual.momentum)
        add(SpecKey::momentum, write_decimal(codec.momentum, momentum_decimals));
    if (codec.warm_up != 0) add(SpecKey::warmup, std::to_string(codec.warm_up));
    if (codec.bound != row->usual.bound || codec.is_relative != row->usual.is_relative)
        add(codec.is_pointwise  ? SpecKey::pw
            : codec.is_relative ? SpecKey::rel
                                : SpecKey::abs,
            number_text(codec.bound));
    if (codec.packs != row->usual.packs) add(SpecKey::entropy, codec.packs ? "1" : "0");
    if (codec.codes_entropy) add(SpecKey::entropy, "1");
    if (codec.rotation != 0) add(SpecKey::rotate, std::to_string(codec.rotation));
    if (codec.guard != 0) add(SpecKey::guard, guard_text(codec.guard));
    if (codec.owner != OwnerKeeps::decoded) add(SpecKey::owner, "exact");
    return text;
}

std::vector<CodecName> codec_names() {
    std::vector<CodecName> names;
    for (const NameRow &row : name_table) names.push_back({row.name, names_of_keys(row.keys)});
    return names;
}

CodecName auto_name() { return {auto_row.name, names_of_keys(auto_row.keys)}; }

CodecName shared_name() { return {shared_row.name, names_of_keys(shared_row.keys)}; }

std::vector<CodecKey> codec_keys() {
    std::vector<CodecKey> keys;
    for (const KeyRow &row : key_table) {
        const bool is_of_auto = row.key == SpecKey::most_bits;
        keys.push_back({is_of_auto ? "bits of auto" : row.name, possible_values(row)});
    }
    return keys;
}

} // namespace qccl
