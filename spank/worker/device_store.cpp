// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_store.hpp"

#include "proxy/image/reader.hpp"
#include "proxy/image/writer.hpp"

#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace singularity::worker {

namespace {

constexpr const char *kRecords = "records";
constexpr const char *kContent = "content";
constexpr const char *kClients = "clients"; // attribute: how many processes

struct StoredHead {
    std::uint32_t type = 0; // image::RecordType
    std::uint32_t reserved = 0;
    std::uint64_t size = 0; // of the payload, content included
};

template <class Fixed>
std::span<const std::byte> bytes_of(const Fixed &fixed) {
    return std::as_bytes(std::span(&fixed, 1));
}

store::ImageAddress address(const std::string &node, std::uint32_t device, const char *name) {
    return {.node = node, .device = device_name(device), .name = name};
}

Expected<void> read_whole(store::ImageReader &image, std::span<std::byte> into) {
    auto got = image.read(into);
    if (!got)
        return propagate(got);
    if (*got != into.size())
        return failure("read", "a device image", "it is shorter than its records say", EPROTO);
    return {};
}

Expected<std::uint32_t> clients_of(const store::Checkpoint &checkpoint, const std::string &node,
                                   std::uint32_t device) {
    for (const auto &one : checkpoint.manifest().nodes)
        if (one.name == node)
            for (const auto &each : one.devices)
                if (each.name == device_name(device))
                    for (const auto &[name, value] : each.attributes) {
                        std::uint32_t count = 0;
                        const auto *const end = value.data() + value.size();
                        if (name != kClients)
                            continue;
                        if (const auto got = std::from_chars(value.data(), end, count);
                            got.ec == std::errc() && got.ptr == end)
                            return count;
                    }
    return failure("read", fmt::format("device {} of the checkpoint", device),
                   "the manifest does not say how many clients it has", EPROTO);
}

} // namespace

std::string device_name(std::uint32_t device) { return std::to_string(device); }

Expected<void> store_device(int stream, const DeviceShare &share, store::Writer &writer,
                            const std::string &node, const Deadline &deadline, const GoOn &go_on) {
    const auto device = share.device;
    auto records = writer.image(address(node, device, kRecords));
    if (!records)
        return propagate(records);
    auto content = writer.image(address(node, device, kContent));
    if (!content)
        return propagate(content);
    image::Reader reader(stream, deadline, go_on);
    std::uint32_t clients = 0;
    bool wanted = false; // the client that the records are of
    for (;;) {
        auto record = reader.next();
        if (!record)
            return propagate(record);
        if (record->type == image::RecordType::end)
            break;
        if (record->type == image::RecordType::stream)
            continue;
        std::optional<image::ClientRecord> client;
        if (record->type == image::RecordType::client) {
            auto fixed = image::fixed_of<image::ClientRecord>(*record);
            if (!fixed)
                return std::unexpected(fixed.error());
            wanted = share.has(fixed->node_device[0]);
            fixed->node_device[0] = device;
            client = *fixed;
            clients += wanted ? 1 : 0;
        }
        if (!wanted)
            continue;
        const StoredHead head{.type = static_cast<std::uint32_t>(record->type),
                              .size = record->payload.size()};
        if (auto done = records->append(bytes_of(head)); !done)
            return done;
        if (record->type == image::RecordType::place)
            if (auto done = content->boundary(); !done)
                return done;
        const bool splits = record->type == image::RecordType::content &&
                            record->payload.size() >= sizeof(image::ContentRecord);
        const auto first =
            client ? bytes_of(*client)
                   : record->payload.first(splits ? sizeof(image::ContentRecord) : record->payload.size());
        if (auto done = records->append(first); !done)
            return done;
        if (splits)
            if (auto done = content->append(record->payload.subspan(first.size())); !done)
                return done;
    }
    if (auto done = records->finish(); !done)
        return done;
    if (auto done = content->finish(); !done)
        return done;
    return writer.describe(node, device_name(device), {{kClients, std::to_string(clients)}});
}

Expected<void> load_device(const store::Checkpoint &checkpoint, const std::string &node, std::uint32_t device,
                           int stream, const Deadline &deadline, const GoOn &go_on) {
    auto clients = clients_of(checkpoint, node, device);
    if (!clients)
        return propagate(clients);
    auto records = checkpoint.image(address(node, device, kRecords));
    if (!records)
        return propagate(records);
    auto content = checkpoint.image(address(node, device, kContent));
    if (!content)
        return propagate(content);
    image::Writer writer(stream, deadline, go_on);
    if (auto done = writer.put(image::RecordType::stream, image::StreamRecord{.clients = *clients}); !done)
        return done;
    std::vector<std::byte> payload;
    for (std::uint64_t left = records->size(); left != 0;) {
        StoredHead head;
        if (left < sizeof(head))
            return failure("read", "a device image", "it ends inside of a record", EPROTO);
        if (auto done = read_whole(*records, std::as_writable_bytes(std::span(&head, 1))); !done)
            return done;
        left -= sizeof(head);
        if (head.size > image::kMostPayload)
            return failure("read", "a device image", fmt::format("a record of {} bytes", head.size), EPROTO);
        const auto type = static_cast<image::RecordType>(head.type);
        const bool splits = type == image::RecordType::content && head.size >= sizeof(image::ContentRecord);
        const std::size_t first = splits ? sizeof(image::ContentRecord) : head.size;
        if (left < first)
            return failure("read", "a device image", "it ends inside of a record", EPROTO);
        payload.resize(head.size);
        if (auto done = read_whole(*records, std::span(payload).first(first)); !done)
            return done;
        left -= first;
        if (splits)
            if (auto done = read_whole(*content, std::span(payload).subspan(first)); !done)
                return done;
        const std::span<const std::byte> whole(payload);
        if (type == image::RecordType::client) {
            const auto client = image::fixed_of<image::ClientRecord>(
                {.type = type, .index = writer.records(), .payload = whole});
            if (!client)
                return std::unexpected(client.error());
            if (client->node_device[0] != device)
                return failure("read", fmt::format("device {} of the checkpoint", device),
                               fmt::format("it has a client of device {}", client->node_device[0]), EPROTO);
        }
        if (auto done = writer.put(type, std::span(&whole, 1)); !done)
            return done;
    }
    if (auto done = writer.put(image::RecordType::end, image::EndRecord{.records = writer.records() + 1});
        !done)
        return done;
    return writer.flush();
}

} // namespace singularity::worker
