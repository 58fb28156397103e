// The composition root: the one place of the library that names what `kernels`, `topology` and
// `bootstrap` implement. Used by the C functions; any thread. C functions reach bootstrap's
// functions through this header; those that return a Bootstrap block as bootstrap/bootstraps.hpp
// says.
#pragma once

#include "bootstrap/bootstraps.hpp"
#include "comm/implementations.hpp"

#include <span>

namespace qccl {

Implementations implementations();

} // namespace qccl
