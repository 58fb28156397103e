// Fuzzes perf/info/tensor_list: every list is read or refused, and the tensors that were read can
// be written into a plan file.
#include "perf/info/advice.hpp"

#include <cstdint>
#include <cstdlib>

using namespace qccl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const std::string_view text(reinterpret_cast<const char *>(data), bytes);
    const auto tensors = perf::parse_tensors(text);
    if (!tensors) return 0;
    for (const NamedTensor &tensor : *tensors)
        if (tensor.count == 0 || tensor.name.find('\n') != std::string::npos) abort();
    return 0;
}
