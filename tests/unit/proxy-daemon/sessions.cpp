// SPDX-License-Identifier: GPL-2.0-or-later
// What a client gets from the daemon, message by message, with the fake driver behind it.
#include "proxy_process.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
namespace driver_api = singularity::driver_api;
namespace protocol = singularity::protocol;
using singularity::UniqueFd;

constexpr std::int32_t kInvalidValue = 1;
constexpr std::int32_t kOutOfMemory = 2;
constexpr std::int32_t kInvalidContext = 201;
constexpr std::int32_t kInvalidImage = 200;
constexpr std::int32_t kInvalidHandle = 400;

std::vector<std::byte> numbers(std::size_t size) {
    std::vector<std::byte> data(size);
    for (std::size_t index = 0; index < size; ++index)
        data[index] = static_cast<std::byte>(index * 7 + index / 256);
    return data;
}

std::uint64_t make_stream(Client &client, std::uint64_t index) {
    driver_api::StreamCreateRequest request;
    request.phStream = handle(driver_api::kHandleStream, index);
    assert_int_equal(client.driver_result(request), 0);
    return request.phStream;
}

void identity_is_told(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), {"--device", "1"});
    const Client client(proxy.socket());
    const auto &device = client.welcome().device;
    assert_string_equal(device.name.data(), "fake device");
    assert_int_equal(device.ordinal, 1);
    assert_int_equal(device.total_memory, 256 << 20);
    assert_int_equal(device.compute_major, 9);
    assert_int_equal(device.driver_version, 13000);
    assert_int_equal(device.stream_priority_greatest, -5);
    assert_true(device.knows_attribute(16));
    assert_int_equal(device.attributes[16], 16);
    assert_false(device.knows_attribute(500));
}

void windows_are_apart(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), {"--max-clients", "3"});
    const Client first(proxy.socket());
    const Client second(proxy.socket());
    assert_true(first.welcome().window != second.welcome().window);
    const auto &area = first.welcome().area;
    assert_int_equal(area.begin, 0x5500'0000'0000);
    // A window of 16 GiB has slices for 15 devices at most.
    auto wide = need(channel::Link::connect(proxy.socket(), soon()));
    for (const auto &[devices, ordinal] : {std::pair{1U, 1U}, {0U, 0U}, {16U, 0U}, {~0U, 3U}}) {
        const auto refused = need(channel::say_hello(
            wide, {.devices = devices, .client = {.process = {1, 2}, .ordinal = ordinal}}, soon()));
        assert_int_equal(refused.refusal->reason, std::to_underlying(channel::RefusalReason::failed));
        expect_contains(refused.refusal->text.data(), "has no slice for device " + std::to_string(ordinal) +
                                                          " of " + std::to_string(devices));
    }
    // A window that another has, one that is none, and then a free one on the same connection.
    auto link = need(channel::Link::connect(proxy.socket(), soon()));
    auto answer = need(channel::say_hello(link, {.window = first.welcome().window}, soon()));
    assert_int_equal(answer.refusal->reason, std::to_underlying(channel::RefusalReason::window_taken));
    answer = need(channel::say_hello(link, {.window = area.begin + 4096}, soon()));
    assert_int_equal(answer.refusal->reason, std::to_underlying(channel::RefusalReason::window_invalid));
    answer = need(channel::say_hello(link, {.window = area.begin + 9 * area.window_size}, soon()));
    assert_int_equal(answer.welcome->window, area.begin + 9 * area.window_size);
    // The fourth is too many.
    auto late = need(channel::Link::connect(proxy.socket(), soon()));
    answer = need(channel::say_hello(late, {}, soon()));
    assert_int_equal(answer.refusal->reason, std::to_underlying(channel::RefusalReason::no_room));
    expect_contains(answer.refusal->text.data(), "at most 3");
    answer = need(channel::say_hello(late, {.version = 99}, soon()));
    assert_int_equal(answer.refusal->reason, std::to_underlying(channel::RefusalReason::version));
}

// Whichever proxies serve them now.
void windows_of_different_devices_differ(void **) {
    const Scratch here;
    const Scratch there;
    const ProxyProcess first(here.path());
    const ProxyProcess second(there.path());
    std::set<std::uint64_t> windows;
    std::vector<channel::Link> links;
    for (std::uint32_t device = 0; device < 4; ++device)
        for (int process = 0; process < 3; ++process) {
            auto link = need(channel::Link::connect((device % 2 == 0 ? first : second).socket(), soon()));
            const auto answer =
                need(channel::say_hello(link, {.device = {.number = device, .of = 4}}, soon()));
            assert_true(answer.welcome.has_value());
            assert_true(windows.insert(answer.welcome->window).second);
            links.push_back(std::move(link));
        }
}

void identify_needs_no_session(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    client.map_slab(0);
    const auto identity = identity_of(proxy.socket());
    assert_string_equal(identity.device.name.data(), "fake device");
    assert_int_equal(identity.free_memory, (256 << 20) - protocol::kSlabUnit);
}

void memory_is_mapped_copied_and_given_back(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto before = client.free_memory();
    const auto slab = client.map_slab(0, 2 * protocol::kSlabUnit);
    assert_int_equal(client.free_memory(), before - 2 * protocol::kSlabUnit);
    const auto data = numbers(100'000);
    client.write(slab + 5, data);
    assert_true(client.read(slab + 5, data.size()) == data);
    // Another context's handle is none yet.
    client.context = handle(driver_api::kHandleContext, 77);
    assert_int_equal(client.result(protocol::ReadMemory{.source = slab, .size = 8, .stream = 1}),
                     kInvalidContext);
    client.context = handle(driver_api::kHandleContext, 1);
    assert_int_equal(client.result(protocol::MapSlab{.address = slab + (64 << 20), .size = 512 << 20}),
                     kOutOfMemory);
    assert_int_equal(client.result(protocol::UnmapSlab{.address = slab, .size = 2 * protocol::kSlabUnit}), 0);
    assert_int_equal(client.free_memory(), before);
    // What is not mapped is not reached, whatever the driver would do.
    assert_int_equal(client.result(protocol::ReadMemory{.source = slab, .size = 8, .stream = 1}),
                     kInvalidValue);
}

void places_of_processors_are_the_drivers(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto bytes = client.ask(protocol::ProcessorPlaces{}, {}, 2 * protocol::kMostProcessorPairs + 256);
    const auto reply = need(protocol::decode_reply<protocol::ProcessorPlaces>(bytes));
    assert_int_equal(reply.result, 0);
    const auto &[groups, positions] = reply.buffers;
    assert_true(groups.bytes.size() >= 66 && positions.bytes.size() == groups.bytes.size());
    for (std::size_t pair = 0; pair < 66; ++pair) {
        assert_int_equal(std::to_integer<unsigned>(groups.bytes[pair]), pair % 8);
        assert_int_equal(std::to_integer<unsigned>(positions.bytes[pair]), pair / 8);
    }
}

void kernels_get_their_parameters(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto slab = client.map_slab(0);
    const auto add = client.load("add");
    client.write(slab, std::vector<std::byte>(16, std::byte{1}));
    const std::array<std::uint64_t, 3> parameters{slab, 16, 41};
    for (int round = 0; round < 3; ++round)
        client.launch(add, std::as_bytes(std::span(parameters)));
    assert_int_equal(client.synchronize(), 0);
    assert_true(client.read(slab, 16) == std::vector<std::byte>(16, static_cast<std::byte>(1 + 3 * 41)));
}

// The error of an asynchronous call comes with the next call that can tell it, once; makers do not lose what
// they made because of it.
void asynchronous_errors_come_later(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto slab = client.map_slab(0);
    const auto failing = client.load("fail");
    client.launch(failing);
    client.launch(handle(driver_api::kHandleFunction, 999)); // a later error is not the one that is told
    make_stream(client, 3);
    assert_int_equal(client.synchronize(), kInvalidValue);
    assert_int_equal(client.synchronize(), 0);
    client.launch(handle(driver_api::kHandleFunction, 999));
    assert_int_equal(client.result(protocol::ReadMemory{.source = slab, .size = 8, .stream = 1}),
                     kInvalidHandle);
    // Memory that is not the session's: its own window, and outside of it.
    for (const std::uint64_t address :
         {slab + protocol::kSlabUnit - 4, std::uint64_t{0x1000}, client.welcome().window - 8}) {
        driver_api::MemsetD8AsyncRequest request;
        request.dstDevice = address;
        request.N = 8;
        request.hStream = 1;
        client.driver_send(request);
        assert_int_equal(client.synchronize(), kInvalidValue);
        client.write(address, numbers(8));
        assert_int_equal(client.synchronize(), kInvalidValue);
    }
}

// One stream is busy for ever: other threads' calls go on, also copies to the busy stream's memory.
void a_waiting_call_stops_nobody(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto slab = client.map_slab(0);
    const auto spin = client.load("spin");
    const auto stream = make_stream(client, 5);
    client.launch(spin, {}, stream);
    std::atomic<int> waiting = 2;
    const auto wait = [&](const auto &request) {
        // Ends when the session does.
        std::array<std::byte, 64> storage{};
        const auto size = need(driver_api::encode(request, storage));
        auto pending = need(client.end().prepare_reply(64));
        auto record = need(client.end().begin(client.context, size, &pending));
        std::ranges::copy(std::span(storage).first(size), record.message().begin());
        record.commit();
        if (!pending.wait())
            --waiting;
    };
    driver_api::StreamSynchronizeRequest on_stream;
    on_stream.hStream = stream;
    std::jthread stream_waiter([&] { wait(on_stream); });
    std::jthread context_waiter([&] { wait(driver_api::CtxSynchronizeRequest{}); });
    const auto data = numbers(protocol::kWritePiece);
    // Into the busy stream, more than a few: the data is kept aside.
    for (int round = 0; round < 8; ++round)
        client.send(protocol::WriteMemory{.destination = slab + 65536, .stream = stream},
                    {driver_api::View{.bytes = data, .present = true}});
    for (int round = 0; round < 100; ++round) {
        client.write(slab, numbers(64));
        assert_true(client.read(slab, 64) == numbers(64));
        assert_int_equal(client.synchronize(), 0);
    }
    assert_int_equal(waiting, 2);
    client.end().link().shut_down();
    stream_waiter.join();
    context_waiter.join();
    assert_int_equal(waiting, 0);
}

void a_context_is_waited_for_with_all_its_streams(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    assert_int_equal(client.driver_result(driver_api::CtxSynchronizeRequest{}), 0);
    const auto slab = client.map_slab(0);
    const auto stream = make_stream(client, 5);
    for (int round = 1; round <= 50; ++round) {
        driver_api::MemsetD8AsyncRequest request;
        request.dstDevice = slab;
        request.uc = static_cast<std::uint8_t>(round);
        request.N = protocol::kSlabUnit;
        request.hStream = stream;
        client.driver_send(request);
        assert_int_equal(client.driver_result(driver_api::CtxSynchronizeRequest{}), 0);
        // Of another stream, which waits for nobody.
        const auto last = client.read(slab + protocol::kSlabUnit - 1, 1);
        assert_int_equal(static_cast<int>(last.front()), round);
    }
}

// Kernels are given the driver's number, so it is what the program must get.
void textures_have_the_drivers_number(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto slab = client.map_slab(0);
    const auto texture = handle(driver_api::kHandleTexture, 7);
    const std::vector<std::byte> description(104); // CUDA_TEXTURE_DESC
    protocol::CreateTexture request{.texture = texture, .resource = {}};
    request.resource.type = 2; // CU_RESOURCE_TYPE_LINEAR
    request.resource.object = slab;
    request.resource.format = 0x20; // CU_AD_FORMAT_FLOAT
    request.resource.channels = 1;
    request.resource.size = 4096;
    const driver_api::View view{.bytes = description, .present = true};
    const auto bytes = client.ask(request, {view, driver_api::View{}});
    const auto reply = need(protocol::decode_reply<protocol::CreateTexture>(bytes));
    assert_int_equal(reply.result, 0);
    assert_int_equal(reply.fixed.value, 0x7e00'1000);
    // Memory of somebody else is no texture.
    request.texture = handle(driver_api::kHandleTexture, 8);
    request.resource.object = slab + protocol::kSlabUnit;
    assert_int_equal(client.result(request, {view, driver_api::View{}}), kInvalidValue);
    driver_api::TexObjectDestroyRequest gone;
    gone.texObject = texture;
    assert_int_equal(client.driver_result(gone), 0);
    assert_int_equal(client.driver_result(gone), kInvalidHandle);
}

void device_output_comes_before_the_reply(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    Client other(proxy.socket());
    client.make_context();
    other.make_context();
    const auto print = client.load("print");
    for (int round = 1; round <= 20; ++round) {
        client.launch(print);
        assert_int_equal(client.synchronize(), 0);
        std::string expected;
        for (int line = 0; line < round; ++line)
            expected += "hello from the device\n";
        expect_equal(client.printed(), expected);
    }
    assert_int_equal(other.synchronize(), 0);
    expect_equal(other.printed(), "");
}

void host_functions_are_called_in_the_client(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    std::vector<std::uint64_t> called;
    client.on_callback([&](std::uint64_t ticket, const channel::Callback &what) {
        assert_int_equal(what.function, 0xfeed);
        called.push_back(what.data);
        need(client.end().link().send(channel::PacketType::callback_done, ticket, {}, {}, soon()));
    });
    for (std::uint64_t number = 0; number < 10; ++number)
        client.send(protocol::LaunchHostFunction{.stream = 1, .function = 0xfeed, .data = number, .kind = 1});
    assert_int_equal(client.synchronize(), 0);
    std::vector<std::uint64_t> expected(10);
    std::iota(expected.begin(), expected.end(), 0);
    assert_true(called == expected);
}

void host_memory_is_shared(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto slab = client.map_slab(0);
    const auto address = client.welcome().window + client.welcome().area.window_size / 4;
    constexpr std::size_t kSize = 64 << 10;
    const UniqueFd memory(memfd_create("host", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    assert_int_equal(ftruncate(memory.get(), kSize), 0);
    assert_int_equal(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    auto *mine =
        static_cast<std::byte *>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
    assert_true(mine != MAP_FAILED);
    const int descriptor = memory.get();
    need(client.end().link().send(channel::PacketType::descriptor, 42, {}, {&descriptor, 1}, soon()));
    assert_int_equal(
        client.result(protocol::MapHostMemory{.descriptor = 42, .address = address, .size = kSize}), 0);
    const auto data = numbers(kSize);
    std::ranges::copy(data, mine);
    // To the device from the daemon's own view of it, doubled there, and back.
    const auto copy = [](std::uint64_t to, std::uint64_t from, protocol::CopyDirection direction) {
        return protocol::CopyMemory{.destination = to,
                                    .source = from,
                                    .size = kSize,
                                    .stream = 1,
                                    .direction = std::to_underlying(direction)};
    };
    client.send(copy(slab, address, protocol::CopyDirection::host_to_device));
    client.send(copy(slab + kSize, slab, protocol::CopyDirection::device_to_device));
    assert_int_equal(client.synchronize(), 0);
    std::ranges::fill(std::span(mine, kSize), std::byte{0});
    client.send(copy(address, slab + kSize, protocol::CopyDirection::device_to_host));
    assert_int_equal(client.synchronize(), 0);
    assert_true(std::ranges::equal(std::span(mine, kSize), data));
    // A byte too far is not shared.
    client.send(copy(slab, address + 1, protocol::CopyDirection::host_to_device));
    assert_int_equal(client.synchronize(), kInvalidValue);
    assert_int_equal(client.result(protocol::UnmapHostMemory{.address = address, .size = kSize}), 0);
    client.send(copy(slab, address, protocol::CopyDirection::host_to_device));
    assert_int_equal(client.synchronize(), kInvalidValue);
    munmap(mine, kSize);
}

void modules_come_in_pieces(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    client.load("add and much more");
    client.send(protocol::BeginBlob{.blob = 100, .size = 3});
    client.send(protocol::BlobData{.blob = 100, .offset = 0}, {protocol::view_of_text("bad")});
    const protocol::LoadModule load{.module = handle(driver_api::kHandleModule, 500), .blob = 100};
    assert_int_equal(client.result(load), kInvalidImage);
    // An ELF header alone says more than it has.
    std::string elf("\177ELF\2\1\1", 7);
    elf.resize(64, '\xff');
    client.send(protocol::BeginBlob{.blob = 101, .size = elf.size()});
    client.send(protocol::BlobData{.blob = 101, .offset = 0}, {protocol::view_of_text(elf)});
    assert_int_equal(
        client.result(protocol::LoadModule{.module = handle(driver_api::kHandleModule, 501), .blob = 101}),
        kInvalidImage);
    // Nothing has arrived of this one.
    client.send(protocol::BeginBlob{.blob = 102, .size = 10});
    assert_int_equal(
        client.result(protocol::LoadModule{.module = handle(driver_api::kHandleModule, 502), .blob = 102}),
        kOutOfMemory);
    // A module takes its functions along.
    const auto add = client.load("add");
    driver_api::ModuleUnloadRequest unload;
    unload.hmod =
        add - (std::uint64_t{1} << 36) * (driver_api::kHandleFunction - driver_api::kHandleModule) - (1 << 4);
    assert_int_equal(client.driver_result(unload), 0);
    client.launch(add);
    assert_int_equal(client.synchronize(), kInvalidHandle);
}

void a_context_takes_all_along(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Client client(proxy.socket());
    client.make_context();
    const auto before = client.free_memory();
    client.map_slab(0);
    const auto stream = make_stream(client, 9);
    const auto print = client.load("print");
    client.launch(print);
    assert_int_equal(client.result(protocol::DestroyContext{.context = client.context}), 0);
    expect_equal(client.printed(), "hello from the device\n");
    assert_int_equal(client.synchronize(), kInvalidContext);
    // The same handle, anew: nothing of the old one is left.
    client.make_context();
    assert_int_equal(client.free_memory(), before);
    assert_int_equal(client.synchronize(stream), kInvalidHandle);
    client.launch(print);
    assert_int_equal(client.synchronize(), kInvalidHandle);
    client.map_slab(0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(identity_is_told),
        cmocka_unit_test(windows_are_apart),
        cmocka_unit_test(windows_of_different_devices_differ),
        cmocka_unit_test(identify_needs_no_session),
        cmocka_unit_test(memory_is_mapped_copied_and_given_back),
        cmocka_unit_test(places_of_processors_are_the_drivers),
        cmocka_unit_test(kernels_get_their_parameters),
        cmocka_unit_test(asynchronous_errors_come_later),
        cmocka_unit_test(a_waiting_call_stops_nobody),
        cmocka_unit_test(a_context_is_waited_for_with_all_its_streams),
        cmocka_unit_test(textures_have_the_drivers_number),
        cmocka_unit_test(device_output_comes_before_the_reply),
        cmocka_unit_test(host_functions_are_called_in_the_client),
        cmocka_unit_test(host_memory_is_shared),
        cmocka_unit_test(modules_come_in_pieces),
        cmocka_unit_test(a_context_takes_all_along),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
