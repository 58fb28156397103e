// Implements npy.hpp: the parser of the header and the mapping of the file.
#include "perf/npy.hpp"

#include "base/choice.hpp"
#include "base/parse_units.hpp"
#include "base/system_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::perf {

// NumPy itself warns above this size; a longer header does not describe a plain array.
static constexpr size_t longest_header = 10000;

static Error refuse(const char *why) { return Error::make(Code::invalid_argument, "%s", why); }

struct Descriptor {
    std::string_view text; // in the header
    std::string_view name; // NumPy's name of the dtype
    DataType type;
};
static constexpr Descriptor descriptors[] = {
    {"<f4", "float32", DataType::float32}, {"<f8", "float64", DataType::float64},
    {"<f2", "float16", DataType::float16}, {"|i1", "int8", DataType::int8},
    {"|u1", "uint8", DataType::uint8},     {"<i4", "int32", DataType::int32},
    {"<u4", "uint32", DataType::uint32},   {"<i8", "int64", DataType::int64},
    {"<u8", "uint64", DataType::uint64},
};

// Returns NumPy's name, such as complex64 for "<c8", or the header's text if there is no such name.
static std::string dtype_name(std::string_view descriptor) {
    static constexpr std::pair<char, const char *> kinds[] = {
        {'f', "float"}, {'c', "complex"}, {'i', "int"}, {'u', "uint"}};
    if (descriptor == "|b1") return "bool";
    const auto bytes = parse_count(descriptor.substr(std::min<size_t>(2, descriptor.size())));
    static constexpr uint64_t most_bytes = 32; // the size of a complex long double
    for (const auto &[letter, name] : kinds)
        if (bytes && *bytes <= most_bytes && descriptor[1] == letter)
            return name + std::to_string(*bytes * 8);
    static constexpr size_t longest_shown = 20;
    return std::string("'").append(descriptor.substr(0, longest_shown)).append("'");
}

static Result<DataType> type_of(std::string_view descriptor) {
    for (const Descriptor &known : descriptors) {
        if (known.text == descriptor) return known.type;
        if (descriptor.starts_with('>') && descriptor.substr(1) == known.text.substr(1))
            return Error::make(Code::invalid_argument,
                               "holds big-endian %s; convert it with .astype('%s')",
                               known.name.data(), known.text.data());
    }
    Names possible;
    for (const Descriptor &known : descriptors) possible.push_back(known.name);
    return Error::make(Code::invalid_argument,
                       "holds %s; possible are %s; convert it with .astype('<f4')",
                       dtype_name(descriptor).c_str(), listed(possible).c_str());
}

// Returns the text after "'key':" in the header's dictionary, without leading blanks.
static Result<std::string_view> value_of(std::string_view header, std::string_view key) {
    std::string quoted = "'";
    quoted.append(key).append("':");
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos)
        return Error::make(Code::invalid_argument, "its header names no '%.*s'",
                           static_cast<int>(key.size()), key.data());
    const std::string_view rest = header.substr(at + quoted.size());
    return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

// Returns the product of the numbers in "(3, 4)", "(5,)" or "()".
static Result<uint64_t> count_of(std::string_view shape) {
    const size_t end = shape.find(')');
    if (!shape.starts_with('(') || end == std::string_view::npos)
        return refuse("its header gives no shape");
    uint64_t count = 1;
    for (std::string_view rest = shape.substr(1, end - 1); !rest.empty();) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view number = rest.substr(0, comma);
        rest = rest.substr(std::min(comma + 1, rest.size()));
        const size_t digits = rest.find_first_not_of(' ');
        rest = rest.substr(std::min(digits, rest.size()));
        const auto extent = parse_count(number);
        if (!extent || (*extent != 0 && count > UINT64_MAX / *extent))
            return refuse("its header gives no shape that could be");
        count *= *extent;
    }
    return count;
}

Result<NpyHeader> parse_npy(std::span<const std::byte> start, uint64_t file_bytes) {
    static constexpr char magic[] = "\x93NUMPY";
    static constexpr size_t magic_bytes = 6, version_1_bytes = 10, version_2_bytes = 12;
    if (start.size() < version_2_bytes || std::memcmp(start.data(), magic, magic_bytes) != 0)
        return refuse("is no .npy file (its first bytes are not \\x93NUMPY)");

    const auto byte = [&](size_t at) { return static_cast<size_t>(start[at]); };
    const size_t version = byte(6);
    if (version < 1 || version > 3)
        return Error::make(Code::invalid_argument,
                           "is a .npy file of version %zu; possible are 1 to 3", version);
    const size_t before = version == 1 ? version_1_bytes : version_2_bytes;
    const size_t length = version == 1
                              ? byte(8) + (byte(9) << 8)
                              : byte(8) + (byte(9) << 8) + (byte(10) << 16) + (byte(11) << 24);
    if (length > longest_header)
        return Error::make(Code::invalid_argument, "has a header of %zu bytes; %zu are the most",
                           length, longest_header);
    if (before + length > start.size()) return refuse("ends inside its header");

    const std::string_view header(reinterpret_cast<const char *>(start.data()) + before, length);
    QCCL_TRY(const std::string_view descriptor, value_of(header, "descr"));
    QCCL_TRY(const std::string_view order, value_of(header, "fortran_order"));
    QCCL_TRY(const std::string_view shape, value_of(header, "shape"));
    if (!descriptor.starts_with('\'')) return refuse("holds records; one type of number is needed");
    QCCL_TRY(
        const DataType type,
        type_of(descriptor.substr(1, std::min(descriptor.find('\'', 1), descriptor.size()) - 1)));
    if (order.starts_with("True"))
        return refuse("is in Fortran order; convert it with numpy.ascontiguousarray");
    if (!order.starts_with("False")) return refuse("does not say in which order it is");
    QCCL_TRY(const uint64_t count, count_of(shape));

    const uint64_t there = file_bytes - std::min<uint64_t>(file_bytes, before + length);
    if (count > there / type_bytes(type) || count * type_bytes(type) != there)
        return Error::make(
            Code::invalid_argument,
            "says that it holds %llu values of %zu bytes, and has %llu bytes of them",
            static_cast<unsigned long long>(count), type_bytes(type),
            static_cast<unsigned long long>(there));
    return NpyHeader{type, count, before + length};
}

static Error name_file(const std::string &path, const char *what) {
    return Error::make(Code::invalid_argument, "%s %s", path.c_str(), what);
}

Result<Npy> Npy::open(const std::string &path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        const std::string problem = file < 0                  ? describe_errno(errno)
                                    : S_ISDIR(status.st_mode) ? describe_errno(EISDIR)
                                                              : "it is no plain file";
        if (file >= 0) ::close(file);
        return Error::make(Code::invalid_argument, "cannot read %s: %s", path.c_str(),
                           problem.c_str());
    }
    const auto bytes = static_cast<size_t>(status.st_size);
    void *const memory =
        bytes == 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) return name_file(path, bytes == 0 ? "is empty" : "cannot be mapped");

    const auto *const data = static_cast<const std::byte *>(memory);
    const auto header = parse_npy({data, std::min(bytes, longest_header + 16)}, bytes);
    if (!header) {
        munmap(memory, bytes);
        return name_file(path, header.error().text);
    }
    return Npy(data, bytes, *header);
}

Npy::Npy(Npy &&other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), header_(other.header_) {
}

Npy::~Npy() {
    if (memory_) munmap(const_cast<std::byte *>(memory_), bytes_);
}

std::string path_of_rank(std::string_view pattern, uint32_t rank) {
    std::string path(pattern);
    const std::string number = std::to_string(rank);
    for (size_t at = 0; (at = path.find("%r", at)) != std::string::npos; at += number.size())
        path.replace(at, 2, number);
    return path;
}

} // namespace qccl::perf
