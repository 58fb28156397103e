// Draws abstract names and builds socket addresses from them.
#include "net/random_name.hpp"

#include <cstring>

namespace qccl {

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
