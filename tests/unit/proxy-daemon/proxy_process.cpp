// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy_process.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::test {

namespace {

// Child: the daemon with standard error in a file.
pid_t start(const std::filesystem::path &scratch, std::vector<std::string> arguments, int keep) {
    const pid_t child = fork();
    if (child < 0)
        fail(errno_error("start", "the daemon").message());
    if (child != 0)
        return child;
    const int log = open((scratch / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, STDERR_FILENO);
    dup2(log, STDOUT_FILENO);
    if (keep >= 0)
        fcntl(keep, F_SETFD, 0);
    arguments.insert(arguments.begin(), SINGULARITY_PROXYD);
    std::vector<char *> argv;
    for (auto &argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(SINGULARITY_PROXYD, argv.data());
    _exit(127);
}

std::string content(const std::filesystem::path &path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

} // namespace

Scratch::Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "proxyd.XXXXXX").native();
    if (mkdtemp(name.data()) == nullptr)
        fail(errno_error("make", name).message());
    path_ = name;
}

Scratch::~Scratch() {
    std::error_code ignored; // what is left does no harm
    std::filesystem::remove_all(path_, ignored);
}

ProxyProcess::ProxyProcess(const std::filesystem::path &scratch, std::vector<std::string> more)
    : scratch_(scratch) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    // Windows where ThreadSanitizer lets them be.
    std::vector<std::string> arguments{"--driver",
                                       SINGULARITY_FAKE_DRIVER,
                                       "--socket",
                                       socket().native(),
                                       "--ready-fd",
                                       std::to_string(ends[1]),
                                       "--die-with-parent",
                                       "--log-level",
                                       "debug",
                                       "--window-area",
                                       "0x550000000000-0x555000000000",
                                       "--window-size",
                                       "16GiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    pid_ = start(scratch_, std::move(arguments), ends[1]);
    close(ends[1]);
    pollfd waiting{.fd = ends[0], .events = POLLIN, .revents = 0};
    std::array<char, 256> line{};
    if (poll(&waiting, 1, 20'000) != 1 || ::read(ends[0], line.data(), line.size() - 1) <= 0)
        fail("the daemon does not serve:\n" + log());
    close(ends[0]);
    expect_contains(line.data(), "serving on " + socket().native());
}

ProxyProcess::~ProxyProcess() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
}

std::string ProxyProcess::log() const { return content(scratch_ / "log"); }

void ProxyProcess::expect_log(std::string_view part) const {
    const auto there = wait_until([&] { return log().contains(part); }, soon(), "a line in the log");
    if (!there)
        fail("the log does not say '" + std::string(part) + "':\n" + log());
}

int ProxyProcess::end(int signal) {
    kill(pid_, signal);
    int status = -1;
    const auto ended =
        wait_until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, soon(), "the daemon's end");
    if (!ended)
        fail("the daemon does not end:\n" + log());
    pid_ = -1;
    return status;
}

Ran run_proxyd(const std::filesystem::path &scratch, std::vector<std::string> arguments) {
    const pid_t child = start(scratch, std::move(arguments), -1);
    int status = -1;
    if (!wait_until([&] { return waitpid(child, &status, WNOHANG) == child; }, soon(), "the daemon's end")) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        fail("the daemon goes on:\n" + content(scratch / "log"));
    }
    return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .said = content(scratch / "log")};
}

Client::Client(const std::filesystem::path &socket, std::uint64_t window) {
    auto link = need(channel::Link::connect(socket, soon()));
    auto answer = need(channel::say_hello(link, {.window = window}, soon()));
    if (!answer.welcome)
        fail("refused: " + std::string(answer.refusal->text.data()));
    welcome_ = *answer.welcome;
    end_ = std::make_unique<channel::ClientEnd>(
        need(channel::Segment::map(answer.segment.get(), welcome_.geometry)), std::move(link));
    watcher_ = std::thread([this] { watch(); });
}

Client::~Client() {
    end_->link().shut_down();
    watcher_.join();
}

void Client::watch() {
    for (;;) {
        auto packet = end_->link().receive(Deadline::after(std::chrono::hours(1)));
        if (!packet) {
            end_->mark_dead();
            const std::scoped_lock lock(lock_);
            ended_ = true;
            changed_.notify_all();
            return;
        }
        const std::string text(static_cast<const char *>(static_cast<const void *>(packet->body.data())),
                               packet->body.size());
        if (packet->type == channel::PacketType::callback) {
            std::unique_lock lock(lock_);
            const auto call = on_callback_;
            lock.unlock();
            if (call)
                call(packet->ticket, need(channel::struct_of<channel::Callback>(*packet)));
        }
        const std::scoped_lock lock(lock_);
        ++received_;
        if (packet->type == channel::PacketType::output)
            printed_ += text;
        if (packet->type == channel::PacketType::farewell)
            farewell_ = text;
        changed_.notify_all();
    }
}

void Client::wait_for_packets(std::uint64_t count) {
    std::unique_lock lock(lock_);
    need(wait_until(lock, changed_, [&] { return received_ >= count || ended_; }, soon(), "packets"));
}

void Client::expect_end() {
    std::unique_lock lock(lock_);
    need(wait_until(lock, changed_, [&] { return ended_; }, soon(), "the session's end"));
}

void Client::on_callback(OnCallback call) {
    const std::scoped_lock lock(lock_);
    on_callback_ = std::move(call);
}

std::string Client::printed() {
    const std::scoped_lock lock(lock_);
    return printed_;
}

void Client::make_context() { assert_int_equal(result(protocol::CreateContext{.context = context}), 0); }

std::uint64_t Client::map_slab(std::uint64_t at, std::uint64_t size) {
    const auto address = welcome_.window + channel::slice_size(welcome_.area.window_size, 1) + at;
    assert_int_equal(result(protocol::MapSlab{.address = address, .size = size}), 0);
    return address;
}

std::uint64_t Client::load(std::string_view name) {
    const std::uint64_t blob = next_++;
    const auto module = handle(driver_api::kHandleModule, next_++);
    const auto function = handle(driver_api::kHandleFunction, next_++);
    send(protocol::BeginBlob{.blob = blob, .size = name.size()});
    send(protocol::BlobData{.blob = blob, .offset = 0}, {protocol::view_of_text(name)});
    assert_int_equal(result(protocol::LoadModule{.module = module, .blob = blob}), 0);
    send(protocol::DropBlob{.blob = blob});
    const std::string text(name);
    driver_api::ModuleGetFunctionRequest request;
    request.hfunc = function;
    request.hmod = module;
    request.name = driver_api::view_of_string(text.c_str());
    assert_int_equal(driver_result(request), 0);
    return function;
}

void Client::launch(std::uint64_t function, std::span<const std::byte> parameters, std::uint64_t stream) {
    protocol::LaunchKernel launch;
    launch.shape.function = function;
    launch.shape.grid = {1, 1, 1};
    launch.shape.block = {1, 1, 1};
    launch.stream = stream;
    send(launch, {driver_api::View{.bytes = parameters, .present = true}, driver_api::View{}});
}

std::int32_t Client::synchronize(std::uint64_t stream) {
    driver_api::StreamSynchronizeRequest request;
    request.hStream = stream;
    return driver_result(request);
}

channel::Identity identity_of(const std::filesystem::path &socket) {
    auto asking = need(channel::Link::connect(socket, soon()));
    need(asking.send(channel::PacketType::identify, 0, {}, {}, soon()));
    return need(channel::struct_of<channel::Identity>(need(asking.receive(soon()))));
}

std::uint64_t Client::free_memory() {
    const auto bytes = ask(protocol::MemoryInfo{});
    const auto reply = need(protocol::decode_reply<protocol::MemoryInfo>(bytes));
    assert_int_equal(reply.result, 0);
    return reply.fixed.free;
}

void Client::send_packet(channel::PacketType type, std::uint64_t ticket) {
    need(end_->link().send(type, ticket, {}, {}, soon()));
}

std::vector<std::byte> Client::read(std::uint64_t address, std::uint64_t size, std::uint64_t stream) {
    const auto bytes =
        ask(protocol::ReadMemory{.source = address, .size = size, .stream = stream}, {}, size + 64);
    const auto reply = need(protocol::decode_reply<protocol::ReadMemory>(bytes));
    assert_int_equal(reply.result, 0);
    return {reply.buffers[0].bytes.begin(), reply.buffers[0].bytes.end()};
}

void Client::write(std::uint64_t address, std::span<const std::byte> data, std::uint64_t stream) {
    send(protocol::WriteMemory{.destination = address, .stream = stream},
         {driver_api::View{.bytes = data, .present = true}});
}

} // namespace singularity::test
