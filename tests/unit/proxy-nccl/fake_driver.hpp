// SPDX-License-Identifier: GPL-2.0-or-later
// A driver without devices, and the proxies behind it: members that have the same key meet, exchanges give
// all that was given, and what is issued is kept for the test to look at.
#pragma once

#include "driver.hpp"
#include "proxy/protocol/collective.hpp"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::test {

struct IssuedGroup {
    std::uint64_t communicator = 0;
    std::uint64_t stream = 0;
    std::uint64_t group = 0;
    std::vector<std::uint64_t> sizes{}; // of its messages
    std::vector<protocol::CollectiveOperation> operations{};
};

class FakeDriver : public nccl::Driver {
  public:
    static constexpr int kDevices = 4;
    // Memory of device 0 is what begins here, that of the next one behind it; each as long.
    static constexpr std::uint64_t kMemory = 0x10'0000'0000;
    static constexpr std::uint64_t kBytes = 0x1000'0000;
    // Added to an address when it travels.
    static constexpr std::uint64_t kWire = 0x5000'0000'0000;
    static constexpr std::uintptr_t kCapturing = 0x777;
    static constexpr std::uintptr_t kAlsoCapturing = 0x778;
    static constexpr std::uintptr_t kUnknownStream = 0x999;

    [[nodiscard]] Expected<nccl::Place> current() override { return primary(device_of_thread); }
    [[nodiscard]] Expected<nccl::Place> primary(int device) override;
    [[nodiscard]] Expected<int> devices() override { return kDevices; }
    [[nodiscard]] Expected<nccl::StreamState> stream(const nccl::Place &place, nccl::Stream stream) override;
    [[nodiscard]] Expected<std::uint64_t> memory(const nccl::Place &place, const void *address,
                                                 std::size_t size) override;
    [[nodiscard]] Expected<void> order(const nccl::Place &place, nccl::Stream earlier,
                                       nccl::Stream later) override;
    [[nodiscard]] Expected<void> capture(const nccl::Place &place, nccl::Stream stream,
                                         std::unique_ptr<nccl::Captured> what) override;
    [[nodiscard]] Expected<void *> allocate(std::size_t size) override;
    [[nodiscard]] Expected<void> release(void *memory) override;
    [[nodiscard]] Expected<void> post(const nccl::Place &place, std::span<const std::byte> message) override;
    [[nodiscard]] Expected<void> ask(const nccl::Place &place, std::span<const std::byte> message,
                                     std::size_t reply_limit, const Take &take) override;
    [[nodiscard]] Expected<void> abort(const nccl::Place &place, std::uint64_t communicator) override;

    static thread_local int device_of_thread;

    // --- For tests
    [[nodiscard]] std::vector<IssuedGroup> issued();
    [[nodiscard]] std::vector<std::string> ordered(); // "earlier>later"
    // What was captured, one after the other, and on which streams.
    std::vector<std::pair<std::uintptr_t, std::unique_ptr<nccl::Captured>>> captured;
    [[nodiscard]] std::vector<std::uint64_t> left(bool abort); // communicators
    [[nodiscard]] std::size_t joined();                        // all that ever did
    void complete_nothing(bool nothing);
    void fail_all(nccl::Result result, std::string why);
    void break_messages(bool broken);

  private:
    struct Meeting {
        std::uint32_t size = 0;
        std::map<std::uint32_t, std::uint64_t> members; // rank -> communicator
        std::map<std::uint64_t, std::map<std::uint32_t, std::vector<std::byte>>> exchanges;
    };
    struct Member {
        std::array<std::uint64_t, 2> key;
        std::uint32_t rank;
        std::uint64_t groups = 0;
        bool aborted = false;
    };

    template <class Request>
    void reply(const protocol::ReplyMessage<typename Request::Reply> &message, const Take &take);
    void join(const protocol::Message<protocol::JoinCommunicator> &message, const Take &take);
    void state(const protocol::Message<protocol::CommunicatorState> &message, const Take &take);
    void exchange(const protocol::Message<protocol::ExchangeWithMembers> &message, const Take &take);
    void leave(const protocol::Message<protocol::LeaveCommunicator> &message, const Take &take);

    std::mutex lock_;
    std::condition_variable changed_;
    std::map<std::array<std::uint64_t, 2>, Meeting> meetings_;
    std::map<std::uint64_t, Member> members_;
    std::vector<IssuedGroup> issued_;
    bool more_ = false;
    std::vector<std::string> ordered_;
    std::array<std::vector<std::uint64_t>, 2> left_;
    std::set<std::uint64_t> told_of_abort_;
    bool nothing_completes_ = false;
    bool broken_ = false;
    nccl::Result failure_ = nccl::Result::success;
    std::string why_;
};

} // namespace singularity::test
