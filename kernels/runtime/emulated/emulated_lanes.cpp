// The GPU kernels, compiled for the emulated GPU. The build compiles this file once for each number
// of lanes.
#include "kernels/gpu/codec_kernels.cu"
