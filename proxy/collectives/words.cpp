// SPDX-License-Identifier: GPL-2.0-or-later
#include "words.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {
constexpr std::chrono::seconds kForTheRest{10};
} // namespace

Expected<void> send_word(Socket &socket, Word word, std::span<const std::byte> bytes,
                         const Deadline &deadline) {
    WordHead head{.word = std::to_underlying(word), .size = static_cast<std::uint32_t>(bytes.size())};
    std::array parts{iovec{.iov_base = &head, .iov_len = sizeof(head)},
                     iovec{.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()}};
    return socket.send(std::span(parts).first(bytes.empty() ? 1 : 2), deadline);
}

Expected<ReceivedWord> receive_word(Socket &socket, const Deadline &until_first) {
    WordHead head;
    if (auto got = socket.receive(std::as_writable_bytes(std::span(&head, 1)), until_first); !got)
        return propagate(got);
    if (head.word == 0 || head.word >= std::to_underlying(Word::end) || head.size > kMostWord)
        return failure("understand", "a rendezvous",
                       fmt::format("there is no word {} of {} bytes", head.word, head.size), EPROTO);
    ReceivedWord word{.word = static_cast<Word>(head.word), .bytes = std::vector<std::byte>(head.size)};
    if (auto got = socket.receive(word.bytes, Deadline::after(kForTheRest)); !got)
        return propagate(got);
    return word;
}

} // namespace singularity::collectives
