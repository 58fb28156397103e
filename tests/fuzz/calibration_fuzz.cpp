// Fuzzes plan/calibration: any text is read or refused in a sentence, and what is read is printed
// so that it is read again.
#include "plan/calibration.hpp"

#include <cstdint>
#include <cstdlib>

using namespace qccl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto file = parse_calibration({reinterpret_cast<const char *>(data), bytes});
    if (!file) return 0;
    const std::string written = print(*file);
    const auto again = parse_calibration(written);
    if (!again || print(*again) != written) abort();
    return 0;
}
