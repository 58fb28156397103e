// The GPU's kernels as the CPU compiles them: once for each number of lanes, which the build says.
#include "kernels/codec_kernels.cu"
