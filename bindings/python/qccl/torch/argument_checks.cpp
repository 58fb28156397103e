// Words of torch's own checks, where torch has the check.
#include "argument_checks.hpp"

#include <c10/util/Exception.h>

namespace qccl_torch {

Refuse refuse_for(const char *call) {
    return [call](const std::string &reason) { TORCH_CHECK(false, call, ": ", reason); };
}

void check_on_cpu(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors) {
    for (const at::Tensor &tensor : tensors)
        if (!tensor.device().is_cpu())
            refuse("unsupported device type " + tensor.device().str() +
                   ": this backend takes tensors on the CPU");
}

void check_dense_on_cpu(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors) {
    check_on_cpu(refuse, tensors);
    for (const at::Tensor &tensor : tensors)
        if (tensor.layout() != at::kStrided)
            refuse("unsupported layout " + c10d::toString(tensor.layout()) +
                   ": the call takes dense tensors");
}

void check_alike(const Refuse &refuse, at::ArrayRef<at::Tensor> tensors,
                 const at::Tensor &expected) {
    c10d::assertTypeAndSizesMatch(refuse, tensors, expected.options(), expected.sizes());
}

void check_whole(const Refuse &refuse, const at::Tensor &whole, const at::Tensor &block,
                 int64_t blocks, const char *name_of_whole, const char *name_of_block) {
    if (whole.scalar_type() != block.scalar_type())
        refuse(std::string(name_of_whole) + " tensor must have the same type as " + name_of_block +
               " tensor");
    if (whole.numel() != block.numel() * blocks)
        refuse(std::string(name_of_whole) + " tensor size must be equal to world_size times " +
               name_of_block + " tensor size");
}

} // namespace qccl_torch
