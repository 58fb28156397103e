// Sends and receives: checks, and the way from a tensor to the Messenger.
#include "argument_checks.hpp"
#include "backend_resources.hpp"
#include "tensor_blocks.hpp"
#include "torch_backend.hpp"

namespace qccl_torch {

using c10d::OpType;

namespace {

void check_message(const Refuse &refuse, const std::vector<at::Tensor> &tensors, int tag) {
    c10d::assertSingleElement(refuse, tensors);
    check_dense_on_cpu(refuse, tensors);
    if (tag < 0) refuse("Tag must be nonnegative, but is " + std::to_string(tag));
}

void check_peer(const Refuse &refuse, int peer, int own_rank, int size) {
    if (peer < 0 || peer >= size) refuse("invalid rank: " + std::to_string(peer));
    if (peer == own_rank) refuse("a rank cannot send to itself or receive from itself");
}

} // namespace

void QcclBackend::add_to_coalesced(const c10::intrusive_ptr<QcclWork> &message) {
    const std::lock_guard lock(coalescing_mutex_);
    if (coalesced_) coalesced_messages_.push_back(message);
}

QcclBackend::WorkRef QcclBackend::send(Tensors &tensors, int dest, int tag) {
    begin_call();
    const Refuse refuse = refuse_for("qccl send");
    check_message(refuse, tensors, tag);
    check_peer(refuse, dest, rank_, size_);
    auto block = std::make_shared<DenseBlock>(tensors.front());
    block->load();
    auto work =
        c10::make_intrusive<MessageWork>(rank_, ++sequence_number_,
                                         CallDescription{.type = OpType::SEND,
                                                         .title = "qccl:send",
                                                         .inputs = tensors,
                                                         .outputs = {tensors},
                                                         .timeout = Milliseconds(limit_ms_)},
                                         resources_->callbacks);
    add_to_coalesced(work);
    resources_->messenger->send(block->data(), block->nbytes(), dest, tag, Milliseconds(limit_ms_),
                                [work, block](std::exception_ptr error, int) {
                                    work->complete_from(-1, std::move(error));
                                });
    return work;
}

QcclBackend::WorkRef QcclBackend::recv(Tensors &tensors, int source, int tag) {
    check_peer(refuse_for("qccl recv"), source, rank_, size_);
    return receive(tensors, source, tag, {.type = OpType::RECV, .title = "qccl:recv"});
}

QcclBackend::WorkRef QcclBackend::recvAnysource(Tensors &tensors, int tag) {
    return receive(tensors, any_source, tag,
                   {.type = OpType::RECVANYSOURCE, .title = "qccl:recvAnySource"});
}

QcclBackend::WorkRef QcclBackend::receive(Tensors &tensors, int source, int tag,
                                          CallDescription description) {
    begin_call();
    check_message(refuse_for("qccl recv"), tensors, tag);
    description.inputs = tensors; // profiles show their sizes
    description.outputs = {tensors};
    description.timeout = Milliseconds(limit_ms_);
    auto block = std::make_shared<DenseBlock>(tensors.front());
    auto work = c10::make_intrusive<MessageWork>(rank_, ++sequence_number_, std::move(description),
                                                 resources_->callbacks);
    add_to_coalesced(work);
    const auto done = [work, block](std::exception_ptr error, int sender) {
        if (!error) block->store();
        work->complete_from(sender, std::move(error));
    };
    const uint64_t number =
        resources_->messenger->receive(block->data(), block->nbytes(), source, tag, done);
    work->set_cancel(
        [messenger = std::weak_ptr(resources_->messenger), number](std::exception_ptr reason) {
            if (const auto alive = messenger.lock()) alive->cancel(number, std::move(reason));
        });
    return work;
}

} // namespace qccl_torch
