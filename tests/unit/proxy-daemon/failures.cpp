// SPDX-License-Identifier: GPL-2.0-or-later
// Death on either side, kernels that never end, clients that write nonsense. A client that must die is a
// process. How long the other side takes to notice is measured by the bench.
#include "proxy_process.hpp"

#include <csignal>
#include <functional>
#include <optional>
#include <tuple>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
namespace driver_api = singularity::driver_api;
namespace protocol = singularity::protocol;
using singularity::Deadline;

// What a client leaves behind when it is killed: a kernel that never ends, memory, a stream, a wait for it.
[[noreturn]] void be_a_client(const std::filesystem::path &socket, int ready) {
    Client client(socket);
    client.make_context();
    client.map_slab(0, 8 * protocol::kSlabUnit);
    driver_api::StreamCreateRequest request;
    request.phStream = handle(driver_api::kHandleStream, 1);
    assert_int_equal(client.driver_result(request), 0);
    client.launch(client.load("spin"), {}, request.phStream);
    client.send(protocol::LaunchHostFunction{.stream = 1, .function = 1, .data = 1, .kind = 1});
    const char byte = 'x';
    if (write(ready, &byte, 1) != 1)
        _exit(1);
    static_cast<void>(client.synchronize(request.phStream));
    for (;;)
        pause();
}

void killed_client_is_cleaned_up(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), {"--max-clients", "4"});
    for (int round = 0; round < 3; ++round) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        const pid_t child = fork();
        if (child == 0)
            be_a_client(proxy.socket(), ends[1]);
        close(ends[1]);
        char byte = 0;
        assert_int_equal(read(ends[0], &byte, 1), 1);
        close(ends[0]);
        const auto before = free_on_device(proxy.socket());
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, nullptr, 0), child);
        assert_true(
            wait_until([&] { return free_on_device(proxy.socket()) == before + 8 * protocol::kSlabUnit; },
                       soon(), "the memory", std::chrono::milliseconds(5))
                .has_value());
    }
    proxy.expect_log("everything was given back");
}

void killed_daemon_fails_all_calls(void **) {
    const Scratch scratch;
    ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    client.launch(client.load("spin"));
    std::atomic<bool> sent = false;
    std::atomic<bool> failed = false;
    std::jthread waiter([&] {
        auto pending = need(client.end().prepare_reply(64));
        driver_api::StreamSynchronizeRequest request;
        request.hStream = 1;
        std::array<std::byte, 64> storage{};
        const auto size = need(driver_api::encode(request, storage));
        auto record = need(client.end().begin(client.context, size, &pending));
        std::ranges::copy(std::span(storage).first(size), record.message().begin());
        record.commit();
        sent = true;
        failed = !pending.wait();
    });
    assert_true(wait_until([&] { return sent.load(); }, soon(), "the call to be written").has_value());
    // The daemon has it when the next call is answered.
    static_cast<void>(client.free_memory());
    proxy.end(SIGKILL);
    client.expect_end();
    waiter.join();
    assert_true(failed);
    assert_false(client.end().begin(0, 8).has_value());
}

void orderly_end_frees_the_socket(void **) {
    const Scratch scratch;
    for (const int signal : {SIGTERM, SIGINT}) {
        ProxyProcess proxy(scratch.path());
        Client client(proxy.socket());
        client.make_context();
        client.map_slab(0);
        client.launch(client.load("spin"));
        const int status = proxy.end(signal);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        client.expect_end();
        expect_contains(client.farewell(), "the device proxy ends");
        assert_false(std::filesystem::exists(proxy.socket()));
    }
}

// One that lies, one that goes on.
void garbage_ends_only_its_own_session(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), {"--max-clients", "64"});
    Client good(proxy.socket());
    good.make_context();
    const auto slab = good.map_slab(0);
    const auto before = good.free_memory();
    const auto check_good = [&] {
        good.write(slab, std::as_bytes(std::span("data")));
        assert_int_equal(static_cast<char>(good.read(slab, 5)[1]), 'a');
    };
    const auto ends_with = [&](std::string_view rule, const std::function<void(Client &)> &lie) {
        {
            Client bad(proxy.socket());
            bad.make_context();
            bad.map_slab(0);
            lie(bad);
            bad.expect_end();
            expect_contains(bad.farewell(), rule);
            proxy.expect_log(rule);
        }
        check_good();
    };
    const auto raw = [](Client &client, std::span<const std::byte> message, bool reply = false) {
        std::optional<channel::Pending> pending;
        if (reply)
            pending.emplace(need(client.end().prepare_reply(64)));
        auto record = need(client.end().begin(client.context, message.size(), reply ? &*pending : nullptr));
        std::ranges::copy(message, record.message().begin());
        record.commit();
        if (reply)
            assert_false(pending->wait().has_value());
    };
    const auto header = [](std::uint32_t id, std::uint64_t size) {
        return driver_api::MessageHeader{.api = id, .kind = 1, .size = size};
    };
    ends_with("there is no such message", [&](Client &client) {
        const auto message = header(0x7fff'ffff, 16);
        raw(client, std::as_bytes(std::span(&message, 1)));
    });
    ends_with("has no generated message", [&](Client &client) {
        const auto message = header(std::to_underlying(driver_api::ApiId::kInit), 16);
        raw(client, std::as_bytes(std::span(&message, 1)));
    });
    ends_with("its head alone has", [&](Client &client) {
        const auto message = header(std::to_underlying(protocol::Id::launch_kernel), 16);
        raw(client, std::as_bytes(std::span(&message, 1)));
    });
    ends_with("its head is not complete", [&](Client &client) {
        const auto message = header(std::to_underlying(protocol::Id::write_memory), 16);
        raw(client, std::as_bytes(std::span(&message, 1)));
    });
    ends_with("leaves no place for the reply", [&](Client &client) {
        const auto message = header(std::to_underlying(protocol::Id::map_slab), 32);
        raw(client, std::as_bytes(std::span(&message, 1)));
    });
    ends_with("it has no reply", [&](Client &client) {
        const auto message = header(std::to_underlying(protocol::Id::launch_kernel), 16);
        raw(client, std::as_bytes(std::span(&message, 1)), true);
    });
    ends_with("there is no such message", [&](Client &client) { raw(client, {}); });
    ends_with("not in the session's window", [&](Client &client) {
        const protocol::Message<protocol::MapSlab> message{
            .fixed = {.address = good.welcome().window + protocol::kSlabUnit, .size = protocol::kSlabUnit},
            .buffers = {}};
        std::array<std::byte, 64> storage{};
        raw(client, std::span(storage).first(need(protocol::encode(message, storage))), true);
    });
    // Slabs lie in the device's slice, host memory in the first.
    ends_with("not in the session's window", [&](Client &client) {
        const protocol::Message<protocol::MapSlab> message{
            .fixed = {.address = client.welcome().window, .size = protocol::kSlabUnit}, .buffers = {}};
        std::array<std::byte, 64> storage{};
        raw(client, std::span(storage).first(need(protocol::encode(message, storage))), true);
    });
    ends_with("there is no slab", [&](Client &client) {
        const protocol::Message<protocol::UnmapSlab> message{
            .fixed = {.address = client.welcome().window + (8 << 20), .size = protocol::kSlabUnit},
            .buffers = {}};
        std::array<std::byte, 64> storage{};
        raw(client, std::span(storage).first(need(protocol::encode(message, storage))), true);
    });
    ends_with("as the handle of a new stream: it is taken", [&](Client &client) {
        driver_api::StreamCreateRequest request;
        request.phStream = handle(driver_api::kHandleStream, 1);
        assert_int_equal(client.driver_result(request), 0);
        static_cast<void>(client.driver_result(request));
    });
    ends_with("as the handle of a new stream: it is none of its own", [&](Client &client) {
        driver_api::StreamCreateRequest request;
        request.phStream = 12345;
        static_cast<void>(client.driver_result(request));
    });
    ends_with("it was not announced", [&](Client &client) {
        client.send(protocol::BlobData{.blob = 1, .offset = 0}, {protocol::view_of_text("x")});
    });
    ends_with("2 bytes at 5; 0 of 10 are there", [&](Client &client) {
        client.send(protocol::BeginBlob{.blob = 1, .size = 10});
        client.send(protocol::BlobData{.blob = 1, .offset = 5}, {protocol::view_of_text("xx")});
    });
    ends_with("does not send it", [&](Client &client) {
        need(client.end().link().send(channel::PacketType::output, 0, {}, {}, soon()));
    });
    ends_with("no such callback waits", [&](Client &client) {
        need(client.end().link().send(channel::PacketType::callback_done, 5, {}, {}, soon()));
    });
    ends_with("0 descriptors", [&](Client &client) {
        need(client.end().link().send(channel::PacketType::descriptor, 5, {}, {}, soon()));
    });
    for (const auto &[size, sealed, rule] : {std::tuple{std::size_t{4096}, false, "not a memfd sealed"},
                                             std::tuple{std::size_t{8192}, true, "it has 8192 bytes"}})
        ends_with(rule, [&](Client &client) {
            const singularity::UniqueFd memory(memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING));
            assert_int_equal(ftruncate(memory.get(), static_cast<off_t>(size)), 0);
            if (sealed)
                assert_int_equal(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
            const int descriptor = memory.get();
            need(client.end().link().send(channel::PacketType::descriptor, 1, {}, {&descriptor, 1}, soon()));
            const protocol::Message<protocol::MapHostMemory> message{
                .fixed = {.descriptor = 1, .address = client.welcome().window + (1 << 30), .size = 4096},
                .buffers = {}};
            std::array<std::byte, 64> storage{};
            raw(client, std::span(storage).first(need(protocol::encode(message, storage))), true);
        });
    // All that they had is back.
    assert_true(wait_until([&] { return good.free_memory() == before; }, soon(), "the memory").has_value());
}

// Not even a hello.
void nonsense_instead_of_a_hello(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    for (const auto type : {channel::PacketType::callback, channel::PacketType::hello}) {
        auto link = need(channel::Link::connect(proxy.socket(), soon()));
        need(link.send(type, 0, std::as_bytes(std::span("?")), {}, soon()));
        const auto answer = link.receive(soon());
        assert_false(answer.has_value());
        assert_int_equal(answer.error().code, ECONNRESET);
        proxy.expect_log("is no hello");
    }
    Client client(proxy.socket());
    client.make_context();
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(killed_client_is_cleaned_up),  cmocka_unit_test(killed_daemon_fails_all_calls),
        cmocka_unit_test(orderly_end_frees_the_socket), cmocka_unit_test(garbage_ends_only_its_own_session),
        cmocka_unit_test(nonsense_instead_of_a_hello),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
