// Reads and fills C structs that grow from release to release. Callers may be older or newer than
// this library; fields that it does not know are refused. The C functions use it; any thread may
// call it, and nothing blocks.
#pragma once

#include "base/result.hpp"

#include <qccl/qccl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

namespace qccl {

// A struct of the C header. `first_bytes` is its size in the release that introduced it. Reserved
// fields lie in [reserved_begin, reserved_end).
struct StructRule {
    const char *name;
    const char *initialiser;
    size_t first_bytes, bytes;
    size_t reserved_begin, reserved_end;
};

extern const StructRule config_rule, coll_config_rule;

// Checks `given`, and copies the fields that both sides know over `known`, which holds the
// defaults. Returns invalid_argument if `given` was not initialised, or if a field that this
// library does not know is not zero.
Done take_struct(const StructRule &rule, const void *given, void *known);

// NULL gives the defaults.
Result<qcclConfig_t> take_config(const qcclConfig_t *given);
Result<qcclCollConfig_t> take_config(const qcclCollConfig_t *given);

// Converts seconds of a config. Below 0 means never (0 ns), 0 gives nothing, and more than a
// century, infinity included, counts as a century. NaN is refused (invalid_argument) with the name
// `field`.
Result<std::optional<std::chrono::nanoseconds>> take_timeout(const char *field, double seconds);

// Fills a struct that the caller reads, up to the size that its first field states; zeros follow
// the known fields. Returns invalid_argument if that size is not possible.
Done give_struct(const char *name, const void *known, size_t known_bytes, size_t first_bytes,
                 void *out);

} // namespace qccl
