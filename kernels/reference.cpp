#include "kernels/kernels.hpp"
