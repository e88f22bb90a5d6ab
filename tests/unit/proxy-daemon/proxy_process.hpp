// SPDX-License-Identifier: GPL-2.0-or-later
// A singularity-proxyd of the test's own, and a client that speaks to it in plain messages.
#pragma once

#include "cmocka.hpp"
#include "common/deadline.hpp"
#include "driver_api/handles.hpp"
#include "driver_api/messages.hpp"
#include "need.hpp"
#include "proxy/channel/client_end.hpp"
#include "proxy/protocol/all.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace singularity::test {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

// A directory that goes with the object.
class Scratch {
  public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    Scratch(Scratch &&) = delete;
    Scratch &operator=(Scratch &&) = delete;
    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

  private:
    std::filesystem::path path_;
};

class ProxyProcess {
  public:
    // Waits until it serves; the log goes to <scratch>/log.
    explicit ProxyProcess(const std::filesystem::path &scratch, std::vector<std::string> more = {});
    ~ProxyProcess();
    ProxyProcess(const ProxyProcess &) = delete;
    ProxyProcess &operator=(const ProxyProcess &) = delete;
    ProxyProcess(ProxyProcess &&) = delete;
    ProxyProcess &operator=(ProxyProcess &&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] std::filesystem::path socket() const { return scratch_ / "proxy.sock"; }
    [[nodiscard]] std::string log() const;
    // Waits until the log says this.
    void expect_log(std::string_view part) const;
    // Sends the signal and waits for the end; its wait status.
    int end(int signal);

  private:
    std::filesystem::path scratch_;
    pid_t pid_ = -1;
};

// Runs the daemon with these arguments to its end: exit status and what it said.
struct Ran {
    int status;
    std::string said;
};
Ran run_proxyd(const std::filesystem::path &scratch, std::vector<std::string> arguments);

inline std::uint64_t handle(unsigned kind, std::uint64_t index) {
    return std::uint64_t{0x0C00'0000'0000} | (std::uint64_t{kind} << 36) | (index << 4);
}

// What a daemon says of its device to anybody.
channel::Identity identity_of(const std::filesystem::path &socket);
// Bytes that no session has there.
inline std::uint64_t free_on_device(const std::filesystem::path &socket) {
    return identity_of(socket).free_memory;
}

class Client {
  public:
    explicit Client(const std::filesystem::path &socket, std::uint64_t window = 0);
    ~Client();
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;
    Client(Client &&) = delete;
    Client &operator=(Client &&) = delete;

    channel::ClientEnd &end() { return *end_; }
    [[nodiscard]] const channel::Welcome &welcome() const { return welcome_; }
    // Waits for the hang-up.
    void expect_end();
    [[nodiscard]] std::string farewell() const { return farewell_; }
    [[nodiscard]] std::string printed();
    using OnCallback = std::function<void(std::uint64_t ticket, const channel::Callback &)>;
    void on_callback(OnCallback call);

    // --- records of the context `context`
    std::uint64_t context = handle(driver_api::kHandleContext, 1);

    template <class M>
    void send(const M &fixed, std::array<driver_api::View, protocol::kBufferCount<M>> buffers = {}) {
        const protocol::Message<M> message{.fixed = fixed, .buffers = buffers};
        auto record = need(end_->begin(context, protocol::encoded_size(message)));
        need(protocol::encode(message, record.message()));
        record.commit();
    }

    // The reply as bytes: they have been copied. expected: room for it.
    template <class M>
    std::vector<std::byte> ask(const M &fixed,
                               std::array<driver_api::View, protocol::kBufferCount<M>> buffers = {},
                               std::size_t expected = 4096) {
        const protocol::Message<M> message{.fixed = fixed, .buffers = buffers};
        auto pending = need(end_->prepare_reply(expected));
        {
            auto record = need(end_->begin(context, protocol::encoded_size(message), &pending));
            need(protocol::encode(message, record.message()));
            record.commit();
        }
        const auto reply = need(pending.wait());
        wait_for_packets(reply.packets);
        return {reply.message.begin(), reply.message.end()};
    }
    template <class M>
    std::int32_t result(const M &fixed,
                        std::array<driver_api::View, protocol::kBufferCount<M>> buffers = {}) {
        const auto bytes = ask(fixed, buffers);
        return need(protocol::decode_reply<M>(bytes)).result;
    }

    // A generated message with a reply: its result.
    template <class Request>
    std::int32_t driver_result(const Request &request) {
        std::array<std::byte, 1024> storage{};
        const auto size = need(driver_api::encode(request, storage));
        auto pending = need(end_->prepare_reply(4096));
        {
            auto record = need(end_->begin(context, size, &pending));
            std::ranges::copy(std::span(storage).first(size), record.message().begin());
            record.commit();
        }
        const auto reply = need(pending.wait());
        wait_for_packets(reply.packets);
        std::int32_t value = -1;
        std::memcpy(&value, reply.message.data() + sizeof(driver_api::MessageHeader), sizeof(value));
        return value;
    }
    template <class Request>
    void driver_send(const Request &request) {
        std::array<std::byte, 1024> storage{};
        const auto size = need(driver_api::encode(request, storage));
        auto record = need(end_->begin(context, size));
        std::ranges::copy(std::span(storage).first(size), record.message().begin());
        record.commit();
    }

    // --- what most tests begin with
    void make_context();
    // The address.
    std::uint64_t map_slab(std::uint64_t at, std::uint64_t size = protocol::kSlabUnit);
    // The function's handle.
    std::uint64_t load(std::string_view name);
    void launch(std::uint64_t function, std::span<const std::byte> parameters = {}, std::uint64_t stream = 1);
    std::int32_t synchronize(std::uint64_t stream = 1);
    void send_packet(channel::PacketType type, std::uint64_t ticket);
    // As a device of its own would have it.
    std::uint64_t free_memory();
    // stream: the legacy default one unless said.
    std::vector<std::byte> read(std::uint64_t address, std::uint64_t size, std::uint64_t stream = 1);
    void write(std::uint64_t address, std::span<const std::byte> data, std::uint64_t stream = 1);

  private:
    void watch();
    void wait_for_packets(std::uint64_t count);

    channel::Welcome welcome_;
    std::unique_ptr<channel::ClientEnd> end_;
    std::thread watcher_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::uint64_t received_ = 1; // the welcome
    bool ended_ = false;
    std::string printed_;
    OnCallback on_callback_;
    std::string farewell_;
    std::uint64_t next_ = 10;
};

} // namespace singularity::test
