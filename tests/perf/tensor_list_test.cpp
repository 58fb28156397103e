// Tests perf/info/tensor_list: lists of tensors as text, JSON and NumPy arrays, and the errors of
// malformed ones.
#include "tests/kit/qtest.hpp"
#include "tests/kit/temporary_folder.hpp"

#include "perf/info/advice.hpp"

#include <fstream>

#include <unistd.h>

using namespace qccl;
using namespace qccl::perf;

namespace {

std::vector<NamedTensor> tensors(std::string_view text) {
    auto parsed = parse_tensors(text);
    CHECK_OK(parsed);
    return std::move(*parsed);
}

std::string refusal(std::string_view text) {
    const auto parsed = parse_tensors(text);
    CHECK(!parsed && parsed.error().code == Code::invalid_argument);
    return parsed.error().text;
}

void write(const std::string &path, const std::string &content) {
    std::ofstream(path, std::ios::binary) << content;
}

// Writes an array file as NumPy does.
void write_array(const std::string &path, const char *dtype, size_t count, size_t bytes) {
    std::string header = std::string("{'descr': '") + dtype +
                         "', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
    header.resize(117, ' ');
    header += "\n";
    const char length[] = {static_cast<char>(header.size()), 0};
    write(path, std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + header +
                    std::string(count * bytes, '\0'));
}

} // namespace

static void a_line_is_a_tensor() {
    const auto read = tensors("# of a model\n\nconv1.weight 864\r\nbias,64,half # last\n"
                              "fc, 1048576 , float16");
    CHECK_EQ(read.size(), 3U);
    CHECK_EQ(read[0].name, "conv1.weight");
    CHECK_EQ(read[0].count, 864U);
    CHECK(read[0].type == DataType::float32);
    CHECK(read[1].type == DataType::float16 && read[1].count == 64);
    CHECK(read[2].name == "fc" && read[2].type == DataType::float16);
}

static void json_is_read() {
    const auto read = tensors(R"( [{"name": "a", "shape": [3, 4], "count": 12},
        {"name": "b", "shape": [2, 5]}, {"name": "c", "count": 7, "type": "bfloat16"}])");
    CHECK_EQ(read.size(), 3U);
    CHECK(read[0].count == 12 && read[1].count == 10 && read[2].count == 7);
    CHECK(read[2].type == DataType::bfloat16);
    CHECK_EQ(tensors(R"({"model": "x", "tensors": [{"name": "a", "count": 1}]})").size(), 1U);
}

static void wrong_lists_are_refused() {
    for (const auto &[text, sentence] :
         {std::pair("", "it lists no tensor"), std::pair("# nothing\n", "it lists no tensor"),
          std::pair("[]", "it lists no tensor"),
          std::pair("a 5\nb\n", "line 2: expected a name, a count and perhaps a type"),
          std::pair("a 5 float x", "line 1: expected a name, a count and perhaps a type"),
          std::pair("a 0", "line 1: a has no number of values from 1 to 2^48"),
          std::pair("a -5", "line 1: a has no number of values from 1 to 2^48"),
          std::pair("a 281474976710657", "line 1: a has no number of values from 1 to 2^48"),
          std::pair("a 5 real", "line 1: type is \"real\"; possible are "),
          std::pair("[{\"name\": \"a\"", "it is damaged: no JSON"),
          std::pair("{}", "expected an array of tensors, or an object with one called"),
          std::pair("[3]", "tensor 1: expected an object with name and count"),
          std::pair(R"([{"name": "a", "count": 1}, {"name": "b"}])", "tensor 2: b has no number"),
          std::pair(R"([{"name": "b", "count": -1}])", "tensor 1: b has no number"),
          std::pair(R"([{"name": "b", "count": 1.5}])", "tensor 1: b has no number"),
          std::pair(R"([{"name": "b", "shape": [4294967296, 4294967296]}])", "tensor 1: b has no"),
          std::pair(R"([{"name": 3, "count": 1}])", "tensor 1: expected an object with name")})
        if (!refusal(text).starts_with(sentence))
            throw qtest::Failure{std::string(text) + ": " + refusal(text)};
}

// Names go into comments of plan files, so they must not contain line breaks.
static void names_stay_in_their_line() {
    CHECK_EQ(tensors(R"([{"name": "a\ncodec=int2", "count": 1}])")[0].name, "a?codec=int2");
}

static void arrays_are_tensors() {
    const qtest::TemporaryFolder folder;
    write_array(folder / "b.weight.npy", "<f4", 100, 4);
    write_array(folder / "a.npy", "<f2", 30, 2);
    write(folder / "notes.txt", "no array");
    for (const std::string &where : {folder / "", folder / "*.npy"}) {
        const auto read = read_tensors(where);
        CHECK_OK(read);
        CHECK_EQ(read->size(), 2U);
        CHECK((*read)[0].name == "a" && (*read)[0].type == DataType::float16);
        CHECK((*read)[1].name == "b.weight" && (*read)[1].count == 100);
    }
    write_array(folder / "rank0.npy", "<f4", 5, 4);
    const auto of_rank = read_tensors(folder / "rank%r.npy");
    CHECK_OK(of_rank);
    CHECK(of_rank->size() == 1 && of_rank->front().count == 5);
}

static void files_that_are_none_are_named() {
    const qtest::TemporaryFolder folder;
    write(folder / "bad.npy", "no array");
    write(folder / "list", "a 5\nb 0\n");
    for (const auto &[name, sentence, code] :
         {std::tuple("none", ": cannot read it: ", Code::system_error),
          std::tuple("none*.npy", ": no .npy file is there", Code::invalid_argument),
          std::tuple("list", ": line 2: b has no number of values", Code::invalid_argument),
          std::tuple("bad.npy", ": ", Code::invalid_argument)}) {
        const auto read = read_tensors(folder / name);
        CHECK(!read && read.error().code == code);
        CHECK(std::string(read.error().text).starts_with((folder / name) + sentence));
    }
    CHECK(!read_tensors(folder / ""));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_line_is_a_tensor),      QTEST(json_is_read),
        QTEST(wrong_lists_are_refused), QTEST(names_stay_in_their_line),
        QTEST(arrays_are_tensors),      QTEST(files_that_are_none_are_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
