// Structs that grow from release to release, as they come over the C line: who may be older or
// newer than this library, and what is refused. Knows no communicator.
#pragma once

#include "base/result.hpp"

#include <qccl/qccl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

namespace qccl {

// One struct of the header: `first_bytes` is what it had in the release that brought it, and
// reserved words lie in [reserved_begin, reserved_end).
struct StructRule {
    const char *name;
    const char *initialiser;
    size_t first_bytes, bytes;
    size_t reserved_begin, reserved_end;
};

extern const StructRule config_rule, coll_config_rule;

// Checks `given` and copies what both sides know over `known`, which holds the defaults. Nothing
// that this library does not know and that is not zero passes.
Done take_struct(const StructRule &rule, const void *given, void *known);

// NULL is a config of defaults.
Result<qcclConfig_t> take_config(const qcclConfig_t *given);
Result<qcclCollConfig_t> take_config(const qcclCollConfig_t *given);

// Seconds as a config has them: below 0 is never (as zero ns), 0 says nothing, and what is longer
// than a century, infinity too, is a century.
Result<std::optional<std::chrono::nanoseconds>> take_timeout(const char *field, double seconds);

// Fills a struct that the caller reads: as much as fits into the size that it says, zeros behind.
Done give_struct(const char *name, const void *known, size_t known_bytes, size_t first_bytes,
                 void *out);

} // namespace qccl
