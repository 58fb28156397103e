// Creates a communicator's log and forwards its lines to the callback of the config.
#include "api/comm_log.hpp"

namespace qccl {

// Calls the C callback, whose levels count from 1.
static void forward_line(LogLevel level, const char *line, void *context) {
    const auto *log = static_cast<const qcclLog_t *>(context);
    log->function(static_cast<int32_t>(level) + 1, line, log->context);
}

Result<std::shared_ptr<const Log>> create_log(const CommConfig &comm_config,
                                              const Settings &settings, uint32_t rank) {
    auto callback = std::make_shared<qcclLog_t>(comm_config.log);
    LogOptions options{
        .level = settings.debug, .file = settings.debug_file, .rank = static_cast<int32_t>(rank)};
    if (callback->function) {
        options.callback = forward_line;
        options.context = callback.get();
        if (options.file == "stderr") options.file.clear(); // the user asked for no file
    }
    QCCL_TRY(std::unique_ptr<Log> log, Log::create(options));
    return std::shared_ptr<const Log>(log.release(),
                                      [callback](const Log *finished) { delete finished; });
}

} // namespace qccl
