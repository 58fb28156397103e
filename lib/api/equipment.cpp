#include "api/equipment.hpp"

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

Result<Equipment> equip(uint32_t rank, const CommWishes &wishes, const Surroundings &surroundings) {
    QCCL_TRY(surroundings.readable);
    QCCL_TRY(surroundings.rules_readable);
    QCCL_TRY(check_settings(wishes, surroundings));
    QCCL_TRY(outcome(trace_patterns(surroundings.settings)));
    QCCL_TRY(auto log, create_log(wishes, surroundings.settings, rank));
    QCCL_TRY(const uint32_t tiers, allowed_tiers(surroundings.settings));
    QCCL_TRY(std::string host, host_identity(surroundings.settings));
    // Here, where the others hear of it, as nothing may fail when the communicator is made.
    QCCL_TRY(outcome(begin_epoch()));
    Device device = host_device(tiers);
    QCCL_TRY(auto gpu, open_gpu(wishes.device));
    if (gpu) device = gpu_device(device, std::move(gpu));
    FoundCalibration found;
    if (rank == 0 && !surroundings.is_offspring) {
        QCCL_TRY(found, find_calibration(surroundings.settings));
    }
    if (!found.warning.empty()) log->warn("%s", found.warning.c_str());
    if (found.file) log->info("calibration from %s", found.path.c_str());
    return Equipment{std::move(log), std::move(device), std::move(host), std::move(found.file)};
}

} // namespace qccl
