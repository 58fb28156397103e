// Implements the calling thread's last error, structs that grow from release to release, and
// qcclConfigInit. Checks that the C result codes equal Code.
#include "comm/boundary.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace qccl {

// ---- Errors out

// The C header repeats these numbers, because C cannot use the library's table of codes.
static_assert(qcclSuccess == to_c(Code::success));
static_assert(qcclUnhandledDeviceError == to_c(Code::unhandled_device_error));
static_assert(qcclSystemError == to_c(Code::system_error));
static_assert(qcclInternalError == to_c(Code::internal_error));
static_assert(qcclInvalidArgument == to_c(Code::invalid_argument));
static_assert(qcclInvalidUsage == to_c(Code::invalid_usage));
static_assert(qcclRemoteError == to_c(Code::remote_error));
static_assert(qcclInProgress == to_c(Code::in_progress));
static_assert(qcclTimeout == to_c(Code::timeout));
static_assert(qcclMismatch == to_c(Code::mismatch));
static_assert(qcclPeerLost == to_c(Code::peer_lost));
static_assert(qcclRevoked == to_c(Code::revoked));
static_assert(qcclDamagedData == to_c(Code::damaged_data));

LastError &last_error() {
    static constinit thread_local LastError last;
    return last;
}

qcclResult_t report(const Error &error) {
    if (error.code != Code::in_progress) last_error().error = error; // in_progress is no error
    return to_c(error.code);
}

Done give_text(const std::string &text, char *buffer, size_t *bytes) {
    const size_t room = *bytes, needed = text.size() + 1;
    *bytes = needed;
    if (!buffer) return {};
    if (room < needed)
        return Error::make(Code::invalid_argument, "buffer has %zu bytes, but the text needs %zu",
                           room, needed)
            .compared(static_cast<int64_t>(needed), static_cast<int64_t>(room));
    std::memcpy(buffer, text.c_str(), needed);
    return {};
}

// ---- Structs in and out

// No release has a struct this large, so no initialiser wrote a larger size.
static constexpr size_t most_struct_bytes = 4096;

// The first fields of every config, in every release.
namespace {
struct Lead {
    size_t size;
    uint32_t magic;
    uint32_t version;
};
} // namespace
static_assert(offsetof(qcclConfig_t, magic) == offsetof(Lead, magic));
static_assert(offsetof(qcclCollConfig_t, version) == offsetof(Lead, version));

const StructRule config_rule{"qcclConfig_t",
                             "QCCL_CONFIG_INIT",
                             160, // release 0.1
                             sizeof(qcclConfig_t),
                             offsetof(qcclConfig_t, reserved),
                             sizeof(qcclConfig_t)};
const StructRule coll_config_rule{"qcclCollConfig_t",
                                  "QCCL_COLL_CONFIG_INIT",
                                  112, // release 0.1
                                  sizeof(qcclCollConfig_t),
                                  offsetof(qcclCollConfig_t, reserved),
                                  sizeof(qcclCollConfig_t)};

const StructRule state_config_rule{"qcclStateConfig_t",
                                   "QCCL_STATE_CONFIG_INIT",
                                   64, // release 0.1
                                   sizeof(qcclStateConfig_t),
                                   offsetof(qcclStateConfig_t, reserved),
                                   sizeof(qcclStateConfig_t)};

static size_t first_nonzero(const std::byte *bytes, size_t begin, size_t end) {
    static constexpr std::byte zeros[128]{};
    // The range of an ordinary call is compared with a few instructions.
    if (end - begin <= sizeof zeros && std::memcmp(bytes + begin, zeros, end - begin) == 0)
        return end;
    const auto *found =
        std::find_if(bytes + begin, bytes + end, [](std::byte b) { return b != std::byte{0}; });
    return static_cast<size_t>(found - bytes);
}

Done take_struct(const StructRule &rule, const void *given, void *known) {
    Lead lead;
    std::memcpy(&lead, given, sizeof lead);
    if (lead.magic != QCCL_CONFIG_MAGIC)
        return invalid_argument("config: magic is 0x%08X, not 0x%08X; initialise a %s with %s or "
                                "qcclConfigInit",
                                lead.magic, QCCL_CONFIG_MAGIC, rule.name, rule.initialiser)
            .compared(QCCL_CONFIG_MAGIC, lead.magic);
    if (lead.size < rule.first_bytes || lead.size > most_struct_bytes)
        return invalid_argument(
                   "config: size is %zu, but a %s has %zu bytes; initialise it with %s or "
                   "qcclConfigInit",
                   lead.size, rule.name, rule.bytes, rule.initialiser)
            .compared(static_cast<int64_t>(rule.bytes), static_cast<int64_t>(lead.size));

    const auto *bytes = static_cast<const std::byte *>(given);
    const size_t common = std::min(lead.size, rule.bytes);
    size_t unknown = first_nonzero(bytes, rule.reserved_begin, std::min(common, rule.reserved_end));
    if (unknown == std::min(common, rule.reserved_end))
        unknown = first_nonzero(bytes, common, lead.size);
    if (unknown < lead.size)
        return invalid_argument("config: byte %zu of the %s (made for version %u) is set, but this "
                                "library, version %d, has no field there",
                                unknown, rule.name, lead.version, QCCL_VERSION);
    std::memcpy(known, given, common);
    return {};
}

Result<qcclConfig_t> take_config(const qcclConfig_t *given) {
    qcclConfig_t known = QCCL_CONFIG_INIT;
    if (given) QCCL_TRY(take_struct(config_rule, given, &known));
    return known;
}

Result<qcclCollConfig_t> take_config(const qcclCollConfig_t *given) {
    qcclCollConfig_t known = QCCL_COLL_CONFIG_INIT;
    if (given) QCCL_TRY(take_struct(coll_config_rule, given, &known));
    return known;
}

Result<qcclStateConfig_t> take_config(const qcclStateConfig_t *given) {
    qcclStateConfig_t known = QCCL_STATE_CONFIG_INIT;
    if (given) QCCL_TRY(take_struct(state_config_rule, given, &known));
    return known;
}

Result<std::optional<std::chrono::nanoseconds>> take_timeout(const char *field, double seconds) {
    using std::chrono::nanoseconds;
    constexpr double century = 100.0 * 365 * 86400; // more overflows when added to a clock
    if (std::isnan(seconds)) return invalid_argument("config: %s is not a number", field);
    if (seconds == 0) return std::optional<nanoseconds>();
    if (seconds < 0) return std::optional(nanoseconds(0));
    const int64_t ns = std::llround(std::min(seconds, century) * 1e9);
    return std::optional(nanoseconds(std::max<int64_t>(1, ns)));
}

Done give_struct(const char *name, const void *known, size_t known_bytes, size_t first_bytes,
                 void *out) {
    size_t size;
    std::memcpy(&size, out, sizeof size);
    if (size < first_bytes || size > most_struct_bytes)
        return invalid_argument(
                   "size is %zu, but a %s has %zu bytes; set size to sizeof(%s) before "
                   "the call",
                   size, name, known_bytes, name)
            .compared(static_cast<int64_t>(known_bytes), static_cast<int64_t>(size));
    std::memset(out, 0, size);
    std::memcpy(out, known, std::min(size, known_bytes));
    std::memcpy(out, &size, sizeof size);
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclConfigInit(void *config, size_t size) {
    return guarded([=]() -> Done {
        if (!config) return invalid_argument("config is NULL");
        if (size < std::min({config_rule.first_bytes, coll_config_rule.first_bytes,
                             state_config_rule.first_bytes}) ||
            size > most_struct_bytes)
            return invalid_argument("size is %zu, but a qcclConfig_t has %zu bytes, a "
                                    "qcclCollConfig_t %zu and a qcclStateConfig_t %zu",
                                    size, config_rule.bytes, coll_config_rule.bytes,
                                    state_config_rule.bytes);
        std::memset(config, 0, size);
        const Lead lead{size, QCCL_CONFIG_MAGIC, QCCL_VERSION};
        std::memcpy(config, &lead, sizeof lead);
        return {};
    });
}
QCCL_TWIN(qcclConfigInit);
