// Checks which codecs are possible and which collectives, types and operations each supports, and
// computes the grid at which vectors are cut. Parses and writes codec spec strings by one table of
// names and keys, among them the keys of a budget and of a guard.
#include "codec/codec.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

namespace qccl {

namespace {

bool is_block_bits(unsigned bits) {
    return (bits >= 2 && bits <= 6) || bits == 8 || bits == 10 || bits == 12;
}

unsigned element_bits(CodecId id) {
    return id == CodecId::mxfp8e4m3 ? 8 : id == CodecId::mxfp6e2m3 ? 6 : 4;
}

} // namespace

bool is_possible(const Codec &codec) {
    const bool is_plain =
        codec.bits == 0 && codec.bucket == 0 && codec.rounding == Rounding::nearest;
    if (codec.is_auto()) return false;
    if (codec.rounding > Rounding::stochastic || codec.bucket > largest_bucket) return false;
    if (codec.skips_incomplete && codec.id != CodecId::minmax) return false;
    if (codec.scaling != Scaling::ceil && !codec.is_mx() && codec.id != CodecId::nvfp4)
        return false;
    if (codec.share != 0 && codec.id != CodecId::topk) return false;
    if (codec.clip != 0 && codec.id != CodecId::terngrad) return false;
    switch (codec.id) {
    case CodecId::none:
    case CodecId::fp16:
    case CodecId::bf16:
    case CodecId::fp8e4m3:
    case CodecId::fp8e5m2: return is_plain;
    case CodecId::integer: return is_block_bits(codec.bits) && codec.bucket >= 1;
    case CodecId::minmax:
        // The bucket that is the whole chunk is never incomplete.
        return codec.bits >= 1 && codec.bits <= 8 &&
               !(codec.skips_incomplete && codec.bucket == Codec::whole_chunk);
    case CodecId::mxfp8e4m3:
    case CodecId::mxfp6e2m3:
    case CodecId::mxfp4:
        return codec.bits == element_bits(codec.id) && codec.bucket == mx_block_values;
    case CodecId::nvfp4: return codec.bits == 4 && codec.bucket % nvfp4_bucket_step == 0;
    case CodecId::onebit:
        return codec.bits == 1 && codec.bucket >= 1 && codec.rounding == Rounding::nearest;
    case CodecId::terngrad:
        return codec.bits == 0 && codec.bucket >= 1 && codec.rounding == Rounding::stochastic &&
               codec.clip >= 1 && codec.clip <= largest_clip;
    case CodecId::topk: return is_plain && codec.share >= 1 && codec.share <= whole_share;
    }
    return false;
}

Done check_codec(const Codec &codec, Collective collective, DataType type, RedOp op) {
    if (codec.is_lossless()) return {};
    if (!info(type).is_float)
        return Error::make(Code::invalid_argument,
                           "codec %s: %s values travel as they are, only floating point is encoded",
                           spec(codec).c_str(), name(type));
    if (reduces(collective) && !codec.is_cast() && op != RedOp::sum && op != RedOp::avg)
        return Error::make(
            Code::invalid_argument,
            "codec %s: possible with sum and avg, not with %s; fp16, bf16 and the fp8 do every op",
            spec(codec).c_str(), name(op));
    return {};
}

size_t grain(const Codec &codec, const Codec &other) {
    return std::lcm(grain(codec), grain(other));
}

size_t grain(const Codec &codec) {
    constexpr size_t grid = 64; // a cache line of bytes, two groups of codes
    return codec.bucket == 0 ? grid : std::lcm(size_t{codec.bucket}, grid);
}

// ---- Spec strings

// ---- Budgets and guards

namespace {

constexpr unsigned bits_decimals = 3;
constexpr uint64_t least_bits = 1000, most_bits = 64000;

struct CodecGroup {
    std::string_view name;
    CodecId id;

    uint32_t bit() const { return 1U << static_cast<unsigned>(id); }
};
constexpr CodecGroup families[] = {{"int", CodecId::integer},
                                   {"minmax", CodecId::minmax},
                                   {"nvfp4", CodecId::nvfp4},
                                   {"bf16", CodecId::bf16}};

std::optional<double> parse_nmse(std::string_view text) {
    double nmse = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, nmse);
    if (problem != std::errc() || stop != end || !std::isnormal(nmse) || nmse < 0 || nmse >= 1)
        return std::nullopt;
    return nmse;
}

std::string shortest_text(double number) {
    char text[32];
    return {text, std::to_chars(text, std::end(text), number).ptr};
}

} // namespace

Done read_budget_nmse(Budget &budget, std::string_view text) {
    const auto nmse = parse_nmse(text);
    if (!nmse) return no_choice("codec: nmse", text, {budget_nmse_words});
    budget.nmse = *nmse;
    return {};
}

Done read_guard(double &nmse, std::string_view text) {
    const Parted parts = parted_at(text, ':');
    const auto number = parts.before == "nmse" ? parse_nmse(parts.behind) : std::nullopt;
    if (!number) return no_choice("codec: guard", text, {guard_words});
    nmse = *number;
    return {};
}

std::string guard_text(double nmse) { return "nmse:" + shortest_text(nmse); }

Done read_budget_bits(Budget &budget, std::string_view text) {
    const auto thousandths = parse_decimal(text, bits_decimals);
    if (!thousandths || *thousandths < least_bits || *thousandths > most_bits)
        return no_choice("codec: bits of auto", text, {budget_bits_words});
    budget.bits = static_cast<uint32_t>(*thousandths);
    return {};
}

Done read_budget_from(Budget &budget, std::string_view text) {
    for (Parted list{{}, text, true}; list.is_marked;) {
        list = parted_at(list.behind, '+');
        const auto *const family = std::ranges::find(families, list.before, &CodecGroup::name);
        if (family == std::end(families))
            return no_choice("codec: from", list.before, names_of(families));
        budget.from |= family->bit();
    }
    return {};
}

std::string budget_text(const Budget &budget) {
    std::string text;
    const auto add = [&text](const char *key, std::string_view value) {
        text.append(text.empty() ? "" : ",").append(key).append("=").append(value);
    };
    if (budget.nmse != 0) add("nmse", shortest_text(budget.nmse));
    if (budget.bits != 0) add("bits", write_decimal(budget.bits, bits_decimals));
    std::string from;
    for (const CodecGroup &family : families)
        if ((budget.from & family.bit()) != 0)
            from.append(from.empty() ? "" : "+").append(family.name);
    if (!from.empty()) add("from", from);
    return text;
}

// ---- Specs

namespace {

constexpr uint32_t usual_block = 32, usual_bucket = 512, usual_nvfp4_bucket = 1024;
constexpr uint8_t usual_bits = 8;

constexpr unsigned key_bit(unsigned index) { return 1U << index; }
enum Key : unsigned {
    bits_key,
    bucket_key,
    block_key,
    round_key,
    seed_key,
    min_key,
    skip_key,
    scale_key,
    clip_key,
    ratio_key,
    nmse_key,
    most_bits_key,
    from_key,
    guard_key,
};

struct KeyRow {
    std::string_view name;
    std::array<std::string_view, 2> possible; // values, in words; the second may be empty
};

constexpr KeyRow key_table[] = {
    {"bits", {"1 to 8"}},
    {"bucket", {"1 to 1073741824", "all"}},
    {"block", {"1 to 1073741824"}},
    {"round", {"nearest", "stochastic"}},
    {"seed", {"0 to 18446744073709551615"}},
    {"min", {"a number of bytes, also with K, M, G or T behind it"}},
    {"skip_incomplete", {"0", "1"}},
    {"scale", {"ceil", "ocp"}},
    {"clip", {"0.001 to 1000"}},
    {"ratio", {"0.000001 to 1"}},
    {"nmse", {budget_nmse_words}},
    {"bits", {budget_bits_words}},
    {"from", {budget_from_words}},
    {"guard", {guard_words}},
};
static_assert(largest_bucket == 1073741824 && largest_clip == 1000 * 1000);
static_assert(whole_share == 1000 * 1000);
constexpr unsigned clip_decimals = 3, ratio_decimals = 6;

constexpr unsigned cast_keys = key_bit(min_key) | key_bit(guard_key);
constexpr unsigned noise_keys = key_bit(round_key) | key_bit(seed_key);
constexpr unsigned block_keys = key_bit(block_key) | noise_keys | cast_keys;
constexpr unsigned bucket_keys =
    key_bit(bits_key) | key_bit(bucket_key) | noise_keys | key_bit(skip_key) | cast_keys;
constexpr unsigned mx_keys = key_bit(scale_key) | noise_keys | cast_keys;
constexpr unsigned auto_keys =
    key_bit(nmse_key) | key_bit(most_bits_key) | key_bit(from_key) | cast_keys;

struct NameRow {
    std::string_view name;
    Codec usual; // the codec of the bare name; auto alone is no codec
    unsigned keys;
};

constexpr Codec usual_codec(CodecId id, uint8_t bits, uint32_t bucket) {
    Codec codec;
    codec.id = id;
    codec.bits = bits;
    codec.bucket = bucket;
    return codec;
}

// nvfp4's scales have a fraction. Rounded to the nearest they are right on average; rounded up they
// would increase a block's largest value at every hop.
constexpr Codec usual_nvfp4 = [] {
    Codec codec = usual_codec(CodecId::nvfp4, 4, usual_nvfp4_bucket);
    codec.scaling = Scaling::ocp;
    return codec;
}();

constexpr Codec usual_terngrad = [] {
    Codec codec = usual_codec(CodecId::terngrad, 0, usual_bucket);
    codec.rounding = Rounding::stochastic; // always
    codec.clip = usual_clip;
    return codec;
}();

constexpr Codec usual_topk = [] {
    Codec codec = usual_codec(CodecId::topk, 0, 0);
    codec.share = whole_share / 1000;
    return codec;
}();

constexpr NameRow name_table[] = {
    {"none", usual_codec(CodecId::none, 0, 0), 0},
    {"fp16", usual_codec(CodecId::fp16, 0, 0), cast_keys},
    {"bf16", usual_codec(CodecId::bf16, 0, 0), cast_keys},
    {"fp8e4m3", usual_codec(CodecId::fp8e4m3, 0, 0), cast_keys},
    {"fp8e5m2", usual_codec(CodecId::fp8e5m2, 0, 0), cast_keys},
    {"int12", usual_codec(CodecId::integer, 12, usual_block), block_keys},
    {"int10", usual_codec(CodecId::integer, 10, usual_block), block_keys},
    {"int8", usual_codec(CodecId::integer, 8, usual_block), block_keys},
    {"int6", usual_codec(CodecId::integer, 6, usual_block), block_keys},
    {"int5", usual_codec(CodecId::integer, 5, usual_block), block_keys},
    {"int4", usual_codec(CodecId::integer, 4, usual_block), block_keys},
    {"int3", usual_codec(CodecId::integer, 3, usual_block), block_keys},
    {"int2", usual_codec(CodecId::integer, 2, usual_block), block_keys},
    {"minmax", usual_codec(CodecId::minmax, usual_bits, usual_bucket), bucket_keys},
    {"mxfp8e4m3", usual_codec(CodecId::mxfp8e4m3, 8, mx_block_values), mx_keys},
    {"mxfp6e2m3", usual_codec(CodecId::mxfp6e2m3, 6, mx_block_values), mx_keys},
    {"mxfp4", usual_codec(CodecId::mxfp4, 4, mx_block_values), mx_keys},
    {"nvfp4", usual_nvfp4, mx_keys | key_bit(bucket_key)},
    {"onebit", usual_codec(CodecId::onebit, 1, usual_bucket), key_bit(bucket_key) | cast_keys},
    {"terngrad", usual_terngrad,
     key_bit(bucket_key) | key_bit(clip_key) | key_bit(seed_key) | cast_keys},
    {"topk", usual_topk, key_bit(ratio_key) | key_bit(min_key)},
};

constexpr NameRow auto_row{"auto", {}, auto_keys};

const NameRow *find_row(std::string_view name) {
    if (name == auto_row.name) return &auto_row;
    const auto *const row = std::ranges::find(name_table, name, &NameRow::name);
    return row == std::end(name_table) ? nullptr : row;
}

// Returns nullptr if no spec gives such a codec.
const NameRow *find_row(const Codec &codec) {
    if (codec.is_auto()) return &auto_row;
    const auto *const row = std::ranges::find_if(name_table, [&](const NameRow &candidate) {
        return candidate.usual.id == codec.id &&
               (codec.id == CodecId::minmax || candidate.usual.bits == codec.bits);
    });
    return row == std::end(name_table) ? nullptr : row;
}

// Returns the names of the keys whose bit is set in `keys`.
Names names_of_keys(unsigned keys) {
    Names names;
    for (unsigned i = 0; i < std::size(key_table); i++)
        if ((keys & key_bit(i)) != 0) names.push_back(key_table[i].name);
    return names;
}

Error refused_key(const NameRow &row, std::string_view text) {
    if (row.keys == 0)
        return Error::make(Code::invalid_argument, "codec: %s takes no keys", row.name.data());
    return no_choice("codec: key of " + std::string(row.name), text, names_of_keys(row.keys));
}

Names possible_values(const KeyRow &key) {
    Names values;
    for (const std::string_view value : key.possible)
        if (!value.empty()) values.push_back(value);
    return values;
}

Error bad_value(Key key, std::string_view text) {
    const KeyRow &row = key_table[key];
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

Done set_bucket(Codec &codec, Key key, std::string_view text) {
    if ((codec.id == CodecId::onebit || codec.id == CodecId::terngrad) && text == "all")
        return Error::make(Code::invalid_argument,
                           "codec: bucket=all is of minmax and nvfp4; here it is a number");
    if (key == bucket_key && text == "all") {
        codec.bucket = Codec::whole_chunk;
        return {};
    }
    const auto number = parse_count(text);
    if (!number || *number < 1 || *number > largest_bucket) return bad_value(key, text);
    if (codec.id == CodecId::nvfp4 && *number % nvfp4_bucket_step != 0)
        return Error::make(Code::invalid_argument,
                           "codec: bucket of nvfp4 is a multiple of %u, or all", nvfp4_bucket_step);
    codec.bucket = static_cast<uint32_t>(*number);
    return {};
}

Done set_bits(Codec &codec, std::string_view text) {
    const auto number = parse_count(text);
    if (!number || *number < 1 || *number > 8) return bad_value(bits_key, text);
    codec.bits = static_cast<uint8_t>(*number);
    return {};
}

Done set_rounding(Codec &codec, std::string_view text) {
    if (text != "nearest" && text != "stochastic") return bad_value(round_key, text);
    codec.rounding = text == "nearest" ? Rounding::nearest : Rounding::stochastic;
    return {};
}

Done set_key(Codec &codec, Key key, std::string_view text) {
    switch (key) {
    case nmse_key: return read_budget_nmse(codec.budget, text);
    case most_bits_key: return read_budget_bits(codec.budget, text);
    case from_key: return read_budget_from(codec.budget, text);
    case guard_key: return read_guard(codec.guard, text);
    case bits_key: return set_bits(codec, text);
    case bucket_key:
    case block_key: return set_bucket(codec, key, text);
    case round_key: return set_rounding(codec, text);
    case seed_key: {
        const auto number = parse_count(text);
        if (!number) return bad_value(key, text);
        codec.seed = *number;
        return {};
    }
    case min_key: {
        const auto bytes = parse_bytes(text);
        if (!bytes) return bad_value(key, text);
        codec.min_bytes = *bytes;
        return {};
    }
    case skip_key:
        if (text != "0" && text != "1") return bad_value(key, text);
        codec.skips_incomplete = text == "1";
        return {};
    case clip_key: {
        const auto thousandths = parse_decimal(text, clip_decimals);
        if (!thousandths || *thousandths < 1 || *thousandths > largest_clip)
            return bad_value(key, text);
        codec.clip = static_cast<uint32_t>(*thousandths);
        return {};
    }
    case ratio_key: {
        const auto millionths = parse_decimal(text, ratio_decimals);
        if (!millionths || *millionths < 1 || *millionths > whole_share)
            return bad_value(key, text);
        codec.share = static_cast<uint32_t>(*millionths);
        return {};
    }
    case scale_key:
        if (text != "ceil" && text != "ocp") return bad_value(key, text);
        codec.scaling = text == "ceil" ? Scaling::ceil : Scaling::ocp;
        return {};
    }
    return {};
}

// Searches only the keys that the codec takes, because two keys are named `bits`.
const KeyRow *find_key(const NameRow &row, std::string_view name) {
    for (const KeyRow &key : key_table)
        if (key.name == name && (row.keys & key_bit(static_cast<unsigned>(&key - key_table))) != 0)
            return &key;
    return std::end(key_table);
}

Done read_keys(const NameRow &row, Codec &codec, std::string_view text) {
    unsigned given = 0;
    for (Parted list{{}, text, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const auto item = parted_at(list.before, '=');
        const KeyRow *const found = find_key(row, item.before);
        const auto key = static_cast<Key>(found - key_table);
        if (found == std::end(key_table)) return refused_key(row, item.before);
        if (!item.is_marked)
            return Error::make(Code::invalid_argument, "codec: %s has no value; write %s=VALUE",
                               found->name.data(), found->name.data());
        if ((given & key_bit(key)) != 0)
            return Error::make(Code::invalid_argument, "codec: %s is given twice",
                               found->name.data());
        given |= key_bit(key);
        QCCL_TRY(set_key(codec, key, item.behind));
    }
    if ((given & key_bit(seed_key)) != 0 && codec.rounding != Rounding::stochastic)
        return Error::make(Code::invalid_argument,
                           "codec: seed is of use with round=stochastic alone");
    if (codec.guard != 0 && (codec.has_whole_buckets() || codec.bucket > largest_guarded_bucket))
        return Error::make(Code::invalid_argument,
                           "codec: guard looks at samples, and needs a bucket of at most %u values",
                           largest_guarded_bucket);
    if (!codec.is_auto() && !is_possible(codec))
        return Error::make(
            Code::invalid_argument,
            "codec: skip_incomplete=1 is not possible with bucket=all, which is never incomplete");
    return {};
}

} // namespace

Result<Codec> parse_codec(std::string_view text) {
    const Parted word = parted_at(text, ':');
    const NameRow *const row = find_row(word.before);
    if (!row) {
        Names names = names_of(name_table);
        names.push_back(auto_row.name);
        return no_choice("codec", word.before, names);
    }
    Codec codec = row->usual;
    if (word.is_marked) QCCL_TRY(read_keys(*row, codec, word.behind));
    if (row == &auto_row && !codec.is_auto())
        return Error::make(
            Code::invalid_argument,
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
    auto add = [&, first = !codec.is_auto()](Key key, const std::string &value) mutable {
        text.append(first ? ":" : ",").append(key_table[key].name).append("=").append(value);
        first = false;
    };
    if (codec.bits != row->usual.bits) add(bits_key, std::to_string(codec.bits));
    if (codec.bucket != row->usual.bucket)
        add(codec.id == CodecId::integer ? block_key : bucket_key,
            codec.bucket == Codec::whole_chunk ? "all" : std::to_string(codec.bucket));
    if (codec.rounding != row->usual.rounding) add(round_key, "stochastic");
    if (codec.rounding == Rounding::stochastic && codec.seed != 0)
        add(seed_key, std::to_string(codec.seed));
    if (codec.min_bytes) add(min_key, write_bytes(*codec.min_bytes));
    if (codec.skips_incomplete) add(skip_key, "1");
    if (codec.scaling != row->usual.scaling)
        add(scale_key, codec.scaling == Scaling::ceil ? "ceil" : "ocp");
    if (codec.clip != row->usual.clip) add(clip_key, write_decimal(codec.clip, clip_decimals));
    if (codec.share != row->usual.share) add(ratio_key, write_decimal(codec.share, ratio_decimals));
    if (codec.guard != 0) add(guard_key, guard_text(codec.guard));
    return text;
}

std::vector<CodecName> codec_names() {
    std::vector<CodecName> names;
    for (const NameRow &row : name_table) names.push_back({row.name, names_of_keys(row.keys)});
    return names;
}

CodecName auto_name() { return {auto_row.name, names_of_keys(auto_row.keys)}; }

std::vector<CodecKey> codec_keys() {
    std::vector<CodecKey> keys;
    for (const KeyRow &row : key_table) {
        const bool is_of_auto = &row == &key_table[most_bits_key];
        keys.push_back({is_of_auto ? "bits of auto" : row.name, possible_values(row)});
    }
    return keys;
}

} // namespace qccl
