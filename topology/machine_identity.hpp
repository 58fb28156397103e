// The name under which figures measured on this machine are kept, and the file that keeps them.
// Communicator creation and the tools use it. It reads a few small files; any thread may call it.
#pragma once

#include <string>

namespace qccl {

// Returns the model name that the processor gives.
std::string processor_name();

// Returns for example "AMD EPYC 9B14, 8 cores, ports of 25 and 200 Gbit/s": what decides how fast a
// machine computes and sends, and does not change at a restart. Machines of one kind have one
// identity.
std::string machine_identity();

// Returns the path of the file with the machine's measured figures in the user's cache directory
// (XDG_CACHE_HOME, or .cache in HOME). The file need not exist. Empty if the user has no such
// directory.
std::string calibration_path();

} // namespace qccl
