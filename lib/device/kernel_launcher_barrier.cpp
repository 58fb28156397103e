// Implements KernelLauncher's flag barrier between GPUs, and the condition on the launches behind
// it.
#include "device/kernel_launcher.hpp"

#include <algorithm>
#include <array>

namespace qccl {

Done KernelLauncher::meet(const Barrier &barrier) {
    if (barrier.others.size() > Barrier::most_others)
        return Error::make(Code::internal_error, "%zu GPUs do not meet", barrier.others.size());
    const auto word = [](uint64_t *at) {
        return Operand{.type = DataType::uint64, .at = reinterpret_cast<std::byte *>(at)};
    };
    std::array<Operand, Batch::most_operands> operands;
    operands[0] = word(barrier.met);
    operands[1] = word(barrier.met_on_host);
    std::ranges::transform(barrier.others, operands.begin() + 2, word);
    Operand own = word(barrier.own_words);
    own.coded = barrier.value;
    own.begin = barrier.looks;
    QCCL_TRY(flush());
    QCCL_TRY(
        add({KernelId::meet}, 1, {}, own, std::span(operands).first(2 + barrier.others.size())));
    return flush();
}

Done KernelLauncher::await(const uint64_t *word, uint64_t value) {
    QCCL_TRY(flush());
    batch_.awaited_word = word;
    batch_.awaited = value;
    return {};
}

} // namespace qccl
