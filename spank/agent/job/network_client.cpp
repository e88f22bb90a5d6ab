// SPDX-License-Identifier: GPL-2.0-or-later
#include "network_client.hpp"

#include "agent/log.hpp"
#include "common/unix_socket.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr int kListener = 3;
constexpr int kNetworkBacklog = 4;
constexpr auto kNetworkPatience = 20s; // the kernel's locks of networks are coarse
constexpr const char *kSocket = "network.sock";

[[noreturn]] void become_network(const std::filesystem::path &program, int listener) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setsid();
    if (listener == kListener ? fcntl(listener, F_SETFD, 0) != 0 : dup2(listener, kListener) < 0)
        _exit(EXIT_FAILURE);
    static_cast<void>(fcntl(kListener, F_SETFL, fcntl(kListener, F_GETFL) | O_NONBLOCK));
    close_range(kListener + 1, ~0U, 0);
    if (chdir("/") != 0)
        _exit(EXIT_FAILURE);
    std::array<char *, 2> arguments{const_cast<char *>(program.c_str()), nullptr}; // execve does not write
    execve(program.c_str(), arguments.data(), environ);
    _exit(EXIT_FAILURE);
}

// Through a descriptor: the path of a state directory may be longer than a socket's address.
Expected<UniqueFd> with_socket(const std::filesystem::path &directory, const auto &action) {
    const auto opened = open_file(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!opened)
        return std::unexpected(opened.error());
    return action(fmt::format("/proc/self/fd/{}/{}", opened->get(), kSocket));
}

Expected<UniqueFd> connect(const std::filesystem::path &directory) {
    return with_socket(directory,
                       [](const std::string &path) { return connect_unix(path, Deadline::after(0s)); });
}

} // namespace

Expected<NetworkClient> NetworkClient::start(const Libraries &libraries,
                                             const std::filesystem::path &directory) {
    const auto program = libraries.network();
    if (access(program.c_str(), X_OK) != 0)
        return std::unexpected(errno_error("run", program.native()));
    auto listener = with_socket(
        directory, [](const std::string &path) { return listen_unix(path, 0600, kNetworkBacklog); });
    if (!listener)
        return propagate(listener);
    const pid_t pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("start", program.native()));
    if (pid == 0)
        become_network(program, listener->get());
    auto socket = connect(directory);
    if (!socket)
        return propagate(socket);
    return NetworkClient(std::move(*socket));
}

Expected<NetworkClient> NetworkClient::adopt(const std::filesystem::path &directory) {
    auto socket = connect(directory);
    if (!socket)
        return propagate(socket);
    return NetworkClient(std::move(*socket));
}

void NetworkClient::send(std::uint32_t token, const std::string &bytes, std::span<const int> descriptors,
                         OnReply on_reply) {
    pending_.emplace(token,
                     Pending{.deadline = Deadline::after(kNetworkPatience), .on_reply = std::move(on_reply)});
    if (!socket_)
        return; // next_deadline() is now
    if (const int code = node::send_packet(socket_.get(), bytes, descriptors); code != 0)
        socket_.reset();
}

void NetworkClient::end() {
    if (socket_ && node::send_packet(socket_.get(), node::encode(network::EndRequest{})) != 0)
        kLog.warning("a job's network ends by itself: it does not listen");
    socket_.reset();
}

void NetworkClient::watch(std::vector<pollfd> &fds) const {
    if (socket_)
        fds.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
}

std::optional<Deadline> NetworkClient::next_deadline() const {
    if (pending_.empty())
        return std::nullopt;
    return socket_ ? pending_.begin()->second.deadline : Deadline::after(0s);
}

void NetworkClient::handle() {
    node::Packet packet;
    while (socket_) {
        const auto received = node::receive_packet(socket_.get(), packet);
        if (received == node::Received::nothing)
            break;
        const auto header = received == node::Received::packet ? node::header_of(packet.bytes) : std::nullopt;
        if (!header) {
            socket_.reset();
            break;
        }
        auto found = pending_.extract(header->token);
        if (!found.empty())
            found.mapped().on_reply(std::move(packet));
    }
    if (pending_.empty())
        return;
    if (!socket_)
        return fail({"use", "the network of a job", "the process that holds it has ended", EPIPE});
    if (const auto &first = pending_.begin()->second.deadline; first.expired())
        fail(timeout_error(first, "the process that holds the network of a job"));
}

void NetworkClient::fail(const Error &error) {
    for (auto pending = std::exchange(pending_, {}); auto &[token, one] : pending)
        one.on_reply(std::unexpected(error));
}

std::unexpected<Error> NetworkClient::why(const node::Packet &packet) {
    if (auto failed = node::decode<network::Failed>(packet.bytes))
        return std::unexpected(
            Error{std::move(failed->doing), std::move(failed->on), std::move(failed->why), failed->code});
    return failure("understand", "the process that holds a job's network", "its answer has another form",
                   EPROTO);
}

} // namespace singularity::agent
