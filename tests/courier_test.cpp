// transport/courier: letters that are not the ranks' own change nothing.
#include "transport_ways.hpp"

#include "transport/letter.hpp"

using namespace qccl;
using namespace qtest;

namespace {

// Whoever finds a rank's port can write to it, but does not know the ranks' session; and no rank
// gets letters from its own host.
void strangers_letters_are_thrown_away() {
    run_ranks(Kind::inproc_pairs, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mail));
        rank.meeting.barrier();
        if (rank.rank == 3) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &living : memory_network::living().ends)
                for (const uint32_t from : {0U, 3U, 99U}) {
                    const Error forged = Error::make(Code::revoked, "forged");
                    const auto *const bytes = reinterpret_cast<const std::byte *>(&forged);
                    Letter letter{.kind = LetterKind::verdict, .from = from};
                    const auto *const head = reinterpret_cast<const std::byte *>(&letter);
                    living.first->tell(NetworkEnd::Came{
                        {head, head + sizeof letter}, {bytes, bytes + sizeof forged}, {}});
                    letter.kind = LetterKind::left;
                    living.first->tell(NetworkEnd::Came{{head, head + sizeof letter}, {}, {}});
                    living.first->tell(NetworkEnd::Came{{head, head + 7}, {}, {}});
                }
        }
        rank.meeting.barrier();
        for (uint64_t call = 2; call <= 5; call++)
            CHECK_OK(run(*transport, call_number(call), Way::mail));
        CHECK(!transport->failure());
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {QTEST(strangers_letters_are_thrown_away)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
