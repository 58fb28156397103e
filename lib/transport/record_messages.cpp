// Sends the seqlock records of this rank to other hosts and receives theirs.
#include "transport/remote_endpoint.hpp"
#include "transport/seqlock_record.hpp"

namespace qccl {

void RemoteEndpoint::send_record(uint32_t number, uint64_t version,
                                 std::span<const std::byte> bytes,
                                 std::span<const uint32_t> remote_ranks) {
    const std::lock_guard guard(mutex_);
    MessageHeader notice = header(MessageKind::record);
    notice.tag.instance = number;
    notice.exchange = version;
    // The next version of this record may have to be written before this one has gone to all.
    const uint64_t token = copy_token | ++copies_;
    UnsentCopy &unsent = unsent_copies_[token];
    unsent.bytes.assign(bytes.begin(), bytes.end());
    unsent.messages = remote_ranks.size() + 1;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    for (const uint32_t rank : remote_ranks) post(rank, notice, std::span(&part, 1), token);
    unsent_++;
    on_sent(token); // the extra count, which has kept the bytes until here
    progress_locked();
}

// A record is short enough to be sent eagerly; one that is not comes from no rank of this
// communicator.
void RemoteEndpoint::take_record(const MessageHeader &header, const void *data, uint64_t bytes) {
    const Segment &segment = peer_table_.segments[header.from];
    const uint32_t number = header.tag.instance;
    if (number >= records_kept || !data || bytes > segment.record_words(number).size_bytes())
        return;
    if (header.exchange <= version_of_record(segment, number)) return;
    write_record(segment, number, header.exchange,
                 std::span(static_cast<const std::byte *>(data), bytes));
}

} // namespace qccl
