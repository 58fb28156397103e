// What ranks say beside their calls, to and from other hosts.
#include "transport/courier.hpp"
#include "transport/notice.hpp"

namespace qccl {

void Courier::post_notice(uint32_t number, uint64_t version, std::span<const std::byte> bytes,
                          std::span<const uint32_t> far_ranks) {
    const std::lock_guard guard(mutex_);
    Letter notice = letter(LetterKind::notice);
    notice.tag.instance = number;
    notice.exchange = version;
    // The next of that number may have to be written before this one has gone to all.
    const uint64_t token = copy_token | ++copies_;
    UnsentCopy &unsent = unsent_copies_[token];
    unsent.bytes.assign(bytes.begin(), bytes.end());
    unsent.letters = far_ranks.size() + 1;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    for (const uint32_t rank : far_ranks) post(rank, notice, std::span(&part, 1), token);
    unsent_++;
    sent(token); // the one beyond, which has kept the bytes until here
    progress_locked();
}

// Short enough to come by themselves; what does not is no notice of a rank of ours.
void Courier::take_notice(const Letter &letter, const void *data, uint64_t bytes) {
    const Segment &segment = party_.segments[letter.from];
    const uint32_t number = letter.tag.instance;
    if (number >= notices_kept || !data || bytes > segment.notice_words(number).size_bytes())
        return;
    if (letter.exchange <= version_of_notice(segment, number)) return;
    write_notice(segment, number, letter.exchange,
                 std::span(static_cast<const std::byte *>(data), bytes));
}

} // namespace qccl
