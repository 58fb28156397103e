// Draws bytes with getrandom and writes them as hexadecimal digits.
#include "base/random_names.hpp"

#include "base/system.hpp"

#include <cstdint>
#include <cstring>

#include <sys/random.h>

namespace qccl {

Done draw_bytes(std::span<std::byte> bytes) {
    if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return {};
    return cannot("get random bytes");
}

Result<AbstractName> draw_name() {
    AbstractName name;
    std::array<std::byte, std::tuple_size_v<AbstractName> / 2> noise;
    QCCL_TRY(draw_bytes(noise));
    for (size_t i = 0; i < name.size(); i++)
        name[i] = "0123456789abcdef"[std::to_integer<unsigned>(noise[i / 2]) >> (i % 2 * 4) & 15];
    return name;
}

// A leading zero byte in sun_path selects the abstract name space.
AbstractAddress::AbstractAddress(const AbstractName &name) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data(), name.size());
}

} // namespace qccl
