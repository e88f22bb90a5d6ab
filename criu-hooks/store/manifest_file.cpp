// SPDX-License-Identifier: GPL-2.0-or-later
#include "manifest_file.hpp"

#include "chunk_file.hpp"
#include "common/text.hpp"
#include "directory.hpp"
#include "state.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::store {
namespace {

constexpr std::string_view kMagic = "singularity-mfst";
constexpr std::size_t kBuffer = std::size_t{256} << 10U;
constexpr std::uint32_t kMostText = 64U << 10U;
// Of an attribute: the record of a job or a node, with a program of it. Linux starts none that has more than
// 6 MiB of arguments and environment.
constexpr std::uint32_t kMostValue = 16U << 20U;
constexpr std::uint64_t kMostItems = 1U << 20U; // nodes, devices, images and attributes together
// Parts of several hosts may meet in one manifest.
constexpr std::uint64_t kMostManifestChunks = 4 * std::uint64_t{kMostChunks};

// What the limits above allow, and no more than reading and checking can take in little memory and time.
constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20U;
constexpr std::int64_t kLatest = 253'402'300'799; // the end of the year 9999

// One function says what a thing consists of, for both ways: `io` is a Output or a Input, whose functions
// return false once something has gone wrong.
template <class Io, class T>
bool transfer_list(Io &io, T &items) {
    if (!io.count(items))
        return false;
    return std::ranges::all_of(items, [&io](auto &item) { return transfer(io, item); });
}

template <class Io>
bool transfer(Io &io, std::pair<std::string, std::string> &attribute) {
    return io.text(attribute.first) && io.text(attribute.second, kMostValue);
}

template <class Io>
bool transfer(Io &io, Chunk &chunk) {
    if (!io.number(chunk.size) || !io.number(chunk.stored) || !io.chunk(chunk))
        return false;
    return chunk.stored == 0 || io.bytes(chunk.hash.bytes);
}

template <class Io>
bool transfer(Io &io, Image &image) {
    return io.text(image.name) && transfer_list(io, image.chunks);
}

template <class Io>
bool transfer(Io &io, Device &device) {
    return io.text(device.name) && transfer_list(io, device.attributes) && transfer_list(io, device.images);
}

template <class Io>
bool transfer(Io &io, VirtualNode &node) {
    return io.text(node.name) && transfer_list(io, node.attributes) && transfer_list(io, node.images) &&
           transfer_list(io, node.devices);
}

template <class Io>
bool transfer(Io &io, Manifest &manifest) {
    return io.text(manifest.id) && io.text(manifest.parent) && io.text(manifest.job) &&
           io.number(manifest.uid) && io.number(manifest.gid) && io.text(manifest.user) &&
           io.text(manifest.tier) && io.number(manifest.time) && io.number(manifest.sizes.content) &&
           io.number(manifest.sizes.zeros) && io.number(manifest.sizes.stored) &&
           io.number(manifest.sizes.added) && transfer_list(io, manifest.attributes) &&
           transfer_list(io, manifest.nodes);
}

constexpr const char *kTooMany =
    "more nodes, devices, images, attributes or chunks than a checkpoint can have";

struct Counts {
    std::uint64_t chunks = 0;
    std::uint64_t items = 0;

    template <class T>
    bool add(std::uint64_t count) {
        (std::is_same_v<T, Chunk> ? chunks : items) += count;
        return chunks <= kMostManifestChunks && items <= kMostItems;
    }
};

bool is_possible(const Chunk &chunk, std::string &why) {
    const bool in_file = chunk.stored > kChunkHeader && chunk.stored <= kChunkHeader + kChunkSize;
    if (chunk.size != 0 && chunk.size <= kChunkSize && (chunk.stored == 0 || in_file))
        return true;
    why = fmt::format("a chunk of {} bytes in a file of {}", chunk.size, chunk.stored);
    return false;
}

// Where the bytes go: `flush` gets them in blocks.
class Output {
  public:
    explicit Output(std::function<bool(std::span<const std::byte>)> flush) : flush_(std::move(flush)) {}

    bool bytes(std::span<const std::byte> data) {
        size_ += data.size();
        if (size_ > kMostBytes) {
            why = fmt::format("it takes more than {}", byte_count(kMostBytes));
            return false;
        }
        if (buffer_.size() + data.size() > kBuffer && !flush())
            return false;
        buffer_.insert(buffer_.end(), data.begin(), data.end());
        return true;
    }
    template <class T>
    bool number(const T &value) {
        std::array<std::byte, sizeof(T)> data{};
        std::memcpy(data.data(), &value, sizeof value);
        return bytes(data);
    }
    bool text(const std::string &text, std::uint32_t most = kMostText) {
        if (text.size() > most) {
            why = fmt::format("a text of {} bytes; at most {} are taken", text.size(), most);
            return false;
        }
        return number(static_cast<std::uint32_t>(text.size())) && bytes(std::as_bytes(std::span(text)));
    }
    template <class T>
    bool count(const std::vector<T> &items) {
        if (!counts_.add<T>(items.size())) {
            why = kTooMany;
            return false;
        }
        return number(static_cast<std::uint32_t>(items.size()));
    }
    bool chunk(const Chunk &chunk) { return is_possible(chunk, why); }
    bool flush() {
        const bool flushed = flush_(buffer_);
        buffer_.clear();
        return flushed;
    }

    std::string why; // what cannot be written at all

  private:
    std::function<bool(std::span<const std::byte>)> flush_;
    std::vector<std::byte> buffer_;
    std::uint64_t size_ = 0;
    Counts counts_;
};

// Where the bytes come from: `fill` puts the next ones in place, all that are asked for or false.
class Input {
  public:
    Input(std::function<bool(std::span<std::byte>)> fill, std::uint64_t left)
        : fill_(std::move(fill)), left_(left) {}

    bool bytes(std::span<std::byte> data) {
        if (data.size() > left_) {
            why = "it ends too early";
            return false;
        }
        left_ -= data.size();
        return fill_(data);
    }
    template <class T>
    bool number(T &value) {
        std::array<std::byte, sizeof(T)> data{};
        if (!bytes(data))
            return false;
        std::memcpy(&value, data.data(), sizeof value);
        return true;
    }
    bool text(std::string &text, std::uint32_t most = kMostText) {
        std::uint32_t size = 0;
        if (!number(size))
            return false;
        if (size > most) {
            why = fmt::format("a text of {} bytes; at most {} are taken", size, most);
            return false;
        }
        if (size > left_) { // before memory is taken for it
            why = "it ends too early";
            return false;
        }
        text.resize(size);
        return bytes(std::as_writable_bytes(std::span(text)));
    }
    template <class T>
    bool count(std::vector<T> &items) {
        std::uint32_t size = 0;
        if (!number(size))
            return false;
        // Every item takes at least eight bytes: what cannot fit is refused before memory is taken for it.
        if (size > left_ / 8) {
            why = fmt::format("{} parts of one kind, more than it has room for", size);
            return false;
        }
        if (!counts_.add<T>(size)) {
            why = kTooMany;
            return false;
        }
        items.resize(size);
        return true;
    }
    bool chunk(const Chunk &chunk) { return is_possible(chunk, why); }
    [[nodiscard]] bool at_end() const { return left_ == 0; }

    std::string why;

  private:
    std::function<bool(std::span<std::byte>)> fill_;
    std::uint64_t left_;
    Counts counts_;
};

// Reads a file forward in blocks.
class Blocks {
  public:
    Blocks(const UniqueFd &file, const std::string &name, std::uint64_t from)
        : file_(file), name_(name), at_(from), buffer_(kBuffer) {}

    bool read(std::span<std::byte> out) {
        while (!out.empty()) {
            if (begin_ == end_ && !refill())
                return false;
            const std::size_t taken = std::min(out.size(), end_ - begin_);
            std::memcpy(out.data(), buffer_.data() + begin_, taken);
            begin_ += taken;
            out = out.subspan(taken);
        }
        return true;
    }

    Error error;

  private:
    bool refill() {
        const auto got = read_all(file_, buffer_, at_, name_);
        if (!got || *got == 0) {
            error = got ? Error{"read", name_, "it ended while it was being read", 0} : got.error();
            return false;
        }
        at_ += *got;
        begin_ = 0;
        end_ = *got;
        return true;
    }

    const UniqueFd &file_;
    const std::string &name_;
    std::uint64_t at_;
    std::vector<std::byte> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

constexpr const char *kReadManifest = "read manifest";

// The hash of everything but the last 32 bytes, compared with those.
Expected<void> check_own_hash(const UniqueFd &file, const std::string &name, std::uint64_t size) {
    Blocks blocks(file, name, 0);
    Hasher hasher;
    std::vector<std::byte> block(kBuffer);
    for (std::uint64_t left = size - Hash::kSize; left > 0;) {
        const auto part =
            std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, kBuffer)));
        if (!blocks.read(part))
            return std::unexpected(blocks.error);
        hasher.update(part);
        left -= part.size();
    }
    Hash own;
    if (!blocks.read(own.bytes))
        return std::unexpected(blocks.error);
    if (own != hasher.finish())
        return failure(kReadManifest, name,
                       "it is damaged: its content does not have the hash that it ends with");
    return {};
}

template <class T>
bool each_once(const std::vector<T> &items) {
    std::vector<std::string_view> names;
    names.reserve(items.size());
    for (const T &item : items)
        names.emplace_back(item.name);
    std::ranges::sort(names);
    return std::ranges::adjacent_find(names) == names.end();
}

bool addresses_differ(const Manifest &manifest) {
    return each_once(manifest.nodes) && std::ranges::all_of(manifest.nodes, [](const VirtualNode &node) {
               return each_once(node.images) && each_once(node.devices) &&
                      std::ranges::all_of(node.devices,
                                          [](const Device &device) { return each_once(device.images); });
           });
}

// What the format allows and no writer writes; nothing if there is none of it.
std::string wrong_with(const Manifest &manifest) {
    if (!is_id(manifest.id))
        return "it is that of " + quote(manifest.id) + ", which is no id of a checkpoint";
    if (!manifest.parent.empty() && !is_id(manifest.parent))
        return "it says that its parent is " + quote(manifest.parent) + ", which is no id of a checkpoint";
    if (manifest.time < 0 || manifest.time > kLatest)
        return fmt::format("its time is {}", manifest.time);
    if (!addresses_differ(manifest))
        return "two of its nodes, devices or images have the same name";
    return {};
}

// An Io takes references because reading needs them; writing leaves the object as it is.
template <class T>
bool write(Output &writer, const T &value) {
    return transfer(writer,
                    const_cast<T &>(value)); // NOLINT(cppcoreguidelines-pro-type-const-cast): see above
}

} // namespace

Expected<void> write_manifest(const UniqueFd &file, const std::string &name, const Manifest &manifest) {
    std::uint64_t at = 0;
    Hasher hasher;
    Error error;
    Output writer([&](std::span<const std::byte> data) {
        hasher.update(data);
        auto written = write_all(file, data, at, name);
        at += data.size();
        if (!written)
            error = std::move(written.error());
        return error.doing.empty();
    });
    if (const std::string wrong = wrong_with(manifest); !wrong.empty())
        return failure("write manifest", name, wrong);
    const bool whole = writer.bytes(std::as_bytes(std::span(kMagic))) && writer.number(kManifestVersion) &&
                       writer.text(std::string(kHashName)) && write(writer, manifest) && writer.flush();
    if (!whole && error.doing.empty())
        return failure("write manifest", name, writer.why);
    if (!whole)
        return std::unexpected(std::move(error));
    const Hash own = hasher.finish();
    if (auto written = write_all(file, own.bytes, at, name); !written)
        return written;
    if (::ftruncate(file.get(), static_cast<off_t>(at + Hash::kSize)) != 0)
        return std::unexpected(errno_error("cut", name));
    return {};
}

Expected<Manifest> read_manifest(const UniqueFd &file, const std::string &name) {
    struct stat status{};
    if (::fstat(file.get(), &status) != 0)
        return std::unexpected(errno_error("look at", name));
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size < kMagic.size() + sizeof(std::uint32_t) + Hash::kSize)
        return failure(kReadManifest, name, fmt::format("it is damaged: it has only {} bytes", size));
    if (size > kMostBytes + Hash::kSize)
        return failure(kReadManifest, name, fmt::format("it has {} bytes, more than any manifest", size));

    Blocks blocks(file, name, 0);
    Input reader([&blocks](std::span<std::byte> data) { return blocks.read(data); }, size - Hash::kSize);
    const auto failed = [&] {
        if (!blocks.error.doing.empty())
            return std::unexpected(blocks.error);
        return failure(kReadManifest, name, "it is damaged: " + reader.why);
    };
    std::string magic(kMagic.size(), '\0');
    std::uint32_t version = 0;
    if (!reader.bytes(std::as_writable_bytes(std::span(magic))) || !reader.number(version))
        return failed();
    if (magic != kMagic)
        return failure(kReadManifest, name, "it is no manifest: it does not begin like one");
    if (version != kManifestVersion)
        return failure(kReadManifest, name,
                       fmt::format("it has format version {}, and this program knows version {} only",
                                   version, kManifestVersion));
    std::string algorithm;
    if (!reader.text(algorithm))
        return failed();
    if (algorithm != kHashName)
        return failure(
            kReadManifest, name,
            fmt::format("its hashes are of another algorithm than {}, the only one known here", kHashName));
    if (auto checked = check_own_hash(file, name, size); !checked)
        return propagate(checked);
    Manifest manifest;
    if (!transfer(reader, manifest))
        return failed();
    if (!reader.at_end())
        return failure(kReadManifest, name, "it is damaged: something follows its end");
    if (const std::string wrong = wrong_with(manifest); !wrong.empty())
        return failure(kReadManifest, name, wrong);
    return manifest;
}

Expected<Manifest> load_manifest(const UserSpace &space, const std::string &id) {
    if (!is_id(id))
        return failure("read checkpoint", quote(id), "that is no id of a checkpoint", EINVAL);
    auto file = space.checkpoints.open_file(id);
    if (!file && file.error().code == ENOENT)
        return failure("read checkpoint", id, fmt::format("uid {} has none of that name", space.uid), ENOENT);
    if (!file)
        return propagate(file);
    const std::string path = space.checkpoints.path_of(id);
    auto manifest = read_manifest(*file, path);
    if (manifest && manifest->id != id)
        return failure("read manifest", path, "it is that of checkpoint " + quote(manifest->id));
    if (manifest && manifest->uid != space.uid)
        return failure("read manifest", path, fmt::format("it is one of uid {}", manifest->uid));
    return manifest;
}

std::vector<std::byte> encode_nodes(const std::vector<VirtualNode> &nodes) {
    std::vector<std::byte> data;
    Output writer([&data](std::span<const std::byte> block) {
        data.insert(data.end(), block.begin(), block.end());
        return true;
    });
    auto &all =
        const_cast<std::vector<VirtualNode> &>(nodes); // NOLINT(cppcoreguidelines-pro-type-const-cast)
    if (!writer.number(kManifestVersion) || !transfer_list(writer, all) || !writer.flush())
        data.clear();
    return data;
}

Expected<std::vector<VirtualNode>> decode_nodes(std::span<const std::byte> data) {
    constexpr const char *kDoing = "read a part of a checkpoint";
    Input reader(
        [&data](std::span<std::byte> out) {
            std::memcpy(out.data(), data.data(), out.size());
            data = data.subspan(out.size());
            return true;
        },
        data.size());
    std::uint32_t version = 0;
    if (!reader.number(version))
        return failure(kDoing, "", reader.why);
    if (version != kManifestVersion)
        return failure(kDoing, "",
                       fmt::format("it has format version {}, not {}", version, kManifestVersion));
    std::vector<VirtualNode> nodes;
    if (!transfer_list(reader, nodes))
        return failure(kDoing, "", reader.why);
    if (!reader.at_end())
        return failure(kDoing, "", "something follows its end");
    return nodes;
}

} // namespace singularity::store
