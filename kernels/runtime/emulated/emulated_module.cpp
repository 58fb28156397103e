// The module of the emulated GPUs: module.cu, compiled by the CPU's compiler.
#include "kernels/runtime/module.cu"
