// Opens the log, the device and the calibration of a rank.
#include "api/local_resources.hpp"

#include "api/comm_log.hpp"
#include "api/comm_trace.hpp"
#include "api/fork_detector.hpp"
#include "base/host_identity.hpp"
#include "api/setting_checks.hpp"
#include "api/tiers.hpp"
#include "device/gpu_device.hpp"
#include "device/host.hpp"
#include "device/loader.hpp"
#include "topology/calibration_source.hpp"

namespace qccl {

Result<LocalResources> open_local_resources(uint32_t rank, const CommConfig &comm_config,
                                            const EnvSettings &env_settings) {
    QCCL_TRY(env_settings.readable);
    QCCL_TRY(env_settings.rules_readable);
    QCCL_TRY(check_settings(comm_config, env_settings));
    QCCL_TRY(outcome(trace_patterns(env_settings.settings)));
    QCCL_TRY(auto log, create_log(comm_config, env_settings.settings, rank));
    QCCL_TRY(const uint32_t tiers, allowed_tiers(env_settings.settings));
    QCCL_TRY(std::string host, host_identity(env_settings.settings));
    // Done here, where the other ranks learn of an error, because handles must not fail for it once
    // the communicator exists.
    QCCL_TRY(outcome(begin_epoch()));
    Device device = host_device(tiers);
    QCCL_TRY(auto gpu, open_gpu(comm_config.device));
    if (gpu) device = gpu_device(device, std::move(gpu));
    FoundCalibration found;
    if (rank == 0 && !env_settings.is_child) {
        QCCL_TRY(found, find_calibration(env_settings.settings));
    }
    if (!found.warning.empty()) log->warn("%s", found.warning.c_str());
    if (found.file) log->info("calibration from %s", found.path.c_str());
    return LocalResources{std::move(log), std::move(device), std::move(host),
                          std::move(found.file)};
}

} // namespace qccl
