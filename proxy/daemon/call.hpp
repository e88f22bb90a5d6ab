// SPDX-License-Identifier: GPL-2.0-or-later
// One request of a client while it is carried out, as its handler sees it.
#pragma once

#include "object_table.hpp"
#include "proxy/channel/server_end.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "session.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace singularity::proxyd {

class Call {
  public:
    // may_block: on a thread that may wait for the device.
    Call(Session &session, const channel::RecordHeader &header, bool may_block)
        : session_(session), header_(header), may_block_(may_block) {}

    [[nodiscard]] Session &session() { return session_; }
    [[nodiscard]] const driver_api::Backend &driver() const { return session_.driver(); }
    [[nodiscard]] ObjectTable &objects() { return session_.objects(); }
    [[nodiscard]] const channel::RecordHeader &header() const { return header_; }

    // The client has broken a rule: the session ends and nothing is answered. For `return call.broken(...)`.
    CUresult broken(std::string why) {
        rule_ = std::move(why);
        return CUDA_ERROR_INVALID_VALUE;
    }
    [[nodiscard]] const std::optional<std::string> &broken_rule() const { return rule_; }

    [[nodiscard]] bool may_block() const { return may_block_; }
    // This would wait for the device: the handler is called again, from its begin, on a thread that may. For
    // `return call.later()`, and only where may_block() is false.
    CUresult later() {
        later_ = true;
        return CUDA_ERROR_NOT_READY;
    }
    [[nodiscard]] bool wants_later() const { return later_; }

    // The driver's object behind a handle of the client's; 0 is NULL.
    template <class Handle>
    [[nodiscard]] std::optional<Handle> object(unsigned kind, std::uint64_t handle) {
        const auto real = objects().real(kind, handle);
        if (!real)
            return std::nullopt;
        if constexpr (sizeof(Handle) == sizeof(std::uint64_t))
            return std::bit_cast<Handle>(*real);
        else
            return static_cast<Handle>(*real);
    }
    [[nodiscard]] std::optional<CUstream> stream(std::uint64_t wire) {
        return object<CUstream>(driver_api::kHandleStream, wire);
    }
    template <class Handle>
    void add(unsigned kind, std::uint64_t handle, Handle real) {
        objects().add(kind, handle, std::bit_cast<std::uint64_t>(real));
    }

    // Memory that lives until the reply has been sent.
    [[nodiscard]] std::span<std::byte> storage(std::size_t size) { return storage_.emplace_back(size); }
    template <class T>
    [[nodiscard]] std::span<T> elements(std::size_t count) {
        const auto bytes = storage(count * sizeof(T));
        return {static_cast<T *>(static_cast<void *>(bytes.data())), count};
    }

    // What the message leaves in the journal; before the answer, behind which the client's next call may be.
    void will_have(const JournalRule &rule, std::shared_ptr<const Blob> code) {
        rule_of_effect_ = &rule;
        code_ = std::move(code);
    }
    void note_effect(std::span<const std::byte> message, CUresult result) {
        if (active_trace != nullptr && rule_of_effect_ != nullptr)
            session_.note_effect(*rule_of_effect_, header_.context, message, *active_trace, result, 0, code_);
    }

    // The handler has answered by itself (data in place).
    void answered() { answered_ = true; }
    [[nodiscard]] bool has_answered() const { return answered_; }

  private:
    Session &session_;
    const channel::RecordHeader &header_;
    bool may_block_;
    bool later_ = false;
    bool answered_ = false;
    const JournalRule *rule_of_effect_ = nullptr;
    std::shared_ptr<const Blob> code_;
    std::optional<std::string> rule_;
    std::deque<std::vector<std::byte>> storage_;
};

} // namespace singularity::proxyd
