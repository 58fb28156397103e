#include "api/setting_checks.hpp"

#include "plan/planner.hpp"
#include "transport/transport.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

namespace {

// A few wire slots of the smallest segment for each of a few ranks. Calls that need more get memory
// of their own, which takes time.
constexpr size_t smallest_arena = size_t{64} << 10;

Done check_arena(uint64_t bytes) {
    if (bytes < smallest_arena)
        return Error::make(Code::invalid_argument,
                           "QCCL_ARENA: %" PRIu64 " bytes are less than the smallest arena of %zu",
                           bytes, smallest_arena);
    if (bytes > most_outbox_bytes)
        return Error::make(Code::invalid_argument,
                           "QCCL_ARENA: %" PRIu64 " bytes are more than the %" PRIu64
                           " that can be addressed",
                           bytes, most_outbox_bytes);
    return {};
}

Done check_record_folder(const std::string &folder) {
    const auto in_vain = [&](const char *why) {
        return Error::make(Code::invalid_argument, "QCCL_RECORD: %.200s: %s", folder.c_str(), why);
    };
    struct stat found {};
    if (stat(folder.c_str(), &found) != 0) return in_vain(std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return in_vain(std::strerror(ENOTDIR));
    if (access(folder.c_str(), W_OK | X_OK) != 0) return in_vain(std::strerror(errno));
    return {};
}

} // namespace

Done check_settings(const CommWishes &wishes, const Settings &settings) {
    QCCL_TRY(check_arena(settings.arena_bytes.value_or(smallest_arena)));
    const auto &record = settings.record;
    if (record && *record != record_off) QCCL_TRY(check_record_folder(*record));
    return check_reproducible(algorithm_of(wishes, settings), is_reproducible(wishes, settings));
}

} // namespace qccl
