// Implements env_rank_group.hpp: joins the rendezvous and splits large exchanges into pieces.
#include "perf/env_rank_group.hpp"

#include "base/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <unistd.h>

namespace qccl::perf {

// Bytes of one rank in one exchange; the rendezvous limits the size of an exchange.
static constexpr size_t most_bytes_at_once = size_t{64} << 10;

Result<std::unique_ptr<EnvRankGroup>> EnvRankGroup::join() {
    QCCL_TRY(const Settings settings, read_settings(environ));
    EnvironmentOptions options;
    options.rendezvous.timeout = settings.timeout;
    options.rendezvous.interface = settings.socket_interface.value_or("");
    options.rendezvous.warn = [](const char *sentence) {
        std::fprintf(stderr, "qccl-perf: %s\n", sentence);
    };
    if (settings.port) options.port = static_cast<uint16_t>(*settings.port);
    options.secret_file = settings.secret_file;
    QCCL_TRY(auto bootstrap, join_environment(environ, options));
    return std::unique_ptr<EnvRankGroup>(new EnvRankGroup(std::move(bootstrap)));
}

Done EnvRankGroup::allgather(const void *mine, void *all, size_t bytes) {
    if (!bootstrap_) return Error::make(Code::invalid_usage, "this rank has given up");
    if (bytes <= most_bytes_at_once) return bootstrap_->all_gather(mine, all, bytes);
    std::vector<std::byte> pieces(size_ * most_bytes_at_once);
    for (size_t done = 0; done < bytes; done += most_bytes_at_once) {
        const size_t piece = std::min(most_bytes_at_once, bytes - done);
        QCCL_TRY(bootstrap_->all_gather(static_cast<const std::byte *>(mine) + done, pieces.data(),
                                        piece));
        for (size_t peer = 0; peer < size_; peer++)
            std::memcpy(static_cast<std::byte *>(all) + peer * bytes + done,
                        pieces.data() + peer * piece, piece);
    }
    return {};
}

} // namespace qccl::perf
