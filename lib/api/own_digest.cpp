// Fills this rank's SettingsDigest from its config and settings.
#include "api/own_digest.hpp"

namespace qccl {

SettingsDigest digest_of(const CommConfig &comm_config, const Settings &settings,
                         const CallPolicy &policy, const std::string &host, Tier tier) {
    SettingsDigest mine;
    SettingsDigest::set(mine.host, host);
    SettingsDigest::set(mine.node, settings.node.value_or(""));
    SettingsDigest::set(mine.rack, settings.rack.value_or(""));
    SettingsDigest::set(mine.device, comm_config.device);
    SettingsDigest::set(mine.codec, policy.codec_text());
    SettingsDigest::set(mine.algorithm, policy.algorithm_text());
    SettingsDigest::set(mine.plan, policy.plan_text());
    SettingsDigest::set(mine.checksum, settings.checksum ? "1" : "0");
    SettingsDigest::set(mine.reproducible, is_reproducible(comm_config, settings) ? "1" : "0");
    SettingsDigest::set(mine.segment, settings.as_written("QCCL_SEGMENT"));
    SettingsDigest::set(mine.lanes, settings.as_written("QCCL_LANES"));
    SettingsDigest::set(mine.arena, settings.as_written("QCCL_ARENA"));
    SettingsDigest::set(mine.oneshot_max, settings.as_written("QCCL_ONESHOT_MAX"));
    SettingsDigest::set(mine.link_latency, settings.as_written("QCCL_LINK_LATENCY"));
    SettingsDigest::set(mine.link_rate, settings.as_written("QCCL_LINK_RATE"));
    SettingsDigest::set(mine.rack_rate, settings.as_written("QCCL_RACK_RATE"));
    mine.codec_rates = CodecRates::of_tier(name(tier));
    return mine;
}

} // namespace qccl
