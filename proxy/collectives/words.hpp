// SPDX-License-Identifier: GPL-2.0-or-later
// Words with the rendezvous, sent and received whole.
#pragma once

#include "frames.hpp"
#include "socket.hpp"

#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace singularity::collectives {

struct ReceivedWord {
    Word word{};
    std::vector<std::byte> bytes;
};

[[nodiscard]] Expected<void> send_word(Socket &socket, Word word, std::span<const std::byte> bytes,
                                       const Deadline &deadline);
// until_first: how long nothing may come; once something has, the rest must come soon.
[[nodiscard]] Expected<ReceivedWord> receive_word(Socket &socket, const Deadline &until_first);

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of_word(const T &value) {
    return std::as_bytes(std::span(&value, 1));
}
// Exactly a T; nothing: it is something else.
template <class T>
[[nodiscard]] std::optional<T> word_as(const ReceivedWord &word, Word wanted) {
    if (word.word != wanted || word.bytes.size() != sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, word.bytes.data(), sizeof(T));
    return value;
}

} // namespace singularity::collectives
