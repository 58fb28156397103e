// Stands first in what a handle points to, and goes last: a pointer to something else is told
// apart, and so is what has been destroyed, as far as memory that was given back still shows it.
#pragma once

#include <cstdint>

namespace qccl {

template <uint64_t letters> class HandleMark {
public:
    HandleMark() = default;
    // An object's bytes have no meaning after its end, and compilers leave out what is written
    // there for nobody: unless it is volatile.
    ~HandleMark() { value_ = 0; }
    HandleMark(const HandleMark &) = delete;
    HandleMark &operator=(const HandleMark &) = delete;

    bool is_intact() const { return value_ == letters; }

private:
    volatile uint64_t value_ = letters;
};

// Whether the handle points to a T that has not been destroyed, as far as can be seen.
template <class T> bool is_alive(const T *handle) {
    return reinterpret_cast<uintptr_t>(handle) % alignof(T) == 0 && handle->is_intact();
}

} // namespace qccl
