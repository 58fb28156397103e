// Memory of tensors as QCCL's calls need it: dense, and lists of tensors as the parts of one
// buffer. Tensors that are not dense get a copy, which is filled before the call and copied back
// after it.
//
// A call makes its blocks on the program's thread, and fills and copies on the thread that makes
// the call. No function blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace qccl_torch {

// One tensor.
class DenseBlock {
public:
    // `is_copied`: use a copy even of a dense tensor.
    explicit DenseBlock(at::Tensor tensor, bool is_copied = false);
    void load();        // fills the copy, if there is one
    void store() const; // copies back
    void *data() const { return dense_.data_ptr(); }
    size_t numel() const { return static_cast<size_t>(dense_.numel()); }
    size_t nbytes() const { return dense_.nbytes(); }
    at::Tensor &dense() { return dense_; }

private:
    at::Tensor tensor_, dense_;
};

// Whether tensors may share memory, as those of a list in which the program repeats one.
bool do_overlap(at::ArrayRef<at::Tensor> tensors);

// A list of tensors of one type, in the order of their ranks, as the parts of a v-form. The parts
// lie where the tensors are: a displacement is the distance of a tensor from the one with the
// lowest address.
class BlockList {
public:
    // `unit`: bytes of a value of the call. Parts that are written may not overlap; tensors that do
    // are copied.
    BlockList(const std::vector<at::Tensor> &tensors, size_t unit, bool is_written);
    void load();
    void store() const;
    void *base() const { return base_; }
    const size_t *counts() const { return counts_.data(); }
    const size_t *displs() const { return displs_.data(); }

private:
    bool lay_out(size_t unit, bool is_written);
    void use_one_buffer(const std::vector<at::Tensor> &tensors, size_t unit);

    std::vector<DenseBlock> blocks_;
    at::Tensor buffer_; // of all parts, if the tensors cannot be the parts themselves
    std::vector<at::Tensor> tensors_, slices_;
    std::byte *base_ = nullptr;
    std::vector<size_t> counts_, displs_;
};

} // namespace qccl_torch
