// SPDX-License-Identifier: GPL-2.0-or-later
#include "keys.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace singularity::nccl {

namespace {

// Begins each id, so that another library's, or none at all, is noticed.
constexpr std::array<char, 8> kMagic{'S', 'I', 'N', 'G', 'N', 'C', 'L', '1'};

enum class Purpose : std::uint64_t { several_ids = 1, split, shrink, revoked, environment, grow };

class Digest {
  public:
    explicit Digest(Purpose purpose) { add(static_cast<std::uint64_t>(purpose)); }
    Digest &add(std::uint64_t number) {
        numbers_.push_back(number);
        return *this;
    }
    Digest &add(const Key &key) { return add(key[0]).add(key[1]); }
    [[nodiscard]] Key key() const {
        const auto hash = XXH3_128bits(numbers_.data(), numbers_.size() * sizeof(numbers_.front()));
        return {hash.low64, hash.high64};
    }

  private:
    std::vector<std::uint64_t> numbers_;
};

} // namespace

UniqueId id_of(const Key &key) {
    UniqueId id{};
    std::ranges::copy(kMagic, id.internal.begin());
    std::memcpy(&id.internal[kMagic.size()], key.data(), sizeof(key));
    return id;
}

Outcome<UniqueId> new_unique_id() {
    if (const char *const agreed = std::getenv("NCCL_COMM_ID"); agreed != nullptr) {
        const std::string_view text(agreed);
        return id_of(Digest(Purpose::environment).add(XXH3_64bits(text.data(), text.size())).key());
    }
    Key key{};
    if (getrandom(key.data(), sizeof(key), 0) != sizeof(key))
        return refused(Result::system_error, "{}", errno_error("read", "random numbers").message());
    return id_of(key);
}

Outcome<Key> key_of(std::span<const UniqueId> ids) {
    Digest digest(Purpose::several_ids);
    Key key{};
    for (const auto &id : ids) {
        std::memcpy(key.data(), &id.internal[kMagic.size()], sizeof(key));
        const auto rest = std::span(id.internal).subspan(kMagic.size() + sizeof(key));
        if (!std::ranges::equal(std::span(id.internal).first(kMagic.size()), kMagic) ||
            std::ranges::any_of(rest, [](char one) { return one != '\0'; }))
            return refused(
                Result::invalid_argument,
                "the unique id was not made by this library's ncclGetUniqueId (all ranks have to run "
                "through the proxy)");
        digest.add(key);
    }
    return ids.size() == 1 ? key : digest.key();
}

Key key_of_split(const Key &parent, std::uint64_t number, int color) {
    return Digest(Purpose::split).add(parent).add(number).add(static_cast<std::uint32_t>(color)).key();
}

Key key_of_shrink(const Key &parent, std::uint64_t number, std::span<const int> excluded) {
    Digest digest(Purpose::shrink);
    digest.add(parent).add(number);
    for (const int rank : excluded)
        digest.add(static_cast<std::uint32_t>(rank));
    return digest.key();
}

Key key_of_grow(const Key &parent, std::uint64_t number) {
    return Digest(Purpose::grow).add(parent).add(number).key();
}

Key key_behind_revoked(const Key &parent, std::uint64_t number) {
    return Digest(Purpose::revoked).add(parent).add(number).key();
}

} // namespace singularity::nccl
