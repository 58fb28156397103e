#include "api/own_agreement.hpp"

namespace qccl {

Agreement agreement_of(const CommWishes &wishes, const Settings &settings, const CallPolicy &policy,
                       const std::string &host, Tier tier) {
    Agreement mine;
    Agreement::set(mine.host, host);
    Agreement::set(mine.node, settings.node.value_or(""));
    Agreement::set(mine.rack, settings.rack.value_or(""));
    Agreement::set(mine.device, wishes.device);
    Agreement::set(mine.codec, policy.codec_text());
    Agreement::set(mine.algorithm, policy.algorithm_text());
    Agreement::set(mine.plan, policy.plan_text());
    Agreement::set(mine.checksum, settings.checksum ? "1" : "0");
    Agreement::set(mine.reproducible, is_reproducible(wishes, settings) ? "1" : "0");
    Agreement::set(mine.segment, settings.as_written("QCCL_SEGMENT"));
    Agreement::set(mine.lanes, settings.as_written("QCCL_LANES"));
    Agreement::set(mine.arena, settings.as_written("QCCL_ARENA"));
    Agreement::set(mine.oneshot_max, settings.as_written("QCCL_ONESHOT_MAX"));
    Agreement::set(mine.link_latency, settings.as_written("QCCL_LINK_LATENCY"));
    Agreement::set(mine.link_rate, settings.as_written("QCCL_LINK_RATE"));
    Agreement::set(mine.rack_rate, settings.as_written("QCCL_RACK_RATE"));
    mine.codec_rates = CodecRates::of_tier(name(tier));
    return mine;
}

} // namespace qccl
