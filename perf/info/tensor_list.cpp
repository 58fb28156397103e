// Implements advice.hpp: the parsers of text and JSON, and the reader of .npy files.
#include "perf/info/advice.hpp"

#include "base/text.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/input_data.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include <glob.h>
#include <nlohmann/json.hpp>

namespace qccl::perf {

namespace {

using Json = nlohmann::json;

// Larger than any real tensor; sizes in bytes still fit into 64 bits.
constexpr uint64_t most_values = uint64_t{1} << 48;

// Makes a name printable in a line of a plan file and on a terminal, whatever the file contains.
std::string shown(std::string_view name) {
    constexpr size_t most_shown = 200;
    std::string printable(name.substr(0, most_shown));
    std::replace_if(
        printable.begin(), printable.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; },
        '?');
    return printable;
}

Result<NamedTensor> make_tensor(std::string_view name, std::optional<uint64_t> count,
                                std::string_view type) {
    NamedTensor tensor{.name = shown(name), .count = count.value_or(0)};
    if (!count || *count == 0 || *count > most_values)
        return invalid_argument("%.200s has no number of values from 1 to 2^48",
                                tensor.name.c_str());
    const auto parsed = parse_type(type);
    if (!parsed) return no_choice("type", shown(type), names_of(type_table));
    tensor.type = *parsed;
    return tensor;
}

constexpr std::string_view usual_type = "float";

// ---- text

Result<std::vector<NamedTensor>> parse_lines(std::string_view text) {
    std::vector<NamedTensor> tensors;
    for (uint32_t number = 1; !text.empty(); number++) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        const auto words = words_of(line.substr(0, line.find('#')), " \t\r,");
        text.remove_prefix(std::min(end + 1, text.size()));
        if (words.empty()) continue;
        if (words.size() < 2 || words.size() > 3)
            return invalid_argument("line %u: expected a name, a count and perhaps a type", number);
        auto tensor =
            make_tensor(words[0], parse_count(words[1]), words.size() > 2 ? words[2] : usual_type);
        if (!tensor) return invalid_argument("line %u: %.400s", number, tensor.error().text);
        tensors.push_back(std::move(*tensor));
    }
    return tensors;
}

// ---- JSON

std::optional<uint64_t> count_in(const Json &number) {
    return number.is_number_unsigned() ? std::optional(number.get<uint64_t>()) : std::nullopt;
}

// Returns nothing if `shape` is not an array of lengths or has too many values.
std::optional<uint64_t> count_of_shape(const Json &shape) {
    if (!shape.is_array()) return std::nullopt;
    uint64_t product = 1;
    for (const Json &length : shape) {
        const auto factor = count_in(length);
        if (!factor || *factor == 0 || *factor > most_values / product) return std::nullopt;
        product *= *factor;
    }
    return product;
}

Result<NamedTensor> parse_object(const Json &object) {
    const auto text = [&](const char *key, std::string_view usual) {
        const auto found = object.find(key);
        return found != object.end() && found->is_string() ? found->get<std::string>()
                                                           : std::string(usual);
    };
    if (!object.is_object() || text("name", "").empty())
        return invalid_argument("expected an object with name and count");
    const auto count = object.find("count"), shape = object.find("shape");
    return make_tensor(text("name", ""),
                       count != object.end()   ? count_in(*count)
                       : shape != object.end() ? count_of_shape(*shape)
                                               : std::nullopt,
                       text("type", usual_type));
}

Result<std::vector<NamedTensor>> parse_json(std::string_view text) {
    const Json document = Json::parse(text, nullptr, false);
    const Json *array = &document;
    if (document.is_object())
        if (const auto found = document.find("tensors"); found != document.end()) array = &*found;
    if (!array->is_array())
        return invalid_argument("%s",
                                document.is_discarded()
                                    ? "it is damaged: no JSON"
                                    : "expected an array of tensors, or an object with one called "
                                      "\"tensors\"");
    std::vector<NamedTensor> tensors;
    for (const Json &object : *array) {
        auto tensor = parse_object(object);
        if (!tensor)
            return invalid_argument("tensor %zu: %.400s", tensors.size() + 1, tensor.error().text);
        tensors.push_back(std::move(*tensor));
    }
    return tensors;
}

// ---- files of arrays

Result<std::vector<NamedTensor>> read_arrays(const std::string &pattern) {
    glob_t found = {};
    const int failed = glob(pattern.c_str(), 0, nullptr, &found);
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (failed != 0 || paths.empty()) return invalid_argument("no .npy file is there");
    std::vector<NamedTensor> tensors;
    for (const std::string &path : paths) {
        const auto file = Npy::open(path);
        if (!file) return file.error();
        QCCL_TRY(NamedTensor tensor, make_tensor(std::filesystem::path(path).stem().string(),
                                                 file->count(), name(file->type())));
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

Result<std::vector<NamedTensor>> read_any(const std::string &where) {
    std::error_code ignored;
    const std::string path = path_of_rank(where, 0);
    if (std::filesystem::is_directory(path, ignored)) return read_arrays(path + "/*.npy");
    if (path.ends_with(".npy")) return read_arrays(path);
    QCCL_TRY(const std::string text, read_text(path, "it"));
    return parse_tensors(text);
}

} // namespace

Result<std::vector<NamedTensor>> parse_tensors(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json =
        first != std::string_view::npos && (text[first] == '[' || text[first] == '{');
    QCCL_TRY(std::vector<NamedTensor> tensors, is_json ? parse_json(text) : parse_lines(text));
    if (tensors.empty()) return invalid_argument("it lists no tensor");
    return tensors;
}

Result<std::vector<NamedTensor>> read_tensors(const std::string &where) {
    auto tensors = read_any(where);
    if (!tensors)
        return Error::make(tensors.error().code, "%.300s: %.400s",
                           where == "-" ? "standard input" : where.c_str(), tensors.error().text);
    return tensors;
}

} // namespace qccl::perf
