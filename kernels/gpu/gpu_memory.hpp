// How a lane accesses global memory: 16 bytes at once, or fewer if the values have fewer. Addresses
// are multiples of the access size; addresses of single values are multiples of their size.
#pragma once

#include "kernels/gpu/port.hpp"

#include <cstring>

namespace qccl::QCCL_GPU {

// What one access moves. It consists of the words of a register, because nvcc takes apart and puts
// together, byte by byte, what consists of bytes.
template <size_t bytes> struct __attribute__((may_alias)) Piece {
    using Word =
        std::conditional_t<bytes == 1, uint8_t, std::conditional_t<bytes == 2, uint16_t, uint32_t>>;
    alignas(bytes) Word word[bytes / sizeof(Word)];
};

template <class T, unsigned count>
inline constexpr size_t piece_bytes = count * sizeof(T) < 16 ? count * sizeof(T) : 16;

template <class T, unsigned count> QCCL_DEVICE bool is_aligned(const std::byte *at) {
    return reinterpret_cast<uintptr_t>(at) % piece_bytes<T, count> == 0;
}

template <class T, unsigned count> QCCL_DEVICE void load(const std::byte *at, T (&values)[count]) {
    constexpr size_t bytes = piece_bytes<T, count>;
    Piece<bytes> pieces[sizeof values / bytes];
#pragma unroll
    for (size_t i = 0; i < std::size(pieces); i++)
        pieces[i] = reinterpret_cast<const Piece<bytes> *>(at)[i];
    std::memcpy(values, pieces, sizeof values);
}

template <class T, unsigned count> QCCL_DEVICE void store(std::byte *at, const T (&values)[count]) {
    constexpr size_t bytes = piece_bytes<T, count>;
    Piece<bytes> pieces[sizeof values / bytes];
    std::memcpy(pieces, values, sizeof values);
#pragma unroll
    for (size_t i = 0; i < std::size(pieces); i++)
        reinterpret_cast<Piece<bytes> *>(at)[i] = pieces[i];
}

template <class T> QCCL_DEVICE T load_one(const std::byte *at) {
    T value[1];
    load(at, value);
    return value[0];
}
template <class T> QCCL_DEVICE void store_one(std::byte *at, T value) {
    const T values[1] = {value};
    store(at, values);
}

} // namespace qccl::QCCL_GPU
