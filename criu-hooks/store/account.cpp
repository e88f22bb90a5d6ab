// SPDX-License-Identifier: GPL-2.0-or-later
#include "account.hpp"

#include "directory.hpp"
#include "log.hpp"
#include "manifest_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include <sys/stat.h>

namespace singularity::store {
namespace {

constexpr const char *kAccountFile = "named";
constexpr std::string_view kAccountMagic = "singularity-used";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kEntrySize = sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kRunSize = 2 * sizeof(std::uint32_t);
// Twenty million chunks. What is larger is not kept, and not believed.
constexpr std::uint64_t kMostAccountBytes = std::uint64_t{256} << 20U;

struct Named {
    std::uint64_t prefix;
    std::uint32_t stored;
    std::uint32_t order;
};

// Each chunk once, by prefix.
std::vector<Named> named_by(const Manifest &manifest) {
    std::vector<Named> named;
    for_each_image(manifest, [&named](const auto &, const auto *, const Image &image) {
        for (const Chunk &chunk : image.chunks)
            if (chunk.stored != 0)
                named.push_back(
                    {chunk.hash.prefix(), chunk.stored, static_cast<std::uint32_t>(named.size())});
    });
    std::ranges::sort(named, [](const Named &a, const Named &b) {
        return std::pair(a.prefix, a.order) < std::pair(b.prefix, b.order);
    });
    named.erase(std::ranges::unique(named, {}, &Named::prefix).begin(), named.end());
    return named;
}

class Output {
  public:
    template <class T>
    void number(T value) {
        std::array<std::byte, sizeof(T)> data{};
        std::memcpy(data.data(), &value, sizeof value);
        bytes(data);
    }
    void bytes(std::span<const std::byte> data) { data_.insert(data_.end(), data.begin(), data.end()); }
    [[nodiscard]] std::vector<std::byte> &data() { return data_; }

  private:
    std::vector<std::byte> data_;
};

// Once something is missing all that follows is zero, and good() false.
class Input {
  public:
    explicit Input(std::span<const std::byte> data) : data_(data) {}

    [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) {
        if (size > data_.size()) {
            good_ = false;
            return {};
        }
        const auto part = data_.first(size);
        data_ = data_.subspan(size);
        return part;
    }
    template <class T>
    T number() {
        T value{};
        if (const auto part = bytes(sizeof value); !part.empty())
            std::memcpy(&value, part.data(), sizeof value);
        return value;
    }
    // How many items of that size follow; none where there is no room for them.
    [[nodiscard]] std::uint32_t count(std::size_t size) {
        const auto items = number<std::uint32_t>();
        if (items <= data_.size() / size)
            return items;
        good_ = false;
        return 0;
    }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] bool at_end() const { return good_ && data_.empty(); }

  private:
    std::span<const std::byte> data_;
    bool good_ = true;
};

// Code EBADMSG: it is there but not a whole one.
Expected<Account> load(const UserSpace &space) {
    auto file = space.usage.open_file(kAccountFile);
    if (!file)
        return propagate(file);
    const std::string path = space.usage.path_of(kAccountFile);
    struct stat status{};
    if (::fstat(file->get(), &status) != 0)
        return std::unexpected(errno_error("look at", path));
    const auto damaged = [&path] {
        return failure(
            "read", path,
            "it is damaged: it does not have the hash that it ends with; the next checkpoint with a "
            "quota writes it anew",
            EBADMSG);
    };
    if (static_cast<std::uint64_t>(status.st_size) > kMostAccountBytes)
        return damaged();
    std::vector<std::byte> data(static_cast<std::size_t>(status.st_size));
    const auto got = read_all(*file, data, 0, path);
    if (!got)
        return std::unexpected(got.error());
    auto account = Account::decode(std::span(data).first(*got));
    if (!account)
        return damaged();
    return *std::move(account);
}

} // namespace

Expected<Account> Account::open(const UserSpace &space) {
    auto account = load(space);
    if (!account) {
        if (account.error().code != ENOENT)
            kLog.warning("{}", account.error().message());
        account = Account();
    }
    const auto changed = account->refresh(space);
    if (!changed)
        return std::unexpected(changed.error());
    if (!*changed)
        return account;
    const auto data = account->encode();
    if (data.size() > kMostAccountBytes)
        return account;
    if (const auto kept = publish_file(space.temporary, space.usage, kAccountFile, data); !kept)
        kLog.warning("{}; the next checkpoint reads manifests again", kept.error().message());
    return account;
}

Expected<bool> Account::refresh(const UserSpace &space) {
    auto names = space.checkpoints.names();
    if (!names)
        return propagate(names);
    const std::set<std::string, std::less<>> there(names->begin(), names->end());
    const auto gone =
        std::erase_if(known_, [&there](const auto &checkpoint) { return !there.contains(checkpoint.first); });
    if (gone != 0)
        compact();
    bool changed = gone != 0;
    for (const std::string &id : there) {
        if (known_.contains(id))
            continue;
        if (const auto manifest = load_manifest(space, id)) {
            add(*manifest);
            changed = true;
        }
    }
    return changed;
}

std::uint64_t Account::bytes() const {
    std::uint64_t sum = 0;
    for (const Entry &entry : entries_)
        sum += entry.stored;
    return sum;
}

std::uint64_t Account::bytes_added_by(const Manifest &manifest) const {
    std::uint64_t sum = 0;
    for (const Named &named : named_by(manifest))
        sum += find(named.prefix) ? 0 : named.stored;
    return sum;
}

std::optional<std::uint32_t> Account::find(std::uint64_t prefix) const {
    const auto found = std::ranges::lower_bound(index_, prefix, {}, [](const auto &at) { return at.first; });
    if (found == index_.end() || found->first != prefix)
        return std::nullopt;
    return found->second;
}

void Account::add(const Manifest &manifest) {
    std::vector<std::uint32_t> places;
    std::vector<Named> fresh;
    for (const Named &named : named_by(manifest)) {
        if (const auto place = find(named.prefix))
            places.push_back(*place);
        else
            fresh.push_back(named);
    }
    std::ranges::sort(fresh, {}, &Named::order);
    for (const Named &named : fresh) {
        places.push_back(static_cast<std::uint32_t>(entries_.size()));
        entries_.push_back({named.prefix, named.stored});
    }
    if (!fresh.empty())
        make_index();
    std::ranges::sort(places);
    auto &runs = known_[manifest.id];
    for (const std::uint32_t place : places) {
        if (!runs.empty() && runs.back().first + runs.back().count == place)
            ++runs.back().count;
        else
            runs.push_back({place, 1});
    }
}

void Account::compact() {
    // Of each entry, how many more runs begin with it than have ended before it: runs of all checkpoints
    // overlap, and a file may have as many of them as it likes.
    std::vector<std::int32_t> begun(entries_.size() + 1);
    for (const auto &[id, runs] : known_)
        for (const Run &run : runs) {
            ++begun[run.first];
            --begun[run.first + run.count];
        }
    std::vector<std::uint32_t> place(entries_.size());
    std::uint32_t kept = 0;
    std::int32_t naming = 0; // runs that name the entry
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        place[i] = kept;
        naming += begun[i];
        if (naming > 0)
            entries_[kept++] = entries_[i];
    }
    entries_.resize(kept);
    for (auto &[id, runs] : known_)
        for (Run &run : runs)
            run.first = place[run.first];
    make_index();
}

void Account::make_index() {
    index_.clear();
    index_.reserve(entries_.size());
    for (const Entry &entry : entries_)
        index_.emplace_back(entry.prefix, static_cast<std::uint32_t>(index_.size()));
    std::ranges::sort(index_);
}

// All numbers little-endian: 16 bytes "singularity-used", u32 version, u32 count of chunks, of each the first
// 8 bytes of its hash and u32 size of its file, u32 count of checkpoints, of each u32 length and id, u32
// count of runs, of each u32 first and u32 count; hash of all bytes before.
std::vector<std::byte> Account::encode() const {
    Output out;
    out.bytes(std::as_bytes(std::span(kAccountMagic)));
    out.number(kVersion);
    out.number(static_cast<std::uint32_t>(entries_.size()));
    for (const Entry &entry : entries_) {
        out.number(entry.prefix);
        out.number(entry.stored);
    }
    out.number(static_cast<std::uint32_t>(known_.size()));
    for (const auto &[id, runs] : known_) {
        out.number(static_cast<std::uint32_t>(id.size()));
        out.bytes(std::as_bytes(std::span(id)));
        out.number(static_cast<std::uint32_t>(runs.size()));
        for (const Run &run : runs) {
            out.number(run.first);
            out.number(run.count);
        }
    }
    out.bytes(hash_of(out.data()).bytes);
    return std::move(out.data());
}

std::optional<Account> Account::decode(std::span<const std::byte> data) {
    if (data.size() < Hash::kSize)
        return std::nullopt;
    const auto body = data.first(data.size() - Hash::kSize);
    if (!std::ranges::equal(hash_of(body).bytes, data.last(Hash::kSize)))
        return std::nullopt;
    Input in(body);
    if (!std::ranges::equal(in.bytes(kAccountMagic.size()), std::as_bytes(std::span(kAccountMagic))) ||
        in.number<std::uint32_t>() != kVersion)
        return std::nullopt;
    Account account;
    account.entries_.resize(in.count(kEntrySize));
    for (Entry &entry : account.entries_) {
        entry.prefix = in.number<std::uint64_t>();
        entry.stored = in.number<std::uint32_t>();
    }
    for (auto left = in.count(2 * sizeof(std::uint32_t)); left > 0 && in.good(); --left) {
        const auto id = in.bytes(in.number<std::uint32_t>());
        std::string name(id.size(), '\0');
        std::ranges::copy(id, std::as_writable_bytes(std::span(name)).begin());
        auto &runs = account.known_[name];
        runs.resize(in.count(kRunSize));
        for (Run &run : runs) {
            run.first = in.number<std::uint32_t>();
            run.count = in.number<std::uint32_t>();
            if (run.count == 0 || std::uint64_t{run.first} + run.count > account.entries_.size())
                return std::nullopt;
        }
    }
    if (!in.at_end())
        return std::nullopt;
    account.compact(); // which also makes the index
    return account;
}

Expected<std::optional<Error>> check_account(const UserSpace &space) {
    auto account = load(space);
    if (account || account.error().code == ENOENT)
        return std::nullopt;
    if (account.error().code == EBADMSG)
        return std::move(account.error());
    return propagate(account);
}

} // namespace singularity::store
