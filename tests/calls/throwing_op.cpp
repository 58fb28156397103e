// A reduction function that throws, for the test of such functions, which is in C.
#include <cstddef>
#include <cstdint>
#include <stdexcept>

extern "C" {
int throw_it(void *, const void *, size_t, int32_t, void *);
}

int throw_it(void *, const void *, size_t, int32_t, void *) {
    throw std::invalid_argument("no such value");
}
