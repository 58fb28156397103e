// Implements input_data.hpp: the conversions and the precision of each type, the parser of the .npy
// header and the mapping of the file, the generator of Gaussian values, and the reader of one .npy
// file per rank.
#include "perf/run/input_data.hpp"

#include "base/system.hpp"
#include "base/text.hpp"
#include "kernels/codec/combine.hpp"
#include "kernels/codec/number.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Values as numbers

template <class T, class Out> static void load_as(const std::byte *src, size_t count, Out *dst) {
    for (size_t i = 0; i < count; i++) {
        T value;
        std::memcpy(&value, src + i * sizeof(T), sizeof(T));
        dst[i] = static_cast<Out>(value);
    }
}

template <class T, class In> static void store_as(const In *src, size_t count, std::byte *dst) {
    for (size_t i = 0; i < count; i++) {
        const auto value = static_cast<T>(src[i]);
        std::memcpy(dst + i * sizeof(T), &value, sizeof(T));
    }
}

// F is a format of number.hpp; Bits is the integer type that holds it.
template <class F, class Bits>
static void load_small(const std::byte *src, size_t count, double *dst) {
    for (size_t i = 0; i < count; i++) {
        Bits bits;
        std::memcpy(&bits, src + i * sizeof bits, sizeof bits);
        dst[i] = static_cast<double>(widen<F>(bits));
    }
}

template <class F, class Bits>
static void store_small(const double *src, size_t count, std::byte *dst) {
    for (size_t i = 0; i < count; i++) {
        const auto bits = static_cast<Bits>(narrow<F>(src[i]));
        std::memcpy(dst + i * sizeof bits, &bits, sizeof bits);
    }
}

static_assert(type_table.size() == 22,
              "a new type needs cases in the functions below, wrapped (result_check.cpp), "
              "mpi_type (baseline_mpi.cpp) and the names of NumPy's types");

void load_reals(DataType type, const std::byte *src, size_t count, double *dst) {
    switch (type) {
    case DataType::float16: return load_small<Half, uint16_t>(src, count, dst);
    case DataType::bfloat16: return load_small<Bfloat, uint16_t>(src, count, dst);
    case DataType::float8e4m3: return load_small<E4m3, uint8_t>(src, count, dst);
    case DataType::float8e5m2: return load_small<E5m2, uint8_t>(src, count, dst);
    case DataType::float32: return load_as<float>(src, count, dst);
    default: return load_as<double>(src, count, dst);
    }
}

void store_reals(DataType type, const double *src, size_t count, std::byte *dst) {
    switch (type) {
    case DataType::float16: return store_small<Half, uint16_t>(src, count, dst);
    case DataType::bfloat16: return store_small<Bfloat, uint16_t>(src, count, dst);
    case DataType::float8e4m3: return store_small<E4m3, uint8_t>(src, count, dst);
    case DataType::float8e5m2: return store_small<E5m2, uint8_t>(src, count, dst);
    case DataType::float32: return store_as<float>(src, count, dst);
    default: return store_as<double>(src, count, dst);
    }
}

// Pairs as numbers: the smaller one is the one that min_loc takes.
static constexpr double pair_steps = 0x1p12;
static constexpr int64_t pair_indices = int64_t{1} << 32;

template <class V> static void load_pairs(const std::byte *src, size_t count, int64_t *dst) {
    for (size_t i = 0; i < count; i++) {
        const auto pair = load_bits<IndexedValue<V>>(src, i);
        const double value = static_cast<double>(pair.value) * pair_steps;
        // What no reduction of generated pairs gives must not overflow.
        static constexpr double limit = 0x1p30;
        const double clamped = value > -limit && value < limit ? value : limit;
        dst[i] = static_cast<int64_t>(clamped) * pair_indices + int64_t{pair.index};
    }
}
template <class V> static void store_pairs(const int64_t *src, size_t count, std::byte *dst) {
    for (size_t i = 0; i < count; i++) {
        IndexedValue<V> pair{}; // with padding of zeros
        pair.value = static_cast<V>(static_cast<double>(pair_steps_of(src[i])) / pair_steps);
        pair.index = static_cast<int32_t>(src[i] & (pair_indices - 1));
        store_bits(dst, i, pair);
    }
}

void load_integers(DataType type, const std::byte *src, size_t count, int64_t *dst) {
    switch (type) {
    case DataType::int8: return load_as<int8_t>(src, count, dst);
    case DataType::uint8:
    case DataType::boolean: return load_as<uint8_t>(src, count, dst);
    case DataType::int16: return load_as<int16_t>(src, count, dst);
    case DataType::uint16: return load_as<uint16_t>(src, count, dst);
    case DataType::int32: return load_as<int32_t>(src, count, dst);
    case DataType::uint32: return load_as<uint32_t>(src, count, dst);
    case DataType::float_int: return load_pairs<float>(src, count, dst);
    case DataType::double_int: return load_pairs<double>(src, count, dst);
    case DataType::long_int: return load_pairs<int64_t>(src, count, dst);
    case DataType::int_int: return load_pairs<int32_t>(src, count, dst);
    case DataType::short_int: return load_pairs<int16_t>(src, count, dst);
    default: return load_as<int64_t>(src, count, dst);
    }
}

void store_integers(DataType type, const int64_t *src, size_t count, std::byte *dst) {
    switch (type) {
    case DataType::float_int: return store_pairs<float>(src, count, dst);
    case DataType::double_int: return store_pairs<double>(src, count, dst);
    case DataType::long_int: return store_pairs<int64_t>(src, count, dst);
    case DataType::int_int: return store_pairs<int32_t>(src, count, dst);
    case DataType::short_int: return store_pairs<int16_t>(src, count, dst);
    default: break;
    }
    switch (type_bytes(type)) {
    case 1: return store_as<uint8_t>(src, count, dst);
    case 2: return store_as<uint16_t>(src, count, dst);
    case 4: return store_as<uint32_t>(src, count, dst);
    default: return store_as<uint64_t>(src, count, dst);
    }
}

double unit_roundoff(DataType type) {
    return info(type).is_float ? std::ldexp(1.0, -info(type).format.fraction_bits - 1) : 0;
}

double smallest_step(DataType type) {
    return info(type).is_float ? std::ldexp(1.0, info(type).format.smallest()) : 0;
}

// ---- .npy files

// NumPy itself warns above this size; a longer header does not describe a plain array.
static constexpr size_t longest_header = 10000;

static Error refuse_npy(const char *why) { return invalid_argument("%s", why); }

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
            return invalid_argument("holds big-endian %s; convert it with .astype('%s')",
                                    known.name.data(), known.text.data());
    }
    Names possible;
    for (const Descriptor &known : descriptors) possible.push_back(known.name);
    return invalid_argument("holds %s; possible are %s; convert it with .astype('<f4')",
                            dtype_name(descriptor).c_str(), listed(possible).c_str());
}

// Returns the text after "'key':" in the header's dictionary, without leading blanks.
static Result<std::string_view> value_of(std::string_view header, std::string_view key) {
    std::string quoted = "'";
    quoted.append(key).append("':");
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos)
        return invalid_argument("its header names no '%.*s'", static_cast<int>(key.size()),
                                key.data());
    const std::string_view rest = header.substr(at + quoted.size());
    return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

// Returns the product of the numbers in "(3, 4)", "(5,)" or "()".
static Result<uint64_t> count_of(std::string_view shape) {
    const size_t end = shape.find(')');
    if (!shape.starts_with('(') || end == std::string_view::npos)
        return refuse_npy("its header gives no shape");
    uint64_t count = 1;
    for (std::string_view rest = shape.substr(1, end - 1); !rest.empty();) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view number = rest.substr(0, comma);
        rest = rest.substr(std::min(comma + 1, rest.size()));
        const size_t digits = rest.find_first_not_of(' ');
        rest = rest.substr(std::min(digits, rest.size()));
        const auto extent = parse_count(number);
        if (!extent || (*extent != 0 && count > UINT64_MAX / *extent))
            return refuse_npy("its header gives no shape that could be");
        count *= *extent;
    }
    return count;
}

Result<NpyHeader> parse_npy(std::span<const std::byte> start, uint64_t file_bytes) {
    static constexpr char magic[] = "\x93NUMPY";
    static constexpr size_t magic_bytes = 6, version_1_bytes = 10, version_2_bytes = 12;
    if (start.size() < version_2_bytes || std::memcmp(start.data(), magic, magic_bytes) != 0)
        return refuse_npy("is no .npy file (its first bytes are not \\x93NUMPY)");

    const auto byte = [&](size_t at) { return static_cast<size_t>(start[at]); };
    const size_t version = byte(6);
    if (version < 1 || version > 3)
        return invalid_argument("is a .npy file of version %zu; possible are 1 to 3", version);
    const size_t before = version == 1 ? version_1_bytes : version_2_bytes;
    const size_t length = version == 1
                              ? byte(8) + (byte(9) << 8)
                              : byte(8) + (byte(9) << 8) + (byte(10) << 16) + (byte(11) << 24);
    if (length > longest_header)
        return invalid_argument("has a header of %zu bytes; %zu are the most", length,
                                longest_header);
    if (before + length > start.size()) return refuse_npy("ends inside its header");

    const std::string_view header(reinterpret_cast<const char *>(start.data()) + before, length);
    QCCL_TRY(const std::string_view descriptor, value_of(header, "descr"));
    QCCL_TRY(const std::string_view order, value_of(header, "fortran_order"));
    QCCL_TRY(const std::string_view shape, value_of(header, "shape"));
    if (!descriptor.starts_with('\''))
        return refuse_npy("holds records; one type of number is needed");
    QCCL_TRY(
        const DataType type,
        type_of(descriptor.substr(1, std::min(descriptor.find('\'', 1), descriptor.size()) - 1)));
    if (order.starts_with("True"))
        return refuse_npy("is in Fortran order; convert it with numpy.ascontiguousarray");
    if (!order.starts_with("False")) return refuse_npy("does not say in which order it is");
    QCCL_TRY(const uint64_t count, count_of(shape));

    const uint64_t there = file_bytes - std::min<uint64_t>(file_bytes, before + length);
    if (count > there / type_bytes(type) || count * type_bytes(type) != there)
        return invalid_argument(
            "says that it holds %llu values of %zu bytes, and has %llu bytes of them",
            static_cast<unsigned long long>(count), type_bytes(type),
            static_cast<unsigned long long>(there));
    return NpyHeader{type, count, before + length};
}

static Error name_file(const std::string &path, const char *what) {
    return invalid_argument("%s %s", path.c_str(), what);
}

Result<Npy> Npy::open(const std::string &path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        const std::string problem = file < 0                  ? describe_errno(errno)
                                    : S_ISDIR(status.st_mode) ? describe_errno(EISDIR)
                                                              : "it is no plain file";
        if (file >= 0) ::close(file);
        return invalid_argument("cannot read %s: %s", path.c_str(), problem.c_str());
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

uint32_t count_files(std::string_view pattern) {
    uint32_t ranks = 0;
    std::error_code ignored;
    while (std::filesystem::exists(path_of_rank(pattern, ranks), ignored)) ranks++;
    return ranks;
}

// ---- Inputs of the ranks

class Gaussian final : public Source {
public:
    explicit Gaussian(uint64_t seed) : seed_(seed) {}

    void read(uint32_t rank, DataType asked, uint64_t asked_first, size_t asked_count,
              std::byte *dst) const override {
        const DataType type = real_type(asked);
        const uint64_t first = asked_first * reals_of(asked);
        const size_t count = asked_count * reals_of(asked);
        const uint64_t key = splitmix64(seed_ ^ splitmix64(rank));
        for (size_t done = 0; done < count; done += block) {
            const size_t piece = std::min(block, count - done);
            if (info(type).is_float)
                read_reals(key, type, first + done, piece, dst + done * type_bytes(type));
            else
                read_integers(key, type, first + done, piece, dst + done * type_bytes(type));
        }
    }

    uint32_t exact_ranks(DataType type) const override {
        return type == DataType::float32 || type == DataType::float64 ? 256 : 1;
    }

private:
    static constexpr size_t block = 1024;

    static double on_grid(float x) {
        static constexpr double step = 0x1p-12, largest = 8 - step;
        return std::clamp(std::nearbyint(static_cast<double>(x) / step) * step, -largest, largest);
    }

    static void read_reals(uint64_t key, DataType type, uint64_t first, size_t count,
                           std::byte *dst) {
        double values[block + 2];
        const uint64_t begin = first & ~uint64_t{1};
        for (uint64_t i = begin; i < first + count; i += 2) {
            const auto [even, odd] = gaussian_pair(key, i / 2);
            values[i - begin] = on_grid(even);
            values[i - begin + 1] = on_grid(odd);
        }
        store_reals(type, values + (first - begin), count, dst);
    }

    // Values from -8 to 7, or from 0 to 15 for unsigned types. Products of several ranks wrap
    // around, which is defined. Four truth values of five are true. Pairs have the values of
    // integers and one of 16 indices, so that ranks often have equal values.
    static void read_integers(uint64_t key, DataType type, uint64_t first, size_t count,
                              std::byte *dst) {
        const TypeKind kind = info(type).kind;
        const bool is_signed = kind == TypeKind::pair || type == DataType::int8 ||
                               type == DataType::int16 || type == DataType::int32 ||
                               type == DataType::int64;
        int64_t values[block];
        for (size_t i = 0; i < count; i++) {
            const uint64_t draw = splitmix64(key + first + i);
            values[i] = static_cast<int64_t>(draw >> 60) - (is_signed ? 8 : 0);
            if (kind == TypeKind::boolean) values[i] = values[i] > 2 ? 1 : 0;
            if (kind == TypeKind::pair)
                values[i] = values[i] * static_cast<int64_t>(pair_steps) * pair_indices +
                            static_cast<int64_t>(draw & 15);
        }
        store_integers(type, values, count, dst);
    }

    uint64_t seed_;
};

std::string one_file_note(std::string_view pattern) {
    if (pattern.find("%r") != std::string_view::npos) return {};
    return "--input names no %r: all ranks read the same file, " + std::string(pattern);
}

std::unique_ptr<Source> make_gaussian(uint64_t seed) { return std::make_unique<Gaussian>(seed); }

// Returns a hint if the pattern has no %r and names no file, because the user may have expected
// another placeholder.
static const char *hint_for(std::string_view pattern) {
    std::error_code ignored;
    const bool is_clear = pattern.find("%r") != std::string_view::npos ||
                          std::filesystem::is_regular_file(pattern, ignored);
    return is_clear ? "" : "; %r stands for the rank, as in DIR/rank%r.npy";
}

Result<std::unique_ptr<Files>> Files::open(std::string_view pattern, uint32_t ranks) {
    std::vector<Npy> files;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const std::string path = path_of_rank(pattern, rank);
        auto opened = Npy::open(path);
        if (!opened)
            return invalid_argument("input of rank %u: %s%s", rank, opened.error().text,
                                    hint_for(pattern));
        Npy file = std::move(*opened);
        if (rank > 0 && file.type() != files.front().type())
            return invalid_argument("%s holds %s, and that of rank 0 holds %s", path.c_str(),
                                    name(file.type()), name(files.front().type()));
        if (rank > 0 && file.count() != files.front().count())
            return invalid_argument("%s holds %llu values, and that of rank 0 holds %llu",
                                    path.c_str(), static_cast<unsigned long long>(file.count()),
                                    static_cast<unsigned long long>(files.front().count()));
        files.push_back(std::move(file));
    }
    return std::unique_ptr<Files>(new Files(std::move(files)));
}

void Files::read(uint32_t rank, DataType type, uint64_t first, size_t count, std::byte *dst) const {
    const size_t bytes = type_bytes(type);
    std::memcpy(dst, files_[rank].data() + first * bytes, count * bytes);
}

} // namespace qccl::perf
