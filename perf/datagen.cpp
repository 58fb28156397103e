// Implements datagen.hpp: the generator of Gaussian values and the reader of one .npy file per
// rank.
#include "perf/datagen.hpp"

#include "perf/random.hpp"
#include "perf/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace qccl::perf {

class Gaussian final : public Source {
public:
    explicit Gaussian(uint64_t seed) : seed_(seed) {}

    void read(uint32_t rank, DataType type, uint64_t first, size_t count,
              std::byte *dst) const override {
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
    // around, which is defined.
    static void read_integers(uint64_t key, DataType type, uint64_t first, size_t count,
                              std::byte *dst) {
        const bool is_signed =
            type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
        int64_t values[block];
        for (size_t i = 0; i < count; i++)
            values[i] =
                static_cast<int64_t>(splitmix64(key + first + i) >> 60) - (is_signed ? 8 : 0);
        store_integers(type, values, count, dst);
    }

    uint64_t seed_;
};

std::string one_file_note(std::string_view pattern) {
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
            return Error::make(Code::invalid_argument, "input of rank %u: %s%s", rank,
                               opened.error().text, hint_for(pattern));
        Npy file = std::move(*opened);
        if (rank > 0 && file.type() != files.front().type())
            return Error::make(Code::invalid_argument, "%s holds %s, and that of rank 0 holds %s",
                               path.c_str(), name(file.type()), name(files.front().type()));
        if (rank > 0 && file.count() != files.front().count())
            return Error::make(Code::invalid_argument,
                               "%s holds %llu values, and that of rank 0 holds %llu", path.c_str(),
                               static_cast<unsigned long long>(file.count()),
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
