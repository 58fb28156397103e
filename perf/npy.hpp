// Reads one array from a .npy file, as NumPy writes it: read-only, memory-mapped and treated as
// one-dimensional. Accepts the types that QCCL supports and refuses all others by name. Any thread
// may read.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qccl::perf {

struct NpyHeader {
    DataType type = DataType::float32;
    uint64_t count = 0;
    size_t data_offset = 0;
};

// Parses the header at the start of a file of `file_bytes` bytes; `start` holds the first bytes of
// the file. Trusts none of the bytes.
Result<NpyHeader> parse_npy(std::span<const std::byte> start, uint64_t file_bytes);

class Npy {
public:
    static Result<Npy> open(const std::string &path);
    Npy(Npy &&other) noexcept;
    Npy &operator=(Npy &&) = delete;
    ~Npy();

    DataType type() const { return header_.type; }
    uint64_t count() const { return header_.count; }
    // Aligned to at least 16 bytes in a file that follows the format; in other files possibly
    // unaligned.
    const std::byte *data() const { return memory_ + header_.data_offset; }

private:
    Npy(const std::byte *memory, size_t bytes, const NpyHeader &header)
        : memory_(memory), bytes_(bytes), header_(header) {}

    const std::byte *memory_;
    size_t bytes_;
    NpyHeader header_;
};

// Replaces every "%r" by the rank.
std::string path_of_rank(std::string_view pattern, uint32_t rank);

} // namespace qccl::perf
