// Checks of the tensors that the program passes, beside those of torch/csrc/distributed/c10d/
// Utils.hpp. A wrong argument is a c10::Error, Python's RuntimeError, which names the call. The
// files that make calls use it, on the program's thread; nothing blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <functional>
#include <string>
#include <vector>

namespace qccl_torch {

using Refuse = std::function<void(const std::string &reason)>;

// Makes the function that throws for a call of this name.
Refuse refuse_for(const char *call);

// All tensors are dense and on the CPU.
void check_dense_on_cpu(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors);
void check_on_cpu(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors);
// All tensors have the type and the sizes of `expected`.
void check_alike(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors,
                 const at::Tensor &expected);
// `whole` has the type of `block`, and as many elements as `blocks` of it.
void check_whole(const Refuse &refuse, const at::Tensor &whole, const at::Tensor &block,
                 int64_t blocks, const char *name_of_whole, const char *name_of_block);

} // namespace qccl_torch
