// Launches by which GPUs meet, and those that wait for it.
#include "kernels/launches.hpp"

#include <algorithm>
#include <array>

namespace qccl {

Done Launches::meet(const Meeting &meeting) {
    if (meeting.others.size() > Meeting::most_others)
        return Error::make(Code::internal_error, "%zu GPUs do not meet", meeting.others.size());
    const auto word = [](uint64_t *at) {
        return Operand{.type = DataType::uint64, .at = reinterpret_cast<std::byte *>(at)};
    };
    std::array<Operand, Batch::most_operands> operands;
    operands[0] = word(meeting.met);
    operands[1] = word(meeting.met_on_host);
    std::ranges::transform(meeting.others, operands.begin() + 2, word);
    Operand own = word(meeting.own_words);
    own.coded = meeting.value;
    own.begin = meeting.looks;
    QCCL_TRY(flush());
    QCCL_TRY(
        add({KernelId::meet}, 1, {}, own, std::span(operands).first(2 + meeting.others.size())));
    return flush();
}

Done Launches::await(const uint64_t *word, uint64_t value) {
    QCCL_TRY(flush());
    batch_.awaited_word = word;
    batch_.awaited = value;
    return {};
}

} // namespace qccl
