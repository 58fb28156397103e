// What this machine is called where figures that were measured on it are kept, and where they are.
// Used where a communicator is made and by the tools. Reads a few small files; any thread.
#pragma once

#include <string>

namespace qccl {

// As the processor calls itself.
std::string processor_name();

// "AMD EPYC 9B14, 8 cores, ports of 25 and 200 Gbit/s": what decides how fast a machine computes
// and sends, and stays when it is started again. Machines of one kind have one identity.
std::string machine_identity();

// The file of the machine's measured figures in the user's cache directory (XDG_CACHE_HOME, or
// .cache in HOME), which need not be there. Empty where the user has no such directory.
std::string calibration_path();

} // namespace qccl
