// Copies bypass autograd: the program has given its tensors to the call, as it would give them to a
// write by QCCL itself.
#include "tensor_blocks.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace qccl_torch {

namespace {

void copy_values(const at::Tensor &to, const at::Tensor &from) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    to.copy_(from);
}

// A view that stands for the conjugates or the negatives of its memory is not its memory.
at::Tensor dense_memory_of(const at::Tensor &tensor, bool is_copied) {
    if (!is_copied && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg())
        return tensor;
    return at::empty(tensor.sizes(), tensor.options().requires_grad(false));
}

} // namespace

DenseBlock::DenseBlock(at::Tensor tensor, bool is_copied)
    : tensor_(std::move(tensor)), dense_(dense_memory_of(tensor_, is_copied)) {}

void DenseBlock::load() {
    if (!dense_.is_same(tensor_)) copy_values(dense_, tensor_);
}

void DenseBlock::store() const {
    if (!dense_.is_same(tensor_)) copy_values(tensor_, dense_);
}

bool do_overlap(at::ArrayRef<at::Tensor> tensors) {
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    for (const at::Tensor &tensor : tensors) {
        const auto start = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
        if (tensor.numel() != 0) ranges.emplace_back(start, start + tensor.nbytes());
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); i++)
        if (ranges[i].first < ranges[i - 1].second) return true;
    return false;
}

BlockList::BlockList(const std::vector<at::Tensor> &tensors, size_t unit, bool is_written) {
    for (const at::Tensor &tensor : tensors) blocks_.emplace_back(tensor);
    if (!lay_out(unit, is_written)) use_one_buffer(tensors, unit);
}

// Returns false if the tensors cannot be the parts: for numbers of elements as displacements, all
// addresses must be a multiple of an element apart.
bool BlockList::lay_out(size_t unit, bool is_written) {
    const auto address = [](const DenseBlock &block) {
        return reinterpret_cast<uintptr_t>(block.data());
    };
    std::vector<const DenseBlock *> in_memory;
    for (const DenseBlock &block : blocks_)
        if (block.nbytes() != 0) in_memory.push_back(&block);
    std::sort(in_memory.begin(), in_memory.end(),
              [&](const auto *one, const auto *other) { return address(*one) < address(*other); });
    for (size_t i = 1; i < in_memory.size(); i++) {
        const uintptr_t distance = address(*in_memory[i]) - address(*in_memory[i - 1]);
        if (distance % unit != 0 || (is_written && distance < in_memory[i - 1]->nbytes()))
            return false;
    }
    base_ = in_memory.empty() ? nullptr : static_cast<std::byte *>(in_memory.front()->data());
    for (const DenseBlock &block : blocks_) {
        counts_.push_back(block.nbytes() / unit);
        const bool is_empty = block.nbytes() == 0;
        displs_.push_back(is_empty ? 0
                                   : (address(block) - reinterpret_cast<uintptr_t>(base_)) / unit);
    }
    return true;
}

void BlockList::use_one_buffer(const std::vector<at::Tensor> &tensors, size_t unit) {
    blocks_.clear();
    tensors_ = tensors;
    int64_t total = 0;
    for (const at::Tensor &tensor : tensors) total += tensor.numel();
    buffer_ = at::empty({total}, tensors.front().options().requires_grad(false));
    int64_t start = 0;
    for (const at::Tensor &tensor : tensors) {
        slices_.push_back(buffer_.narrow(0, start, tensor.numel()).view(tensor.sizes()));
        displs_.push_back(static_cast<size_t>(start * buffer_.element_size()) / unit);
        counts_.push_back(tensor.nbytes() / unit);
        start += tensor.numel();
    }
    base_ = static_cast<std::byte *>(buffer_.data_ptr());
}

void BlockList::load() {
    for (DenseBlock &block : blocks_) block.load();
    for (size_t i = 0; i < slices_.size(); i++) copy_values(slices_[i], tensors_[i]);
}

void BlockList::store() const {
    for (const DenseBlock &block : blocks_) block.store();
    for (size_t i = 0; i < slices_.size(); i++) copy_values(tensors_[i], slices_[i]);
}

} // namespace qccl_torch
