// The emulated GPUs' module, as the CPU's compiler reads it.
#include "kernels/module.cu"
