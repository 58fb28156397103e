// Tests parse_npy() and Npy of perf/run/input_data: files as NumPy writes them are read, everything
// else is refused by name, and no damage is fatal.
#include "tests/kit/qtest.hpp"

#include "perf/run/input_data.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

using namespace qccl;
using namespace qccl::perf;

// Returns a file with a header of version 1 around `dictionary`, padded as NumPy pads it, and
// `data_bytes` bytes of data.
static std::string file_with(const std::string &dictionary, size_t data_bytes) {
    std::string text = dictionary;
    while ((10 + text.size() + 1) % 64 != 0) text += ' ';
    text += '\n';
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(text.size() & 255);
    file += static_cast<char>(text.size() >> 8);
    return file + text + std::string(data_bytes, '\1');
}

static std::string dictionary(const char *type, const char *order, const char *shape) {
    return std::string("{'descr': '") + type + "', 'fortran_order': " + order +
           ", 'shape': " + shape + ", }";
}

static Result<NpyHeader> parse(const std::string &file) {
    return parse_npy({reinterpret_cast<const std::byte *>(file.data()), file.size()}, file.size());
}

static void check_says(const Error &error, const std::string &wanted) {
    const std::string said = error.text;
    if (said.find(wanted) == std::string::npos)
        throw qtest::Failure{said + " does not say: " + wanted};
}

static void check_refused(const std::string &file, const char *because) {
    const auto header = parse(file);
    CHECK(!header);
    CHECK(header.error().code == Code::invalid_argument);
    check_says(header.error(), because);
}

static void every_type_that_qccl_has_is_read() {
    const std::pair<const char *, DataType> types[] = {
        {"<f4", DataType::float32}, {"<f8", DataType::float64}, {"<f2", DataType::float16},
        {"|i1", DataType::int8},    {"|u1", DataType::uint8},   {"<i4", DataType::int32},
        {"<u4", DataType::uint32},  {"<i8", DataType::int64},   {"<u8", DataType::uint64}};
    for (const auto &[text, type] : types) {
        const auto header =
            parse(file_with(dictionary(text, "False", "(3, 4)"), 12 * type_bytes(type)));
        CHECK_OK(header);
        CHECK(header->type == type);
        CHECK_EQ(header->count, 12U);
        CHECK_EQ(header->data_offset % 64, 0U);
    }
}

static void every_shape_is_a_number_of_values() {
    CHECK_EQ(parse(file_with(dictionary("<f4", "False", "()"), 4))->count, 1U);
    CHECK_EQ(parse(file_with(dictionary("<f4", "False", "(5,)"), 20))->count, 5U);
    CHECK_EQ(parse(file_with(dictionary("<f4", "False", "(2, 3, 4)"), 96))->count, 24U);
    CHECK_EQ(parse(file_with(dictionary("<f4", "False", "(0, 7)"), 0))->count, 0U);
}

static void a_later_version_has_a_longer_length() {
    const std::string first = file_with(dictionary("<f4", "False", "(1,)"), 4);
    std::string second("\x93NUMPY\x02\x00", 8);
    second += first.substr(8, 2) + std::string(2, '\0') + first.substr(10);
    const auto header = parse(second);
    CHECK_OK(header);
    CHECK_EQ(header->count, 1U);
}

static void other_files_are_refused_by_name() {
    check_refused("", "no .npy file");
    check_refused("hello, this is some text", "no .npy file");
    check_refused(std::string("\x93NUMPY\x09\x00\x10\x00", 10) + std::string(40, ' '), "version 9");
    check_refused(file_with(dictionary("<f4", "False", "(9,)"), 0).substr(0, 40),
                  "ends inside its header");
    check_refused(std::string("\x93NUMPY\x01\x00\xFF\xFF", 10) + std::string(70000, ' '), "65535");
    check_refused(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\x7F", 12), "2147483647");
}

static void other_arrays_are_refused_by_name() {
    check_refused(file_with(dictionary(">f4", "False", "(1,)"), 4),
                  "big-endian float32; convert it with .astype('<f4')");
    check_refused(file_with(dictionary(">f2", "False", "(1,)"), 2), ".astype('<f2')");
    check_refused(file_with(dictionary(">c8", "False", "(1,)"), 8), "holds complex64; possible");
    check_refused(file_with(dictionary("<c8", "False", "(1,)"), 8),
                  "holds complex64; possible are float32, float64, ");
    check_refused(file_with(dictionary("<i2", "False", "(1,)"), 2), "holds int16; possible");
    check_refused(file_with(dictionary("|b1", "False", "(1,)"), 1), "holds bool; possible");
    check_refused(file_with(dictionary("<U5", "False", "(1,)"), 20), "holds '<U5'; possible");
    for (const char *type : {"", "<", "<f", "f", "<f99999999999999999999", "<f4294967296"})
        check_refused(file_with(dictionary(type, "False", "(1,)"), 4), "; possible are");
    check_refused(file_with(dictionary("<f4", "True", "(1, 1)"), 4),
                  "Fortran order; convert it with numpy.ascontiguousarray");
    check_refused(file_with(dictionary("<f4", "Maybe", "(1,)"), 4), "order");
    check_refused(
        file_with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4),
        "records");
    check_refused(file_with("{'fortran_order': False, 'shape': (1,), }", 4), "descr");
    check_refused(file_with("{'descr': '<f4', 'shape': (1,), }", 4), "fortran_order");
    check_refused(file_with("{'descr': '<f4', 'fortran_order': False}", 4), "shape");
    check_refused(file_with(dictionary("<f4", "False", "(1"), 4), "no shape");
    check_refused(file_with(dictionary("<f4", "False", "(-1,)"), 4), "no shape that could be");
    check_refused(file_with(dictionary("<f4", "False", "(4294967296, 4294967296)"), 4), "could be");
}

static void a_wrong_length_is_refused() {
    check_refused(file_with(dictionary("<f4", "False", "(10,)"), 39), "has 39 bytes");
    check_refused(file_with(dictionary("<f4", "False", "(10,)"), 41), "has 41 bytes");
    check_refused(file_with(dictionary("<f8", "False", "(4611686018427387904,)"), 8),
                  "has 8 bytes");
}

// A file that is cut off or changed gives a result or an error, and the parser never reads past the
// end.
static void no_damage_is_fatal() {
    const std::string whole = file_with(dictionary("<f4", "False", "(3, 4)"), 48);
    for (size_t length = 0; length < whole.size(); length++) {
        const std::string cut = whole.substr(0, length);
        CHECK(!parse(cut));
    }
    for (size_t at = 0; at < whole.size() - 48; at++)
        for (const char byte : {'\0', '\xFF', '\'', '(', ')', ',', '9'}) {
            std::string changed = whole;
            changed[at] = byte;
            if (const auto header = parse(changed))
                CHECK(header->count * type_bytes(header->type) + header->data_offset ==
                      changed.size());
        }
}

static std::string write_file(const std::string &content) {
    const std::string path =
        std::filesystem::temp_directory_path() / ("npy_test." + std::to_string(getpid()) + ".npy");
    std::ofstream(path, std::ios::binary) << content;
    return path;
}

static void a_file_is_mapped() {
    const std::string path = write_file(file_with(dictionary("|u1", "False", "(7,)"), 7));
    {
        const auto file = Npy::open(path);
        CHECK_OK(file);
        CHECK_EQ(file->count(), 7U);
        for (size_t i = 0; i < 7; i++) CHECK(file->data()[i] == std::byte{1});
    }
    std::filesystem::remove(path);
}

static void a_file_that_cannot_be_read_is_named() {
    for (const char *path : {"/nowhere/rank0.npy", "/"}) {
        const auto file = Npy::open(path);
        CHECK(!file);
        check_says(file.error(), path);
        check_says(file.error(), *(path + 1) ? "No such file" : "Is a directory");
    }
    const std::string empty = write_file("");
    const auto file = Npy::open(empty);
    CHECK(!file);
    check_says(file.error(), "is empty");
    std::filesystem::remove(empty);
}

static void a_pattern_names_the_rank() {
    CHECK_EQ(path_of_rank("d/rank%r.npy", 12), std::string("d/rank12.npy"));
    CHECK_EQ(path_of_rank("%r/%r", 3), std::string("3/3"));
    CHECK_EQ(path_of_rank("same.npy", 3), std::string("same.npy"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_type_that_qccl_has_is_read),
        QTEST(every_shape_is_a_number_of_values),
        QTEST(a_later_version_has_a_longer_length),
        QTEST(other_files_are_refused_by_name),
        QTEST(other_arrays_are_refused_by_name),
        QTEST(a_wrong_length_is_refused),
        QTEST(no_damage_is_fatal),
        QTEST(a_file_is_mapped),
        QTEST(a_file_that_cannot_be_read_is_named),
        QTEST(a_pattern_names_the_rank),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
