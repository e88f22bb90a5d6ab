// SPDX-License-Identifier: GPL-2.0-or-later
// The device memory behind a session's slabs, in chunks: each is on the device, in memory of the host, or in
// memory of the host that the device works in. Its address is the same wherever it is.
#pragma once

#include "back_end.hpp"
#include "common/error.hpp"
#include "contents.hpp"
#include "driver_api/backend.hpp"
#include "residency.hpp"
#include "shared_slabs.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace singularity::proxyd {

class DigestKernel;

// Any thread. A chunk is moved, or used by way of use(), by one at a time.
class Slabs {
  public:
    // What is moved at once: it needs as much memory of the host.
    static constexpr std::uint64_t kChunk = std::uint64_t{64} << 20;

    // Makes a context current on the calling thread.
    using Enter = std::function<void(std::uint64_t context)>;
    Slabs(const BackEnd &back_end, Enter enter) : back_end_(back_end), enter_(std::move(enter)) {}
    Slabs(const Slabs &) = delete;
    Slabs &operator=(const Slabs &) = delete;
    Slabs(Slabs &&) = delete;
    Slabs &operator=(Slabs &&) = delete;
    ~Slabs() = default;

    // Before anything else; without, the driver alone decides what fits, and nothing is moved. kernel: of a
    // context, the one that it has; nullptr: none.
    using Kernel = std::function<std::shared_ptr<const DigestKernel>(std::uint64_t context)>;
    void use_rules(std::shared_ptr<Residency> residency, std::shared_ptr<Contents> contents, Kernel kernel) {
        residency_ = std::move(residency);
        contents_ = std::move(contents);
        kernel_ = std::move(kernel);
    }

    // Multiples of the allocation granularity, in addresses that are reserved. context: whose it is.
    [[nodiscard]] CUresult map(std::uint64_t address, std::uint64_t size, std::uint64_t context,
                               bool on_host);
    // Whole slabs that other sessions may have, too: one that is mapped, with this key if it is none yet
    // (zeros: a new one); and one that somebody else has made, at addresses that are reserved.
    // CUDA_ERROR_INVALID_VALUE: it is no slab, or of another size or device. What is shared moves no more.
    [[nodiscard]] CUresult share(std::uint64_t address, std::uint64_t size, const SharedSlab::Key &key,
                                 std::uint32_t device, std::shared_ptr<SharedSlab> &slab);
    [[nodiscard]] CUresult open(std::uint64_t address, std::uint64_t size, std::uint64_t context,
                                const std::shared_ptr<SharedSlab> &slab);
    // The one that begins there, and whether it was made here; nullptr: it is not shared.
    struct Shared {
        std::shared_ptr<SharedSlab> slab;
        bool made = false;
    };
    [[nodiscard]] Shared shared_at(std::uint64_t address);
    // Of a slab from an image, which may have come after one that has opened it.
    void set_made(std::uint64_t address, std::uint64_t size, bool made);
    // What was mapped there.
    void unmap(std::uint64_t address, std::uint64_t size);
    // Nothing is mapped or moved any more.
    void close();
    void drop_all();
    // Gives back what nobody has any more (contents.hpp): whether there was any.
    [[nodiscard]] bool release_left();
    // What a context has stays where it is, since the context is being destroyed, or may move again.
    void keep(std::uint64_t context, bool stays);

    [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t on_device() const { return on_device_.load(std::memory_order_relaxed); }

    // Moves everything to where the device works with it. CUDA_ERROR_OUT_OF_MEMORY: for the rest there is no
    // room. on_host: what is not on the device stays in memory of the host, which the device works in.
    // is_quiet: asked before what it works in there already is moved to the device.
    [[nodiscard]] CUresult bring_in(bool on_host, const std::function<bool()> &is_quiet);
    // Moves a chunk to memory of the host. No work of the session is on the device.
    [[nodiscard]] CUresult send_out();

    // Calls what(piece) for memory, piece by piece in order; nothing moves meanwhile. Memory that is in no
    // slab is on the device. writes: what() may change it.
    struct Piece {
        std::uint64_t address = 0; // on the device
        std::byte *host = nullptr; // nullptr: it is there
        std::uint64_t offset = 0;
        std::uint64_t size = 0;
    };
    enum class Use : std::uint8_t { reads, writes };
    [[nodiscard]] Expected<void> use(std::uint64_t address, std::uint64_t size, Use how,
                                     const std::function<Expected<void>(const Piece &)> &what);

  private:
    struct Chunk {
        std::uint64_t size = 0;
        std::uint64_t context = 0;
        bool lent = false; // mapped, in memory of the host
        bool stays = false;
        std::shared_ptr<HostCopy> host;     // nullptr: it is mapped
        std::optional<Digest> content;      // of that, as far as it is known
        std::shared_ptr<SharedSlab> shared; // that it is a part of
        bool made = false;                  // of what is shared: it is the program's own
        bool counted = true;                // it was taken from the residency here
    };
    using Chunks = std::map<std::uint64_t, Chunk>; // by address
    // With the lock held.
    [[nodiscard]] CUresult make(std::uint64_t address, Chunk &chunk, bool on_host);
    [[nodiscard]] CUresult take_out(std::uint64_t address, Chunk &chunk);
    [[nodiscard]] CUresult put_in(std::uint64_t address, Chunk &chunk, bool on_host);
    [[nodiscard]] CUresult make_new(std::uint64_t address, Chunk &chunk, bool on_host);
    void drop(std::uint64_t address, Chunk &chunk);
    [[nodiscard]] std::optional<Digest> look_at(std::uint64_t address, const Chunk &chunk);
    void leave(std::uint64_t address, Chunk &chunk);
    [[nodiscard]] CUresult take_what_is_there();
    [[nodiscard]] bool make_own(Chunk &chunk);
    [[nodiscard]] CUresult copy(std::uint64_t address, const Chunk &chunk, HostCopy &host, bool in);

    const BackEnd &back_end_;
    Enter enter_;
    std::shared_ptr<Residency> residency_;
    std::shared_ptr<Contents> contents_; // wherever there is a residency
    Kernel kernel_;
    std::atomic<std::uint64_t> bytes_ = 0;
    std::atomic<std::uint64_t> on_device_ = 0;
    std::mutex lock_;
    Chunks chunks_;
    bool closed_ = false;
};

} // namespace singularity::proxyd
